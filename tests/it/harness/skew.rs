//! Processes that believe that it is another time.

use std::process::Command;
use std::sync::OnceLock;

/// A clock that is wrong by so many seconds: ahead, or behind if less than 0.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Skew {
    /// The time of day.
    Wall(i64),
    /// The clock that counts from some beginning, too.
    All(i64),
}

impl Skew {
    /// Makes this the clock of a process that is to be started.
    pub(crate) fn apply(self, command: &mut Command) {
        let (Self::Wall(seconds) | Self::All(seconds)) = self;
        let spares_monotonic = if matches!(self, Self::Wall(_)) { "1" } else { "0" };
        command.env("LD_PRELOAD", library()).env("FAKETIME", format!("{seconds:+}s"));
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", spares_monotonic);
    }
}

/// Where it is, by the command that comes with it. That itself would stay between a test and its gateway.
fn library() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let told = Command::new("faketime").args(["-f", "+0s", "sh", "-c", "printf %s \"$LD_PRELOAD\""]).output();
        let told = told.expect("faketime is installed; `make test` does that");
        let library = String::from_utf8(told.stdout).unwrap();
        assert!(told.status.success() && library.contains("faketime"), "{library:?}");
        library
    })
}
