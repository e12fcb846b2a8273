//! Why there is no answer, and what a server's error means for the shard it came from.

use redis::{ErrorKind, RedisError, ServerError, Value};

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not within the budget. It may have run, and may yet.
    #[error("no answer in time")]
    Timeout,
    /// The connection broke before the answer. It may have run.
    #[error("the connection broke")]
    Lost,
    /// An answer that is not of the protocol. It may have run.
    #[error("the answer is not of the protocol")]
    Garbled,
    /// As many are under way as may be. It has not run.
    #[error("too many under way")]
    Overloaded,
    /// Nobody was asked: the shard does not answer, or nobody knows where it is.
    #[error("the store is down")]
    Down,
    /// The server says no. It has not run, or, if the script itself failed, up to there.
    #[error("refused: {0:?}")]
    Refused(Refusal),
}

/// What a server says no with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A replica, or a master that was one a moment ago.
    ReadOnly,
    /// It reads its data from disk.
    Loading,
    /// A replica without its master.
    MasterDown,
    /// The cluster has lost part of its slots, and is told to stop then.
    ClusterDown,
    /// Nobody in the cluster has this slot.
    Unserved,
    /// Its memory is full.
    OutOfMemory,
    /// It can't write to disk, or has too few replicas, and is told to refuse then.
    CannotWrite,
    /// Somebody else's script does not end.
    Busy,
    /// It wants a password, or another one.
    NoAuth,
    /// The user may not do this.
    NoPermission,
    /// Some of the keys are on their way to another node.
    TryAgain,
    /// Anything else, mostly an error of the script.
    Other,
}

/// What a server has said.
#[derive(Debug)]
pub(super) enum Reply {
    Answer(Value),
    /// It does not have the script.
    NoScript,
    /// The slot is somewhere else, for good.
    Moved(String),
    /// The slot is moving, and this key is there already.
    Ask(String),
    Refused(Refusal),
}

/// What an answer means for the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is in order.
    Sound,
    /// Something was wrong; enough of this opens the breaker.
    Faulty,
    /// It can't decide anything now.
    Down,
}

impl Fault {
    /// Whether it may have run in spite of this.
    #[must_use]
    pub fn may_have_run(self) -> bool {
        match self {
            Self::Timeout | Self::Lost | Self::Garbled => true,
            // A script that fails has done what came before.
            Self::Refused(refusal) => refusal == Refusal::Other,
            Self::Overloaded | Self::Down => false,
        }
    }

    /// The value of a metric's label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::Garbled => "garbled",
            Self::Overloaded => "overloaded",
            Self::Down => "down",
            Self::Refused(refusal) => refusal.label(),
        }
    }

    /// Whether the shard is in order in spite of it.
    pub(super) fn is_sound(self) -> bool {
        self.standing() == Standing::Sound
    }

    /// What it means for the shard.
    pub(super) fn standing(self) -> Standing {
        match self {
            Self::Timeout | Self::Lost | Self::Garbled => Standing::Faulty,
            Self::Overloaded | Self::Down => Standing::Sound,
            Self::Refused(refusal) => refusal.standing(),
        }
    }
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Self::Garbled,
            _ => Self::Lost,
        }
    }
}

impl Refusal {
    /// Every one.
    pub const ALL: [Self; 12] = [
        Self::ReadOnly,
        Self::Loading,
        Self::MasterDown,
        Self::ClusterDown,
        Self::Unserved,
        Self::OutOfMemory,
        Self::CannotWrite,
        Self::Busy,
        Self::NoAuth,
        Self::NoPermission,
        Self::TryAgain,
        Self::Other,
    ];

