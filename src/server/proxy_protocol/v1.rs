//! Version 1: `PROXY TCP4 203.0.113.7 192.0.2.1 56324 443` and CRLF.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{HeaderFault, Progress};

pub(super) const PREFIX: &[u8] = b"PROXY ";

pub(super) fn parse(seen: &[u8]) -> Result<Progress, HeaderFault> {
    let within = seen.get(..MAX_LINE).unwrap_or(seen);
    let Some(end) = within.iter().position(|b| matches!(b, b'\r' | b'\n')) else {
        return if within.len() < MAX_LINE { Ok(Progress::Incomplete) } else { Err(HeaderFault::Line) };
    };
    match within.get(end..).unwrap_or_default() {
        [b'\r', b'\n', ..] => {}
        [b'\r'] if within.len() < MAX_LINE => return Ok(Progress::Incomplete),
        _ => return Err(HeaderFault::Line),
    }
    let line = within.get(PREFIX.len()..end).and_then(|line| std::str::from_utf8(line).ok()).ok_or(HeaderFault::Line)?;
    let source = announced(line).ok_or(HeaderFault::Line)?;
    Ok(Progress::Complete { source, length: end + 2 })
}

/// What stands behind `PROXY `. `None` if it is not valid.
fn announced(line: &str) -> Option<Option<SocketAddr>> {
    let mut words = line.split(' ');
    let source = match words.next()? {
        // Whatever else the line says is to be ignored.
        "UNKNOWN" => return Some(None),
        "TCP4" => addresses::<Ipv4Addr>(&mut words)?,
        "TCP6" => addresses::<Ipv6Addr>(&mut words)?,
        _ => return None,
    };
    words.next().is_none().then_some(Some(source))
}

/// `source destination source-port destination-port`; the source's.
fn addresses<'l, A: FromStr + Into<IpAddr>>(words: &mut impl Iterator<Item = &'l str>) -> Option<SocketAddr> {
    let source: A = words.next()?.parse().ok()?;
    let _destination: A = words.next()?.parse().ok()?;
    let source_port = port(words.next()?)?;
    port(words.next()?)?;
    Some(SocketAddr::new(source.into(), source_port))
}

fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok())?
}

/// With its CRLF.
const MAX_LINE: usize = 107;

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn source(text: &str) -> Result<Option<String>, HeaderFault> {
        match parse(text.as_bytes())? {
            Progress::Complete { source, length } => {
                assert_eq!(length, text.find("\r\n").unwrap() + 2, "{text:?}");
                Ok(source.map(|source| source.to_string()))
            }
            Progress::Incomplete => Ok(Some("incomplete".to_owned())),
        }
    }

    #[test]
    fn lines_of_the_standard() {
        let longest =
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
        for (line, expected) in [
            ("PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n", Some("203.0.113.7:56324")),
            ("PROXY TCP4 203.0.113.7 192.0.2.1 0 65535\r\nGET / HTTP/1.1\r\n", Some("203.0.113.7:0")),
            ("PROXY TCP6 2001:DB8::1 ::1 1 2\r\n", Some("[2001:db8::1]:1")),
            ("PROXY TCP6 ::ffff:203.0.113.7 ::1 1 2\r\n", Some("[::ffff:203.0.113.7]:1")),
            (longest, Some("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN 1.2.3.4 whatever  it says\r\n", None),
        ] {
            assert_eq!(source(line), Ok(expected.map(str::to_owned)), "{line:?}");
        }
        let unknown = longest.replace("TCP6", "UNKNOWN");
        assert_eq!((unknown.len(), source(&unknown)), (107, Ok(None)), "the standard's longest");
    }

    #[test]
    fn everything_else_is_refused() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY UNKNOWNX\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
            "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4\t1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.04 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.256 1.2.3.4 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP6 ::1 1.2.3.4 1 2\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
            "PROXY TCP6 [::1] ::1 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 00\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4  2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\rX",
            "PROXY UNKNOWN\rX\r\n",
            "PROXY UNKNOWN\nX\r\n",
        ] {
            assert_eq!(source(line), Err(HeaderFault::Line), "{line:?}");
        }
        assert_eq!(parse(b"PROXY UNKNOWN \xff\r\n"), Err(HeaderFault::Line));
    }

    #[test]
    fn a_line_is_at_most_107_bytes_long() {
        let line = |n: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(n - 16));
        assert_eq!(source(&line(107)), Ok(None));
        assert_eq!(source(&line(108)), Err(HeaderFault::Line));
        assert_eq!(parse("PROXY UNKNOWN ".repeat(8).get(..106).unwrap().as_bytes()), Ok(Progress::Incomplete));
        assert_eq!(parse("PROXY UNKNOWN ".repeat(8).get(..107).unwrap().as_bytes()), Err(HeaderFault::Line));
    }
}
