//! Whether a client is still there: one that says nothing is asked, and one that does not answer has gone.

use std::cell::Cell;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};

use crate::clock::deadline::Deadline;

/// Pings a silent client.
pub(super) struct KeepAlive {
    pings: Option<PingPong>,
    intervals: Intervals,
    deadline: Deadline,
    asked: bool,
}

/// How long a client may say nothing until it is asked, and then until it has answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intervals {
    quiet: Duration,
    patience: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { quiet: Duration::from_secs(30), patience: Duration::from_secs(20) }
    }
}

impl KeepAlive {
    pub(super) fn new(pings: Option<PingPong>, intervals: Intervals) -> Self {
        let deadline = Deadline::new();
        deadline.arm(intervals.quiet);
        Self { pings, intervals, deadline, asked: false }
    }

    /// Ready when the client has not answered; `heard` is set by everything that comes.
    pub(super) fn poll_dead(&mut self, heard: &Cell<bool>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pings) = &mut self.pings else { return Poll::Pending };
        while self.deadline.poll_due(cx).is_ready() {
            let is_alive = heard.take();
            if self.asked && !is_alive {
                self.pings = None;
                return Poll::Ready(());
            }
            self.asked = !is_alive;
            if self.asked {
                // One that is under way still is as good as another.
                let _ = pings.send_ping(Ping::opaque());
            }
            self.deadline.arm(if self.asked { self.intervals.patience } else { self.intervals.quiet });
        }
        if self.asked {
            // Takes the answer in, so that the next question can be asked. That it has come is a sign of life like any other.
            let _ = pings.poll_pong(cx);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::deadline;
    use std::rc::Rc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    const SHORT: Intervals = Intervals { quiet: Duration::from_millis(60), patience: Duration::from_millis(120) };
    const PING: u8 = 6;

    /// A client that says hello, and then answers pings or doesn't; every frame of its own is noted as heard.
    async fn client(mut stream: DuplexStream, answers: bool, pings: Rc<Cell<u32>>, heard: Rc<Cell<bool>>) {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            stream.read_exact(&mut payload).await.unwrap();
            if head[3] == PING && head[4] == 0 {
                pings.set(pings.get() + 1);
                if answers {
                    stream.write_all(&[&[0, 0, 8, PING, 1, 0, 0, 0, 0], payload.as_slice()].concat()).await.unwrap();
                    heard.set(true);
                }
            }
        }
    }

    /// Whether a client is taken for dead within ten times its patience, and how often it was asked.
    fn is_dead(answers: bool) -> (bool, u32) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(deadline::run());
            let (ours, theirs) = tokio::io::duplex(4 << 10);
            let (pings, heard) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
            tokio::task::spawn_local(client(theirs, answers, Rc::clone(&pings), Rc::clone(&heard)));
            let mut connection: h2::server::Connection<_, bytes::Bytes> = h2::server::handshake(ours).await.unwrap();
            let mut keep_alive = KeepAlive::new(connection.ping_pong(), SHORT);
            let served = std::future::poll_fn(|cx| {
                let dead = keep_alive.poll_dead(&heard, cx);
                assert!(connection.poll_accept(cx).is_pending());
                dead
            });
            let dead = tokio::time::timeout(SHORT.patience * 10, served).await.is_ok();
            (dead, pings.get())
        })
    }

    #[test]
    fn a_client_that_does_not_answer_is_asked_once_and_has_gone() {
        assert_eq!(is_dead(false), (true, 1));
    }

    #[test]
    fn a_client_that_answers_is_asked_again_and_again_and_stays() {
        let (dead, pings) = is_dead(true);
        assert!(!dead && pings > 1, "{pings} pings");
    }
}
