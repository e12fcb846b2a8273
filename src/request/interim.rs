//! Interim responses (1xx) on their way to an HTTP/1.1 client.
//!
//! hyper can't send them, so they go around it: the proxy leaves them here, and the socket, which stands below hyper, writes them in front of
//! hyper's next bytes. In front of the right ones: while hyper still has bytes of the response before, nothing may come between, and once
//! the final response has joined those there is no place left, and they are dropped.

use std::cell::{Cell, RefCell};
use std::io;
use std::task::{Poll, ready};

use bytes::{Buf, BytesMut};

/// See the module.
#[derive(Debug, Default)]
pub struct Interim {
    /// Whether there are any: all that a request without them looks at.
    waiting: Cell<bool>,
    heads: RefCell<BytesMut>,
    /// The final response is hyper's.
    answered: Cell<bool>,
}

/// Where hyper stands in what it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// All that it has was written, or nothing of it.
    BetweenMessages,
    /// It has begun and not ended.
    WithinMessage,
}

impl Interim {
    /// Leaves a head for the socket. A client that takes none of them gets no more of them than a bound: they are hints.
    pub fn send(&self, head: &[u8]) {
        let mut heads = self.heads.borrow_mut();
        if heads.len() + head.len() <= MAX_WAITING {
            heads.extend_from_slice(head);
            self.waiting.set(true);
        }
    }

    /// Whether a head waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting.get()
    }

    /// The final response is about to be given to hyper.
    pub fn answer(&self) {
        if self.waiting.get() {
            self.answered.set(true);
        }
    }

    /// Writes what waits, as far as it goes; ready when hyper may write.
    ///
    /// # Errors
    /// What `write` says.
    pub fn poll_write(&self, writer: Writer, mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>) -> Poll<io::Result<()>> {
        let mut heads = self.heads.borrow_mut();
        if writer == Writer::WithinMessage {
            if !self.answered.get() {
                return Poll::Ready(Ok(()));
            }
            heads.clear();
        }
        while !heads.is_empty() {
            match ready!(write(&heads))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => heads.advance(written),
            }
        }
        // Nothing is kept for the next time, which most connections never have.
        *heads = BytesMut::new();
        self.waiting.set(false);
        self.answered.set(false);
        Poll::Ready(Ok(()))
    }
}

/// What may wait for a client that does not read.
const MAX_WAITING: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written by a socket that takes `room` bytes in all, seven at a time.
    fn written(interim: &Interim, writer: Writer, mut room: usize) -> (bool, Vec<u8>) {
        let mut out = Vec::new();
        let polled = interim.poll_write(writer, |bytes| {
            let taken = bytes.len().min(room).min(7);
            if taken == 0 {
                return Poll::Pending;
            }
            room -= taken;
            out.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        });
        (polled.is_ready(), out)
    }

    #[test]
    fn heads_go_out_whole_and_in_order_in_front_of_what_follows() {
        let interim = Interim::default();
        interim.send(b"first, ");
        interim.send(b"second.");
        interim.answer();
        assert_eq!(written(&interim, Writer::BetweenMessages, 9), (false, b"first, se".to_vec()));
        assert_eq!(written(&interim, Writer::BetweenMessages, 9), (true, b"cond.".to_vec()));
        assert!(!interim.is_waiting());
    }

    #[test]
    fn nothing_comes_between_the_bytes_of_another_message() {
        let interim = Interim::default();
        interim.send(b"head");
        assert_eq!(written(&interim, Writer::WithinMessage, 9), (true, Vec::new()));
        assert_eq!(written(&interim, Writer::BetweenMessages, 9), (true, b"head".to_vec()), "when that has ended");
    }

    #[test]
    fn behind_the_final_response_there_is_no_place() {
        let interim = Interim::default();
        interim.send(b"head");
        interim.answer();
        assert_eq!(written(&interim, Writer::WithinMessage, 9), (true, Vec::new()));
        assert!(!interim.is_waiting());
        interim.send(b"next");
        assert_eq!(written(&interim, Writer::BetweenMessages, 9), (true, b"next".to_vec()));
    }

    #[test]
    fn who_takes_none_is_owed_no_more_than_a_bound() {
        let interim = Interim::default();
        (0..100).for_each(|_| interim.send(&[b'x'; 1000]));
        assert_eq!(written(&interim, Writer::BetweenMessages, usize::MAX).1.len(), 32_000);
    }
}
