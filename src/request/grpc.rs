//! What a gRPC call says of itself in its HTTP/2 request (PROTOCOL-HTTP2.md of gRPC).

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Version};

/// Whether a request is a gRPC call: HTTP/2, no CONNECT (to which the 200 of a refused call would say that it has its tunnel), and `application/grpc` by itself, with a `+` suffix or parameters. `application/grpc-web`
/// is something else: its trailers are in the body, and browsers send it as any other request.
#[must_use]
pub fn is_grpc(parts: &Parts) -> bool {
    is_call(parts.version, &parts.headers, &parts.method)
}

/// [`is_grpc`], of a request in pieces.
#[must_use]
pub fn is_call(version: Version, headers: &HeaderMap, method: &Method) -> bool {
    // Looked at in this order because most requests are none.
    version == Version::HTTP_2 && has_grpc_type(headers) && method != Method::CONNECT
}

/// Whether a head announces a message of gRPC.
#[must_use]
pub fn has_grpc_type(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    match value.split_at_checked(GRPC.len()) {
        Some((name, rest)) => name.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' ')),
        None => false,
    }
}

/// How long the caller will wait, if it says so in a form that gRPC knows: at most 8 digits and a unit.
#[must_use]
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(&GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let valid = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| valid)?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// What a call came to, from the fields or the trailers that say it.
#[must_use]
pub fn status(headers: &HeaderMap) -> Option<u16> {
    headers.get(&GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

/// `grpc-status`.
pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC: &[u8] = b"application/grpc";

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn grpc_is_told_from_what_looks_like_it() {
        for (content_type, version, expected) in [
            ("application/grpc", Version::HTTP_2, true),
            ("application/grpc+proto", Version::HTTP_2, true),
            ("Application/GRPC; charset=x", Version::HTTP_2, true),
            ("application/grpc-web", Version::HTTP_2, false),
            ("application/grpc-web+proto", Version::HTTP_2, false),
            ("application/grpcx", Version::HTTP_2, false),
            ("application/grp", Version::HTTP_2, false),
            ("application/json", Version::HTTP_2, false),
            ("", Version::HTTP_2, false),
            ("application/grpc", Version::HTTP_11, false),
        ] {
            let request = http::Request::post("http://a/").version(version).header(CONTENT_TYPE, content_type);
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(is_grpc(&parts), expected, "{content_type} {version:?}");
            parts.method = Method::CONNECT;
            assert!(!is_grpc(&parts), "CONNECT {content_type} {version:?}");
        }
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        for (text, expected) in [
            ("2H", Some(Duration::from_secs(7200))),
            ("3M", Some(Duration::from_secs(180))),
            ("5S", Some(Duration::from_secs(5))),
            ("100m", Some(Duration::from_millis(100))),
            ("7u", Some(Duration::from_micros(7))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("123456789S", None),
            ("S", None),
            ("", None),
            ("-1S", None),
            ("+1S", None),
            ("1", None),
            ("1h", None),
            ("1 S", None),
            ("1é", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, HeaderValue::from_bytes(text.as_bytes()).unwrap());
            assert_eq!(timeout(&headers), expected, "{text}");
        }
    }
}
