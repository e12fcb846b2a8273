//! The gRPC health checking protocol: `Check` of `grpc.health.v1.Health`, over HTTP/2.
//!
//! Two messages with a field each, so they are written and read by hand rather than by a code generator.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;

use super::http2;
use super::probe::{CheckError, USER};
use crate::upstream::transport::Transport;

/// Why a gRPC server is not well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum GrpcError {
    /// It has said that it isn't.
    #[error("the service is {0}")]
    NotServing(&'static str),
    /// It knows no such service, or no health service.
    #[error("status {0}")]
    Status(Box<str>),
    /// It doesn't speak the protocol.
    #[error("not an answer of a health service")]
    Malformed,
}

/// `connection` is a new one, on which HTTP/2 is spoken.
pub(super) async fn check(connection: Transport, scheme: Scheme, authority: &str, service: &str) -> Result<(), CheckError> {
    let request = request(scheme, authority, service).ok_or(GrpcError::Malformed)?;
    http2::exchange(connection, request, judge).await
}

fn request(scheme: Scheme, authority: &str, service: &str) -> Option<Request<Full<Bytes>>> {
    let mut request = Request::new(Full::new(framed(service)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http2::uri(scheme, authority, PathAndQuery::from_static("/grpc.health.v1.Health/Check"))?;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(USER_AGENT, USER);
    Some(request)
}

async fn judge(response: Response<Incoming>) -> Result<(), CheckError> {
    if response.status() != StatusCode::OK {
        return Err(CheckError::Status(response.status()));
    }
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => CheckError::Http(*error),
        Err(_) => GrpcError::Malformed.into(),
    })?;
    // Without a body the status may stand in the head.
    let status =
        |fields: &HeaderMap| fields.get("grpc-status").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let status = body.trailers().and_then(status).or_else(|| status(&head.headers)).ok_or(GrpcError::Malformed)?;
    if status != "0" {
        return Err(GrpcError::Status(status.chars().take(20).collect::<String>().into()).into());
    }
    Ok(serving(&body.to_bytes())?)
}

/// `HealthCheckRequest { string service = 1; }` in its frame.
fn framed(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(FIELD_1_BYTES);
        put_varint(&mut message, service.len());
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(&message);
    frame.freeze()
}

fn put_varint(to: &mut BytesMut, mut n: usize) {
    while n >= 0x80 {
        to.put_u8(u8::try_from(n & 0x7f).unwrap_or_default() | 0x80);
        n >>= 7;
    }
    to.put_u8(u8::try_from(n).unwrap_or_default());
}

/// `HealthCheckResponse { ServingStatus status = 1; }` in its frame says that it serves.
fn serving(frame: &[u8]) -> Result<(), GrpcError> {
    let (head, message) = frame.split_first_chunk::<5>().ok_or(GrpcError::Malformed)?;
    let [compressed, length @ ..] = *head;
    if compressed != 0 || usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        return Err(GrpcError::Malformed);
    }
    match message {
        // A field with its default value is left out.
        [] => Err(GrpcError::NotServing("UNKNOWN")),
        [FIELD_1_VARINT, 0] => Err(GrpcError::NotServing("UNKNOWN")),
        [FIELD_1_VARINT, 1] => Ok(()),
        [FIELD_1_VARINT, 2] => Err(GrpcError::NotServing("NOT_SERVING")),
        [FIELD_1_VARINT, 3] => Err(GrpcError::NotServing("SERVICE_UNKNOWN")),
        _ => Err(GrpcError::Malformed),
    }
}

const FIELD_1_BYTES: u8 = 0x0a;
const FIELD_1_VARINT: u8 = 0x08;
const MAX_ANSWER: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_protocol_says() {
        assert_eq!(&framed("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&framed("a.B")[..], [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'.', b'B']);
        let long = framed(&"x".repeat(300));
        assert_eq!((&long[..8], long.len()), (&[0, 0, 0, 1, 47, 0x0a, 0xac, 0x02][..], 308));
    }

    #[test]
    fn only_serving_is_well() {
        let answer = |message: &[u8]| {
            let mut frame = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
            frame.extend_from_slice(message);
            serving(&frame)
        };
        assert_eq!(answer(&[8, 1]), Ok(()));
        for (message, said) in
            [(&[][..], "UNKNOWN"), (&[8, 0], "UNKNOWN"), (&[8, 2], "NOT_SERVING"), (&[8, 3], "SERVICE_UNKNOWN")]
        {
            assert_eq!(answer(message), Err(GrpcError::NotServing(said)));
        }
        assert_eq!(answer(&[8, 9]), Err(GrpcError::Malformed));
        assert_eq!(answer(b"hello"), Err(GrpcError::Malformed));
        for frame in [&[][..], &[0, 0, 0, 0, 3, 8, 1], &[1, 0, 0, 0, 2, 8, 1], &[0, 0, 0]] {
            assert_eq!(serving(frame), Err(GrpcError::Malformed), "{frame:?}");
        }
    }
}
