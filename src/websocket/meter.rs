//! What a client may send over one WebSocket.
//!
//! Decided at a frame's header, before any of it has passed: a frame is let through whole or not at all. A message is counted at its first
//! frame, its size over all of them; bytes are whole frames as they come over the wire, compressed if they are. Control frames
//! are no messages, and RFC 6455 bounds them to 125 bytes.

use super::close::Close;
use super::frames::{Frames, Header};
use crate::clock::Nanos;
use crate::limit::{Quota, gcra};

/// The limits of a route's WebSockets; each connection is counted by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Messages.
    pub messages: Option<Quota>,
    /// Bytes, headers of frames included.
    pub bytes: Option<Quota>,
    /// The largest message in bytes of payload.
    pub max_message: Option<u64>,
}

/// Why a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Too many messages.
    Messages,
    /// Too many bytes.
    Bytes,
    /// Too large a message.
    MaxMessage,
    /// Not what RFC 6455 lets a client send, so nothing can be counted.
    Protocol,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Messages, Self::Bytes, Self::MaxMessage, Self::Protocol];

    /// How both sides are told.
    #[must_use]
    pub fn close(self) -> Close {
        match self {
            Self::Messages => Close { code: 1008, reason: "too many messages" },
            Self::Bytes => Close { code: 1008, reason: "too many bytes" },
            Self::MaxMessage => Close { code: 1009, reason: "message is larger than allowed" },
            Self::Protocol => Close { code: 1002, reason: "not a valid frame" },
        }
    }

    /// For the log, and a metric's label.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Bytes => "bytes",
            Self::MaxMessage => "max_message",
            Self::Protocol => "protocol",
        }
    }
}

/// Holds one client's frames against limits.
#[derive(Debug)]
pub struct Meter {
    limits: Limits,
    frames: Frames,
    /// A header that has come in part: not passed on before it has been judged.
    held: Vec<u8>,
    messages_tat: u64,
    bytes_tat: u64,
    /// Payload of the message that has begun and not ended.
    message: Option<u64>,
}

impl Meter {
    /// Nothing sent yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, frames: Frames::default(), held: Vec::new(), messages_tat: 0, bytes_tat: 0, message: None }
    }

    /// Takes in what has come: how much of it may pass, and why nothing more may. What begins with bytes that were
    /// [held back](Self::take_held) is to be given with those in front.
    pub fn admit(&mut self, bytes: &[u8], now: Nanos) -> (usize, Option<Refusal>) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let before = self.frames.has_closed();
            let (taken, header) = self.frames.next(rest);
            if let Some(header) = header
                && let Err(refusal) = self.judge(&header, now)
            {
                self.frames = Frames::behind_a_frame(before);
                return (at, Some(refusal));
            }
            at += taken;
        }
        let admitted = at.saturating_sub(self.frames.take_back());
        self.held.extend_from_slice(bytes.get(admitted..).unwrap_or_default());
        (admitted, None)
    }

    /// What was held back of the last bytes, if anything: the beginning of a header.
    #[must_use]
    pub fn take_held(&mut self) -> Option<Vec<u8>> {
        (!self.held.is_empty()).then(|| std::mem::take(&mut self.held))
    }

    /// Whether all that was let through ends with a frame.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.frames.at_boundary()
    }

    /// Whether a Close frame was let through.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        self.frames.has_closed()
    }

    fn judge(&mut self, header: &Header, now: Nanos) -> Result<(), Refusal> {
        let is_control = header.is_control();
        let in_order = match (is_control, header.opcode == CONTINUATION) {
            (true, _) => header.is_final && header.payload <= MAX_CONTROL,
            (false, continues) => continues == self.message.is_some(),
        };
        if !in_order || !header.is_masked || header.payload > MAX_PAYLOAD {
            return Err(Refusal::Protocol);
        }
        if !is_control {
            let size = self.message.unwrap_or(0).saturating_add(header.payload);
            if self.limits.max_message.is_some_and(|max| size > max) {
                return Err(Refusal::MaxMessage);
            }
            if self.message.is_none() && !take(self.limits.messages.as_ref(), &mut self.messages_tat, now, 1) {
                return Err(Refusal::Messages);
            }
            self.message = (!header.is_final).then_some(size);
        }
        if take(self.limits.bytes.as_ref(), &mut self.bytes_tat, now, header.frame_length()) {
            Ok(())
        } else {
            Err(Refusal::Bytes)
        }
    }
}

