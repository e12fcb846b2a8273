//! Where frames begin and end, told from their headers alone.

/// What a frame's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whether it is the last frame of its message.
    pub is_final: bool,
    /// What it is: 0 continues a message, 1 is text, 2 is binary, 8 to 15 are control frames.
    pub opcode: u8,
    /// Whether its payload is masked, as every client's must be.
    pub is_masked: bool,
    /// Bytes of payload. Above 2^63 it is no valid length.
    pub payload: u64,
    /// Bytes of the header itself.
    pub length: u8,
}

/// Follows a stream of frames in pieces of any size.
#[derive(Debug, Default, Clone, Copy)]
pub struct Frames {
    /// A header that has come in part.
    partial: [u8; MAX_HEADER],
    have: u8,
    /// Payload of the current frame that is still to come.
    left: u64,
    closed: bool,
}

impl Header {
    /// Whether it is a control frame.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.opcode & CONTROL != 0
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_length(&self) -> u64 {
        self.payload.saturating_add(u64::from(self.length))
    }

    /// The header at the front of `bytes`; `None` while it is incomplete.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let [first, second, rest @ ..] = bytes else { return None };
        let (payload, extended) = match second & LENGTH {
            126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 2),
            127 => (u64::from_be_bytes(*rest.first_chunk()?), 8),
            length => (u64::from(length), 0),
        };
        let is_masked = second & MASKED != 0;
        let length = 2 + extended + if is_masked { 4 } else { 0 };
        if bytes.len() < usize::from(length) {
            return None;
        }
        Some(Self { is_final: first & FIN != 0, opcode: first & OPCODE, is_masked, payload, length })
    }
}

impl Frames {
    /// Takes in payload, or bytes of a header, from the front of `bytes`, which must not be empty: how many, and the header if it is
    /// complete now.
    pub fn next(&mut self, bytes: &[u8]) -> (usize, Option<Header>) {
        if self.left > 0 {
            let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            self.left -= u64::try_from(taken).unwrap_or(self.left);
            return (taken, None);
        }
        let before = usize::from(self.have);
        let found = if before == 0 { Header::parse(bytes) } else { None };
        let found = found.or_else(|| self.complete(bytes));
        let Some(header) = found else {
            return (usize::from(self.have).saturating_sub(before), None);
        };
        (self.have, self.left) = (0, header.payload);
        self.closed |= header.opcode == CLOSE;
        (usize::from(header.length).saturating_sub(before), Some(header))
    }

    /// Takes in all of `bytes`.
    pub fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (taken, _) = self.next(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
        }
    }

    /// Whether the last byte taken in was the last of a frame, so that another may follow.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.have == 0 && self.left == 0
    }

    /// Whether a Close frame has come, behind which nothing may follow.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        self.closed
    }

    /// At a boundary, behind a Close frame or not.
    pub(super) fn behind_a_frame(closed: bool) -> Self {
        Self { closed, ..Self::default() }
    }

    /// Forgets a header that is incomplete, for it to be taken in again with more: how many bytes of it.
    pub(super) fn take_back(&mut self) -> usize {
        usize::from(std::mem::take(&mut self.have))
    }

    /// Adds to the incomplete header until it is complete or there is nothing more.
    fn complete(&mut self, bytes: &[u8]) -> Option<Header> {
        for byte in bytes {
            let slot = self.partial.get_mut(usize::from(self.have))?;
            *slot = *byte;
            self.have += 1;
            if let Some(header) = self.partial.get(..usize::from(self.have)).and_then(Header::parse) {
                return Some(header);
            }
        }
        None
    }
}

