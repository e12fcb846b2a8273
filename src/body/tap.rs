//! Who looks on while a client's body passes.

use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

/// Looks on. Dropped before it is told of the end, if the body doesn't come to its end.
pub trait Tap: std::fmt::Debug {
    /// A piece has passed.
    fn passed(&mut self, data: &Bytes);

    /// That was all.
    fn ended(&mut self);
}

/// Copies a body, as long as it isn't too large.
#[derive(Debug)]
pub struct BodyCopy {
    /// Bytes of our own: a piece of the client's body would keep the whole buffer it came in.
    bytes: BytesMut,
    max: usize,
    to: Option<oneshot::Sender<Result<Bytes, CopyTooLarge>>>,
}

/// The body was larger than a copy may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyTooLarge;

impl BodyCopy {
    /// At most `max` bytes. The receiver gets nothing if the body doesn't come to its end.
    #[must_use]
    pub fn new(max: usize) -> (Self, oneshot::Receiver<Result<Bytes, CopyTooLarge>>) {
        let (to, copy) = oneshot::channel();
        (Self { bytes: BytesMut::new(), max, to: Some(to) }, copy)
    }

    fn hand_over(&mut self, copied: impl FnOnce(&mut BytesMut) -> Result<Bytes, CopyTooLarge>) {
        if let Some(to) = self.to.take() {
            // Whoever doesn't want it any more is gone.
            let _ = to.send(copied(&mut self.bytes));
        }
    }
}

impl Tap for BodyCopy {
    fn passed(&mut self, data: &Bytes) {
        if self.to.is_none() {
            return;
        }
        if self.bytes.len() + data.len() > self.max {
            self.bytes = BytesMut::new();
            return self.hand_over(|_| Err(CopyTooLarge));
        }
        self.bytes.extend_from_slice(data);
    }

    fn ended(&mut self) {
        self.hand_over(|bytes| Ok(std::mem::take(bytes).freeze()));
    }
}
