//! What a loop that accepts does when it can't.

use std::io;
use std::time::Duration;

/// What to do about a failed accept: nothing if it was the peer's, a growing pause if we are out of something, so that the loop
/// neither ends nor spins.
pub(super) fn pause_after(error: &io::Error, last: Duration) -> Duration {
    match error.kind() {
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => Duration::ZERO,
        _ => (last * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE),
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
