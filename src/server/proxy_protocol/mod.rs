//! The PROXY protocol, versions 1 and 2: a header in front of a connection's first byte by which a load balancer says whom it
//! speaks for. Haproxy's `doc/proxy-protocol.txt` is the standard.
//!
//! Parsing is a function of the bytes so far, so that it makes no difference how they were cut. Both versions are bounded, version 1
//! by 107 bytes and version 2 by a few KiB, and version 2 is looked into only once it is whole: the work is linear. Whether a peer
//! may send such a header at all is not decided here.

mod v1;
mod v2;

use std::net::SocketAddr;

/// What the bytes so far have come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// More is needed.
    Incomplete,
    /// The header is complete.
    Complete {
        /// The address it names; `None` when it says that the socket's own is right, or names none that we understand.
        source: Option<SocketAddr>,
        /// Its bytes; what follows is the connection's.
        length: usize,
    },
}

/// Why there is no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeaderFault {
    /// The connection starts with something else.
    #[error("no PROXY protocol header")]
    Absent,
    /// A line of version 1 that the standard does not allow.
    #[error("an invalid PROXY protocol line")]
    Line,
    /// A header of version 2 that the standard does not allow, or a longer one than we take.
    #[error("an invalid PROXY protocol header")]
    Binary,
    /// The checksum is wrong.
    #[error("a PROXY protocol header with a wrong checksum")]
    Checksum,
}

/// Reads the header at the beginning of a connection. To be called again with more while it is [`Progress::Incomplete`].
///
/// # Errors
/// As soon as the bytes can't become a valid header.
pub(super) fn parse(seen: &[u8]) -> Result<Progress, HeaderFault> {
    if begins(seen, v1::PREFIX) {
        v1::parse(seen)
    } else if begins(seen, v2::SIGNATURE) {
        v2::parse(seen)
    } else {
        Err(HeaderFault::Absent)
    }
}

/// Whether the bytes are a beginning of `expected`, or the other way round.
fn begins(seen: &[u8], expected: &[u8]) -> bool {
    let compared = seen.len().min(expected.len());
    seen.get(..compared) == expected.get(..compared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_header_is_refused_at_its_first_wrong_byte() {
        assert_eq!(parse(b""), Ok(Progress::Incomplete));
        for text in [
            "GET / HTTP/1.1\r\n",
            "PRI * HTTP/2.0\r\n",
            "P\0",
            "proxy TCP4",
            "PROXY\t",
            " PROXY",
            "\r\n\r\n\0\rX",
            "\x16\x03\x01",
        ] {
            let first_wrong = (1..=text.len()).find(|n| parse(&text.as_bytes()[..*n]) == Err(HeaderFault::Absent)).unwrap();
            assert!((1..first_wrong).all(|n| parse(&text.as_bytes()[..n]) == Ok(Progress::Incomplete)), "{text:?}");
        }
        assert_eq!(parse(b"G"), Err(HeaderFault::Absent));
        assert_eq!(parse(b"PR"), Ok(Progress::Incomplete));
        assert_eq!(parse(b"PRI"), Err(HeaderFault::Absent));
    }

    /// What every prefix comes to: incomplete until it is decided, and then the same for ever.
    fn settles(bytes: &[u8]) -> Result<(), TestCaseError> {
        let mut decided = None;
        for n in 0..=bytes.len() {
            let now = parse(&bytes[..n]);
            if let Ok(Progress::Complete { length, .. }) = now {
                prop_assert!(length <= n);
            }
            match decided {
                None if now == Ok(Progress::Incomplete) => {}
                None => decided = Some(now),
                Some(before) => prop_assert_eq!(now, before),
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            settles(&bytes)?;
        }

        #[test]
        fn lines_in_any_pieces(words in "(TCP4|TCP6|UNKNOWN|TCP5|)", rest in "[ 0-9.:a-f\r\n]{0,120}", end in "(\r\n|\n|\r|)") {
            settles(format!("PROXY {words} {rest}{end}GET").as_bytes())?;
        }

        #[test]
        fn binary_headers_in_any_pieces(command: u8, family: u8, length in 0_u16..80, rest in proptest::collection::vec(any::<u8>(), 0..90)) {
            let command = if command & 4 == 0 { 0x20 | (command & 1) } else { command };
            let family = if family & 8 == 0 { family & 0x33 } else { family };
            let bytes = [v2::SIGNATURE, &[command, family], &length.to_be_bytes(), &rest].concat();
            settles(&bytes)?;
        }
    }
}