/// Takes cells from a quota, if there is one and it has them.
fn take(quota: Option<&Quota>, tat: &mut u64, now: Nanos, cost: u64) -> bool {
    let Some(quota) = quota else { return true };
    let step = gcra::decide(quota, *tat, now, cost);
    *tat = step.state;
    step.outcome.verdict.conforms()
}

const CONTINUATION: u8 = 0;
/// RFC 6455 section 5.5.
const MAX_CONTROL: u64 = 125;
/// RFC 6455 section 5.2: the highest bit of a length is 0.
const MAX_PAYLOAD: u64 = u64::MAX >> 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::Algorithm;
    use proptest::prelude::*;
    use std::time::Duration;

    /// A client's frame with zeroes in it: its mask is zero.
    fn frame(is_final: bool, opcode: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![opcode | if is_final { 0x80 } else { 0 }];
        match payload {
            0..=125 => bytes.push(0x80 | u8::try_from(payload).unwrap()),
            126..=0xffff => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(payload).unwrap().to_be_bytes());
            }
            _ => {
                bytes.push(0x80 | 127);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        bytes.extend(vec![0; 4 + payload]);
        bytes
    }

    fn quota(count: u64, burst: u64) -> Option<Quota> {
        Some(Quota::new(count, Duration::from_secs(1), Some(burst), Algorithm::Gcra).unwrap())
    }

    /// Gives each piece to a meter with what it held back; what passed, and why it stopped.
    fn pass(limits: Limits, pieces: &[&[u8]], now: Nanos) -> (Vec<u8>, Option<Refusal>) {
        let (mut meter, mut passed) = (Meter::new(limits), Vec::new());
        for piece in pieces {
            let mut given = meter.take_held().unwrap_or_default();
            given.extend_from_slice(piece);
            let (admitted, refusal) = meter.admit(&given, now);
            passed.extend_from_slice(&given[..admitted]);
            if refusal.is_some() {
                return (passed, refusal);
            }
            assert!(meter.held.len() < 14, "only the beginning of a header is held back");
        }
        (passed, None)
    }

    #[test]
    fn messages_are_counted_once_and_control_frames_are_none() {
        let limits = Limits { messages: quota(3, 3), ..Limits::default() };
        let mut sent = Vec::new();
        for _ in 0..3 {
            sent.extend(frame(false, 1, 5));
            sent.extend(frame(true, 9, 125));
            sent.extend(frame(false, 0, 0));
            sent.extend(frame(true, 0, 300));
            sent.extend(frame(true, 10, 0));
        }
        let fourth = frame(true, 2, 0);
        assert_eq!(pass(limits, &[&sent, &fourth], 0), (sent.clone(), Some(Refusal::Messages)));
        let mut meter = Meter::new(limits);
        assert_eq!(meter.admit(&sent, 0), (sent.len(), None));
        assert_eq!(meter.admit(&fourth, SECOND / 3 - 1), (0, Some(Refusal::Messages)));
        let mut meter = Meter::new(limits);
        assert_eq!(meter.admit(&sent, 0), (sent.len(), None));
        assert_eq!(meter.admit(&fourth, SECOND.div_ceil(3)), (fourth.len(), None));
    }

    #[test]
    fn a_message_is_as_large_as_all_its_frames() {
        let limits = Limits { max_message: Some(1000), ..Limits::default() };
        for (sizes, fits) in [
            (&[1000][..], true),
            (&[1001], false),
            (&[500, 500], true),
            (&[500, 501], false),
            (&[0, 999, 1, 0], true),
            (&[1000, 0, 1], false),
        ] {
            let last = sizes.len() - 1;
            let frames: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(i, size)| frame(i == last, if i == 0 { 2 } else { 0 }, *size)).collect();
            let sent = frames.concat();
            let (passed, refusal) = pass(limits, &[&sent], 0);
            if fits {
                assert_eq!((passed.len(), refusal), (sent.len(), None), "{sizes:?}");
            } else {
                assert_eq!((passed, refusal), (frames[..last].concat(), Some(Refusal::MaxMessage)), "{sizes:?}");
            }
        }
    }

    #[test]
    fn bytes_are_whole_frames() {
        let limits = Limits { bytes: quota(100, 132), ..Limits::default() };
        // 6 + 119 and 6 + 1 are 132.
        let sent = [frame(true, 1, 119), frame(true, 9, 1)].concat();
        assert_eq!(pass(limits, &[&sent], 0), (sent.clone(), None));
        let more = [sent.clone(), frame(true, 10, 0)].concat();
        assert_eq!(pass(limits, &[&more], 0), (sent, Some(Refusal::Bytes)));
        assert_eq!(pass(limits, &[&frame(true, 2, 132)], 0), (vec![], Some(Refusal::Bytes)), "larger than the burst");
    }

    #[test]
    fn what_is_no_frame_ends_the_connection() {
        let unmasked = vec![0x81, 0x00];
        let endless = [&[0x82, 0xff][..], &[0xff; 8], &[0; 4]].concat();
        for (what, sent) in [
            ("a continuation of nothing", frame(true, 0, 1)),
            ("a long ping", frame(true, 9, 126)),
            ("half a ping", frame(false, 9, 0)),
            ("an unmasked frame", unmasked),
            ("a length of 64 bits", endless),
        ] {
            assert_eq!(pass(Limits::default(), &[&sent], 0), (vec![], Some(Refusal::Protocol)), "{what}");
        }
        let begun = frame(false, 1, 1);
        let sent = [begun.clone(), frame(true, 2, 1)].concat();
        assert_eq!(pass(Limits::default(), &[&sent], 0), (begun, Some(Refusal::Protocol)), "a message within a message");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// The reference looks at whole frames in a list.
        #[test]
        fn the_verdict_does_not_depend_on_how_the_stream_is_cut(
            sent in prop::collection::vec((any::<bool>(), 0_u8..12, prop_oneof![0_usize..10, 100_usize..140]), 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
            max_message in prop::option::of(0_u64..300),
            messages in prop::option::of(1_u64..8),
            bytes in prop::option::of(1_u64..1500),
        ) {
            let limits = Limits {
                max_message,
                messages: messages.and_then(|n| quota(n, n)),
                bytes: bytes.and_then(|n| quota(n, n)),
            };
            let (mut stream, mut expected, mut refusal) = (Vec::new(), Vec::new(), None);
            let (mut begun, mut size, mut counted, mut total) = (false, 0, 0, 0);
            for (is_final, opcode, payload) in &sent {
                let whole = frame(*is_final, *opcode, *payload);
                stream.extend_from_slice(&whole);
                if refusal.is_some() {
                    continue;
                }
                let control = *opcode >= 8;
                refusal = if control && (!is_final || *payload > 125) || !control && (*opcode == 0) != begun {
                    Some(Refusal::Protocol)
                } else if !control && max_message.is_some_and(|max| if begun { size } else { 0 } + *payload as u64 > max) {
                    Some(Refusal::MaxMessage)
                } else if !control && !begun && messages.is_some_and(|most| counted == most) {
                    Some(Refusal::Messages)
                } else if bytes.is_some_and(|most| total + whole.len() as u64 > most) {
                    Some(Refusal::Bytes)
                } else {
                    None
                };
                if refusal.is_none() {
                    expected.extend_from_slice(&whole);
                    total += whole.len() as u64;
                    if !control {
                        counted += u64::from(!begun);
                        size = if begun { size } else { 0 } + *payload as u64;
                        begun = !is_final;
                    }
                }
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).chain([0, stream.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
            prop_assert_eq!(pass(limits, &pieces, 0), (expected, refusal));
        }
    }
}