    /// The value of a metric's label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::ReadOnly => "readonly",
            Self::Loading => "loading",
            Self::MasterDown => "masterdown",
            Self::ClusterDown => "clusterdown",
            Self::Unserved => "unserved",
            Self::OutOfMemory => "oom",
            Self::CannotWrite => "cannot_write",
            Self::Busy => "busy",
            Self::NoAuth => "noauth",
            Self::NoPermission => "noperm",
            Self::TryAgain => "tryagain",
            Self::Other => "error",
        }
    }

    fn standing(self) -> Standing {
        match self {
            Self::ReadOnly | Self::Loading | Self::MasterDown | Self::ClusterDown => Standing::Down,
            Self::OutOfMemory | Self::CannotWrite | Self::Busy | Self::NoAuth | Self::NoPermission => Standing::Faulty,
            // It answers. What is wrong is this slot, key or script, and others need not suffer for it.
            Self::Unserved | Self::TryAgain | Self::Other => Standing::Sound,
        }
    }

    fn of_code(code: &str) -> Option<Self> {
        Some(match code {
            "READONLY" => Self::ReadOnly,
            "LOADING" => Self::Loading,
            "MASTERDOWN" => Self::MasterDown,
            "CLUSTERDOWN" => Self::ClusterDown,
            "OOM" => Self::OutOfMemory,
            "MISCONF" | "NOREPLICAS" => Self::CannotWrite,
            "BUSY" => Self::Busy,
            "NOAUTH" | "WRONGPASS" => Self::NoAuth,
            "NOPERM" => Self::NoPermission,
            "TRYAGAIN" => Self::TryAgain,
            _ => return None,
        })
    }

    /// Before version 7, an error inside a script is an `ERR` whose text has the code somewhere, behind a dash.
    fn of_text(text: &str) -> Option<Self> {
        text.split_ascii_whitespace().filter_map(|word| word.strip_prefix('-')).find_map(Self::of_code)
    }
}

impl Reply {
    /// Reads a server's answer.
    pub(super) fn of(value: Value) -> Self {
        match value {
            Value::ServerError(error) => Self::of_error(&error),
            answer => Self::Answer(answer),
        }
    }

    fn of_error(error: &ServerError) -> Self {
        let text = error.details().unwrap_or_default();
        // `MOVED 3999 127.0.0.1:6381`; the slot is known.
        let node = || text.split_ascii_whitespace().nth(1).unwrap_or_default().to_owned();
        match error.code() {
            "NOSCRIPT" => Self::NoScript,
            "MOVED" => Self::Moved(node()),
            "ASK" => Self::Ask(node()),
            "CLUSTERDOWN" if text.contains("slot not served") => Self::Refused(Refusal::Unserved),
            code => {
                let refusal = Refusal::of_code(code).or_else(|| Refusal::of_text(text));
                Self::Refused(refusal.unwrap_or(Refusal::Other))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Reply {
        Reply::of(redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap())
    }

    #[test]
    fn errors_are_told_apart() {
        for (line, refusal, standing) in [
            ("READONLY You can't write against a read only replica.", Refusal::ReadOnly, Standing::Down),
            ("LOADING Redis is loading the dataset in memory", Refusal::Loading, Standing::Down),
            ("MASTERDOWN Link with MASTER is down", Refusal::MasterDown, Standing::Down),
            ("CLUSTERDOWN The cluster is down", Refusal::ClusterDown, Standing::Down),
            ("CLUSTERDOWN Hash slot not served", Refusal::Unserved, Standing::Sound),
            ("OOM command not allowed when used memory > 'maxmemory'.", Refusal::OutOfMemory, Standing::Faulty),
            ("MISCONF Redis is configured to save RDB snapshots", Refusal::CannotWrite, Standing::Faulty),
            ("NOREPLICAS Not enough good replicas to write.", Refusal::CannotWrite, Standing::Faulty),
            ("BUSY Redis is busy running a script.", Refusal::Busy, Standing::Faulty),
            ("NOAUTH Authentication required.", Refusal::NoAuth, Standing::Faulty),
            ("WRONGPASS invalid username-password pair", Refusal::NoAuth, Standing::Faulty),
            ("NOPERM this user has no permissions", Refusal::NoPermission, Standing::Faulty),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Refusal::TryAgain, Standing::Sound),
            ("WRONGTYPE Operation against a key", Refusal::Other, Standing::Sound),
            (
                "ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed",
                Refusal::OutOfMemory,
                Standing::Faulty,
            ),
            ("ERR user_script:1: attempt to index a nil value", Refusal::Other, Standing::Sound),
        ] {
            let Reply::Refused(read) = read(line) else { panic!("{line}") };
            assert_eq!((read, read.standing()), (refusal, standing), "{line}");
        }
    }

    #[test]
    fn what_has_not_run_and_can_be_asked_elsewhere_is_known() {
        assert!(matches!(read("NOSCRIPT No matching script."), Reply::NoScript));
        assert!(matches!(read("MOVED 3999 127.0.0.1:6381"), Reply::Moved(to) if to == "127.0.0.1:6381"));
        assert!(matches!(read("ASK 3999 [::1]:6381"), Reply::Ask(to) if to == "[::1]:6381"));
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::BTreeSet<_> = Refusal::ALL.map(Refusal::label).into();
        assert_eq!(labels.len(), Refusal::ALL.len());
    }
}