const FIN: u8 = 0x80;
const OPCODE: u8 = 0x0f;
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
const CLOSE: u8 = 8;
/// Two bytes, a length of eight, a mask of four.
const MAX_HEADER: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame to be written: flags and opcode, mask, length field's width, payload.
    #[derive(Debug, Clone)]
    struct Written {
        first: u8,
        mask: Option<[u8; 4]>,
        width: u8,
        payload: usize,
    }

    impl Written {
        fn width(&self) -> u8 {
            let least = match self.payload {
                0..=125 => 0,
                126..=0xffff => 2,
                _ => 8,
            };
            self.width.max(least)
        }

        fn bytes(&self) -> Vec<u8> {
            let masked = if self.mask.is_some() { 0x80 } else { 0 };
            let mut bytes = vec![self.first];
            match self.width() {
                0 => bytes.push(masked | u8::try_from(self.payload).unwrap()),
                2 => {
                    bytes.push(masked | 126);
                    bytes.extend(u16::try_from(self.payload).unwrap().to_be_bytes());
                }
                _ => {
                    bytes.push(masked | 127);
                    bytes.extend((self.payload as u64).to_be_bytes());
                }
            }
            bytes.extend(self.mask.into_iter().flatten());
            bytes.extend((0..self.payload).map(|at| at as u8));
            bytes
        }

        fn header(&self) -> Header {
            Header {
                is_final: self.first >= 0x80,
                opcode: self.first % 16,
                is_masked: self.mask.is_some(),
                payload: self.payload as u64,
                length: 2 + self.width() + if self.mask.is_some() { 4 } else { 0 },
            }
        }
    }

    fn written() -> impl Strategy<Value = Written> {
        let payload = prop_oneof![0_usize..4, 120_usize..132, 0_usize..2000, 65_530_usize..65_540];
        (any::<u8>(), any::<Option<[u8; 4]>>(), prop_oneof![Just(0_u8), Just(2), Just(8)], payload)
            .prop_map(|(first, mask, width, payload)| Written { first, mask, width, payload })
    }

    type Headers = Vec<(usize, Header)>;

    /// Every header with the place of the byte behind it, and after each piece whether it ended at a boundary.
    fn read(stream: &[u8], cuts: &[usize]) -> (Headers, Vec<(usize, bool)>) {
        let (mut frames, mut headers, mut edges, mut at) = (Frames::default(), Vec::new(), Vec::new(), 0);
        for cut in cuts.iter().copied().chain([stream.len()]) {
            while at < cut {
                let (taken, header) = frames.next(&stream[at..cut]);
                assert!(taken > 0 || header.is_some(), "no progress at {at}");
                at += taken;
                headers.extend(header.map(|header| (at, header)));
            }
            edges.push((at, frames.at_boundary()));
        }
        (headers, edges)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn frames_are_found_however_the_stream_is_cut(
            written in prop::collection::vec(written(), 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
            bytewise in any::<bool>(),
        ) {
            let (mut stream, mut expected, mut ends) = (Vec::new(), Vec::new(), vec![0]);
            for frame in &written {
                let header = frame.header();
                expected.push((stream.len() + usize::from(header.length), header));
                stream.extend(frame.bytes());
                ends.push(stream.len());
            }
            let mut cuts: Vec<usize> = if bytewise && stream.len() < 5000 {
                (0..stream.len()).collect()
            } else {
                cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect()
            };
            cuts.sort_unstable();
            let (headers, edges) = read(&stream, &cuts);
            prop_assert_eq!(headers, expected);
            for (at, boundary) in edges {
                prop_assert_eq!(boundary, ends.contains(&at), "at {}", at);
            }
        }

        #[test]
        fn passing_is_reading_without_looking(stream in prop::collection::vec(any::<u8>(), 0..3000), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(stream.len() + 1);
            let (mut whole, mut pieces) = (Frames::default(), Frames::default());
            whole.pass(&stream);
            pieces.pass(&stream[..cut]);
            pieces.pass(&stream[cut..]);
            prop_assert_eq!((whole.at_boundary(), whole.left), (pieces.at_boundary(), pieces.left));
            prop_assert_eq!(whole.has_closed(), pieces.has_closed());
        }
    }

    #[test]
    fn a_length_beyond_all_reason_is_told_and_never_ends() {
        let mut frames = Frames::default();
        let (taken, header) = frames.next(&[0x82, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]);
        assert_eq!((taken, header.unwrap().payload), (10, u64::MAX));
        frames.pass(&[0; 1000]);
        assert!(!frames.at_boundary());
    }
}
