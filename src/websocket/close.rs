//! The frame that ends a WebSocket.

use bytes::{BufMut, Bytes, BytesMut};

/// Why the gateway ends a WebSocket, as RFC 6455 section 7.4.1 numbers it, and in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close {
    /// The code.
    pub code: u16,
    /// For whoever looks at the other end; at most 123 bytes.
    pub reason: &'static str,
}

/// Who a frame claims to be from: what a client sends is masked, what a server sends is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A client, with its mask.
    Client([u8; 4]),
    /// A server.
    Server,
}

impl Close {
    /// The process or the listener ends.
    pub const GOING_AWAY: Self = Self { code: 1001, reason: "going away" };
    /// Neither side has sent anything for too long.
    pub const IDLE: Self = Self { code: 1001, reason: "idle for too long" };

    /// The whole frame.
    #[must_use]
    pub fn frame(&self, sender: Sender) -> Bytes {
        let reason = self.reason.as_bytes().get(..MAX_REASON).unwrap_or(self.reason.as_bytes());
        let length = u8::try_from(2 + reason.len()).unwrap_or_default();
        let mut frame = BytesMut::with_capacity(8 + reason.len());
        frame.put_u8(FIN_CLOSE);
        match sender {
            Sender::Server => {
                frame.put_u8(length);
                frame.put_u16(self.code);
                frame.put_slice(reason);
            }
            Sender::Client(mask) => {
                frame.put_u8(MASKED | length);
                frame.put_slice(&mask);
                let payload = self.code.to_be_bytes().into_iter().chain(reason.iter().copied());
                frame.extend(payload.zip(mask.into_iter().cycle()).map(|(byte, mask)| byte ^ mask));
            }
        }
        frame.freeze()
    }
}

/// A last frame with opcode 8.
const FIN_CLOSE: u8 = 0x88;
const MASKED: u8 = 0x80;
/// A control frame's payload is at most 125 bytes, and the code takes two.
const MAX_REASON: usize = 123;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_frame_is_what_the_rfc_draws() {
        let close = Close { code: 1001, reason: "away" };
        assert_eq!(&*close.frame(Sender::Server), b"\x88\x06\x03\xe9away");
        assert_eq!(&*close.frame(Sender::Client([1, 2, 3, 4])), b"\x88\x86\x01\x02\x03\x04\x02\xebbs`{");
    }
}
