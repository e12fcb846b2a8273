//! Answers to gRPC calls: HTTP 200, the status of gRPC, and nothing behind the head (a Trailers-Only response). A gRPC client would
//! take a bare HTTP status for one of a few codes that say less, and a JSON body for garbage.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::Answer;
use crate::request::grpc::GRPC_STATUS;

/// The codes of gRPC that the gateway says (statuscodes.md of gRPC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrpcStatus {
    /// The caller has left.
    Cancelled = 1,
    /// It took too long.
    DeadlineExceeded = 4,
    /// The caller may not.
    PermissionDenied = 7,
    /// Too much of something; clients don't try again by themselves.
    ResourceExhausted = 8,
    /// There is no such method.
    Unimplemented = 12,
    /// The request breaks a rule that the caller's library should have kept.
    Internal = 13,
    /// Not now; clients may try again by themselves.
    Unavailable = 14,
    /// Nobody knows who the caller is.
    Unauthenticated = 16,
}

impl Answer {
    /// The code; `limited` is that of requests over a limit.
    fn grpc_status(&self, limited: GrpcStatus) -> GrpcStatus {
        match self {
            Self::Malformed(_) | Self::MalformedBody | Self::Loop | Self::NoUpgrade => GrpcStatus::Internal,
            Self::Abandoned => GrpcStatus::Cancelled,
            Self::NoTokenKeys { .. } | Self::NoStore | Self::Shed | Self::BadGateway | Self::Unavailable => {
                GrpcStatus::Unavailable
            }
            Self::Unauthorized(_) => GrpcStatus::Unauthenticated,
            Self::Forbidden => GrpcStatus::PermissionDenied,
            Self::NotFound | Self::MethodNotAllowed(_) => GrpcStatus::Unimplemented,
            Self::PayloadTooLarge | Self::Overloaded => GrpcStatus::ResourceExhausted,
            Self::Limited { .. } => limited,
            Self::RequestTimeout | Self::GatewayTimeout => GrpcStatus::DeadlineExceeded,
        }
    }

    /// The response to a gRPC call.
    #[must_use]
    pub fn respond_grpc(&self, limited: GrpcStatus) -> Response<Bytes> {
        let mut headers = HeaderMap::with_capacity(12);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from(self.grpc_status(limited) as u16));
        headers.extend(HeaderValue::from_str(&percent_encoded(&self.message())).ok().map(|message| (GRPC_MESSAGE, message)));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        let mut response = Response::new(Bytes::new());
        *response.headers_mut() = headers;
        response
    }
}

/// `grpc-message` has printable ASCII without `%`; everything else is `%` and two digits.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'%' | 0..b' ' | 0x7f.. => {
                let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
                encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
            plain => encoded.push(char::from(plain)),
        }
    }
    encoded
}

const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

#[cfg(test)]
mod tests {
    use super::super::tests::all;
    use super::*;
    use http::StatusCode;

    #[test]
    fn every_answer_has_a_code_that_goes_with_its_status() {
        for answer in all() {
            let response = answer.respond_grpc(GrpcStatus::ResourceExhausted);
            let expected: &[&str] = match answer.status().as_u16() {
                400 | 417 | 501 | 508 => &["13"],
                401 => &["16"],
                403 => &["7"],
                404 => &["12"],
                // CONNECT is malformed, the rest has no such method.
                405 => &["12", "13"],
                408 | 504 => &["4"],
                413 | 429 => &["8"],
                499 => &["1"],
                502 => &["14"],
                503 if answer == Answer::Overloaded => &["8"],
                503 => &["14"],
                other => panic!("{other} has no code yet"),
            };
            let code = response.headers()[GRPC_STATUS].to_str().unwrap();
            assert!(expected.contains(&code), "{answer:?}: {code}");
            assert_eq!((response.status(), response.body().len()), (StatusCode::OK, 0));
            let plain = answer.respond(super::super::BodyForm::Simple, &http::Method::POST, http::Version::HTTP_2);
            assert_eq!(response.headers().get(RETRY_AFTER), plain.headers().get(RETRY_AFTER));
        }
    }

    #[test]
    fn the_operator_chooses_what_a_limit_says() {
        let limited =
            Answer::Limited { limit: "a".into(), policy: None, retry_after: None, status: StatusCode::TOO_MANY_REQUESTS };
        assert_eq!(limited.respond_grpc(GrpcStatus::Unavailable).headers()[GRPC_STATUS], "14");
    }

    #[test]
    fn messages_are_encoded_as_grpc_wants() {
        assert_eq!(percent_encoded("a b~"), "a b~");
        assert_eq!(percent_encoded("100%\n\u{7f}é"), "100%25%0A%7F%C3%A9");
    }
}
