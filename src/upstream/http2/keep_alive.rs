//! Finds out that a peer is dead when it says nothing while it should.
//!
//! Not by a steady beat: gRPC servers count pings in a silence, and after three within five minutes of each other they end the connection
//! with all its streams (`too_many_pings`). So one ping goes out when streams have waited for a while without a word, and the next one of
//! the same silence only much later ([`INTERVALS`]).

use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};

use super::connection::Connection;

/// Watches one connection.
pub(super) struct KeepAlive {
    pings: Option<PingPong>,
    intervals: Intervals,
    /// A ping is on its way.
    asked: bool,
    /// Signs of life when the silence began.
    heard: u64,
}

impl KeepAlive {
    pub(super) fn new(pings: Option<PingPong>, intervals: Intervals) -> Self {
        Self { pings, intervals, asked: false, heard: 0 }
    }

    /// Ready when the peer has not answered.
    pub(super) fn poll_dead(&mut self, connection: &Connection, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pings) = &mut self.pings else { return Poll::Pending };
        let (silence, Intervals { quiet, patience, apart }) = (&connection.silence, self.intervals);
        if self.asked {
            match pings.poll_pong(cx) {
                Poll::Ready(Ok(_)) => {
                    self.asked = false;
                    self.heard = connection.heard();
                    silence.arm(apart);
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {}
            }
        }
        if !self.asked && !connection.is_busy() {
            silence.disarm();
            return Poll::Pending;
        }
        silence.arm_if_idle(quiet);
        while silence.poll_due(cx).is_ready() {
            if self.asked {
                connection.died();
                return Poll::Ready(());
            }
            let before = std::mem::replace(&mut self.heard, connection.heard());
            if before != self.heard {
                silence.arm(quiet);
            } else if pings.send_ping(Ping::opaque()).is_ok() {
                self.asked = true;
                silence.arm(patience);
                // So that the pong wakes this task.
                let _ = pings.poll_pong(cx);
            } else {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// How long what may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intervals {
    /// Streams wait and nothing is heard, until a ping.
    pub(super) quiet: Duration,
    /// Until its answer.
    pub(super) patience: Duration,
    /// Until the next ping of the same silence.
    pub(super) apart: Duration,
}

/// As often as clients are pinged and with as much patience; and gRPC servers take no offence at one ping in five minutes.
pub(super) const INTERVALS: Intervals =
    Intervals { quiet: Duration::from_secs(30), patience: Duration::from_secs(20), apart: Duration::from_secs(6 * 60) };
