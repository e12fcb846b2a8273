//! How many answers in a row change an endpoint's health.

use crate::snapshot::HealthCheck;

/// Answers in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::upstream) struct Streak {
    good: u32,
    bad: u32,
}

/// An endpoint's health has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Change {
    /// After so many good answers.
    Healthy { after: u32 },
    /// After so many bad ones.
    Unhealthy { after: u32 },
}

impl Streak {
    /// Takes note of an answer; what it changes.
    pub(in crate::upstream) fn note(&mut self, well: bool, is_healthy: bool, check: &HealthCheck) -> Option<Change> {
        *self = if well {
            Self { good: self.good.saturating_add(1), bad: 0 }
        } else {
            Self { good: 0, bad: self.bad.saturating_add(1) }
        };
        match is_healthy {
            true if self.bad >= check.unhealthy_after => Some(Change::Unhealthy { after: self.bad }),
            false if self.good >= check.healthy_after => Some(Change::Healthy { after: self.good }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Probe;
    use std::time::Duration;

    /// What a sequence of answers comes to, beginning in health: `+` and `-` are answers, `U` and `H` changes.
    fn story(answers: &str, healthy_after: u32, unhealthy_after: u32) -> String {
        let second = Duration::from_secs(1);
        let check = HealthCheck { probe: Probe::Tcp, interval: second, timeout: second, healthy_after, unhealthy_after };
        let (mut streak, mut healthy, mut story) = (Streak::default(), true, String::new());
        for answer in answers.chars() {
            story.push(answer);
            match streak.note(answer == '+', healthy, &check) {
                Some(Change::Unhealthy { .. }) => (healthy, story) = (false, story + "U"),
                Some(Change::Healthy { .. }) => (healthy, story) = (true, story + "H"),
                None => {}
            }
        }
        story
    }

    #[test]
    fn thresholds_are_exact_and_each_change_is_said_once() {
        for (answers, healthy_after, unhealthy_after, expected) in [
            ("---", 2, 3, "---U"),
            ("--+---", 2, 3, "--+---U"),
            ("------", 2, 3, "---U---"),
            ("---+-++", 2, 3, "---U+-++H"),
            ("-+-+-+-+", 2, 3, "-+-+-+-+"),
            ("-+-+", 1, 1, "-U+H-U+H"),
            ("++++", 2, 3, "++++"),
        ] {
            assert_eq!(story(answers, healthy_after, unhealthy_after), expected);
        }
    }
}
