//! Every answer the gateway makes itself. Status codes are chosen here and nowhere else.
//!
//! All have one shape, never carry internals, are never stored by caches, and have no body for HEAD. gRPC calls get theirs in the
//! words of gRPC, which `grpc` chooses.

mod grpc;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::clock::Nanos;
use crate::headers::retry_after_seconds;
use crate::identity::IdentityFault;
use crate::request::Fault;

pub use grpc::GrpcStatus;

/// Why the gateway answers itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The request must not be forwarded at all.
    Malformed(Fault),
    /// The body's framing is broken.
    MalformedBody,
    /// The client left within its body. Nobody reads this answer, but it is counted.
    Abandoned,
    /// A presented key or token is not accepted.
    Unauthorized(IdentityFault),
    /// A token can't be judged with the issuer's keys that there are.
    NoTokenKeys {
        /// When there may be others.
        retry_after: Nanos,
    },
    /// Blocked.
    Forbidden,
    /// No route.
    NotFound,
    /// A route, but for other methods.
    MethodNotAllowed(Vec<Method>),
    /// A route without WebSockets, asked for one by CONNECT.
    NoUpgrade,
    /// The client stalled.
    RequestTimeout,
    /// The body is larger than the route allows.
    PayloadTooLarge,
    /// Over a limit.
    Limited {
        /// The limit that refuses.
        limit: Box<str>,
        /// Its policy's name in `RateLimit-Policy`, with quotes; a concurrency limit has none.
        policy: Option<Arc<str>>,
        /// When trying again makes sense; `None` if it never does.
        retry_after: Option<Nanos>,
        /// The operator's status, usually 429.
        status: StatusCode,
    },
    /// The shared store can't be asked, and a limit refuses then.
    NoStore,
    /// Upstream can't be reached or talks nonsense.
    BadGateway,
    /// No endpoint, or no room for another exchange.
    Unavailable,
    /// Upstream says that it has too much to do.
    Overloaded,
    /// Upstream has too much to do already for a request of this tier.
    Shed,
    /// Upstream took too long.
    GatewayTimeout,
    /// The request goes in circles.
    Loop,
}

/// The form of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyForm {
    /// `{"error": …, "message": …}`.
    #[default]
    Simple,
    /// RFC 9457 problem details.
    Problem,
}

impl Answer {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(Fault::Expectation) => StatusCode::EXPECTATION_FAILED,
            Self::Malformed(Fault::Method) | Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Malformed(Fault::TransferCoding | Fault::Protocol) | Self::NoUpgrade => StatusCode::NOT_IMPLEMENTED,
            Self::Malformed(_) | Self::MalformedBody => StatusCode::BAD_REQUEST,
            Self::Abandoned => CLIENT_CLOSED_REQUEST,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Limited { status, .. } => *status,
            Self::BadGateway => StatusCode::BAD_GATEWAY,
            Self::Unavailable | Self::Overloaded | Self::NoStore | Self::Shed | Self::NoTokenKeys { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::GatewayTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Loop => StatusCode::LOOP_DETECTED,
        }
    }

    /// The code in the body, which is also a metric's label.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed(Fault::Expectation) => "expectation_failed",
            Self::Malformed(Fault::Method) | Self::MethodNotAllowed(_) => "method_not_allowed",
            Self::Malformed(Fault::TransferCoding | Fault::Protocol) | Self::NoUpgrade => "not_implemented",
            Self::Malformed(_) | Self::MalformedBody => "bad_request",
            Self::Abandoned => "client_closed_request",
            Self::Unauthorized(_) => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::RequestTimeout => "request_timeout",
            Self::PayloadTooLarge => "payload_too_large",
            Self::Limited { .. } => "rate_limit_exceeded",
            Self::BadGateway => "bad_gateway",
            Self::Unavailable | Self::Overloaded | Self::NoStore | Self::NoTokenKeys { .. } => "service_unavailable",
            Self::Shed => "load_shed",
            Self::GatewayTimeout => "gateway_timeout",
            Self::Loop => "loop_detected",
        }
    }

    fn message(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Malformed(fault) => return fault.to_string().into(),
            Self::Unauthorized(fault) => return fault.to_string().into(),
            Self::Limited { limit, retry_after, .. } => return limited(limit, *retry_after).into(),
            Self::MalformedBody => "the request body is malformed",
            Self::Abandoned => "the client closed the connection",
            Self::NoTokenKeys { .. } => "tokens can't be checked at the moment",
            Self::Forbidden => "this request is blocked",
            Self::NoUpgrade => "this route has no websockets",
            Self::NotFound => "no route matches this request",
            Self::MethodNotAllowed(_) => "this method is not allowed here",
            Self::RequestTimeout => "the request took too long to arrive",
            Self::PayloadTooLarge => "the request body is larger than allowed",
            Self::NoStore => "limits can't be checked at the moment",
            Self::BadGateway => "the upstream server failed",
            Self::Unavailable => "no upstream server is available",
            Self::Overloaded => "the upstream server has too much to do",
            Self::Shed => "the upstream server has too much to do; try again soon",
            Self::GatewayTimeout => "the upstream server took too long",
            Self::Loop => "the request goes in circles",
        })
    }

    /// Whether the connection should not be used again, because what follows on it can't be told apart any more.
    fn ends_connection(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::MalformedBody | Self::RequestTimeout | Self::PayloadTooLarge)
    }

    /// The response. `version` decides whether `Connection` may be said.
    #[must_use]
    pub fn respond(&self, form: BodyForm, method: &Method, version: http::Version) -> Response<Bytes> {
        let (status, code, message) = (self.status(), self.code(), self.message());
        let (content_type, body) = match form {
            BodyForm::Simple => (JSON, self.simple(code, &message)),
            BodyForm::Problem => (PROBLEM, self.problem(status, code, &message)),
        };
        let mut headers = HeaderMap::with_capacity(12);
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        match self {
            Self::Unauthorized(fault) => headers.extend(challenge(*fault).map(|challenge| (WWW_AUTHENTICATE, challenge))),
            Self::Malformed(Fault::Method) => {
                headers.insert(ALLOW, ALLOWED_METHODS);
            }
            Self::MethodNotAllowed(allowed) => {
                let list = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
                headers.extend(HeaderValue::from_str(&list).ok().map(|list| (ALLOW, list)));
            }
            _ => {}
        }
        if self.ends_connection() && version < http::Version::HTTP_2 {
            headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        let mut response = Response::new(if method == Method::HEAD { Bytes::new() } else { body });
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Limited { retry_after, .. } => retry_after.map(retry_after_seconds),
            // What is due at once is due, and `0` would be a loop.
            Self::NoTokenKeys { retry_after } => Some(retry_after_seconds(*retry_after).max(1)),
            Self::Unavailable | Self::Overloaded | Self::NoStore | Self::Shed => Some(1),
            _ => None,
        }
    }

    fn simple(&self, code: &str, message: &str) -> Bytes {
        // By hand rather than by `format!`: under attack most answers are these. Limit names are [a-z0-9-] and messages are ours, so
        // nothing needs escaping.
        let mut body = String::with_capacity(192);
        for piece in ["{\"error\":\"", code, "\",\"message\":\"", message, "\""] {
            body.push_str(piece);
        }
        if let Self::Limited { limit, .. } = self {
            if let Some(seconds) = self.retry_after() {
                body.push_str(",\"retry_after\":");
                body.push_str(itoa::Buffer::new().format(seconds));
            }
            body.push_str(",\"limit\":\"");
            body.push_str(limit);
            body.push('"');
        }
        body.push_str("}\n");
        Bytes::from(body)
    }

    fn problem(&self, status: StatusCode, code: &str, message: &str) -> Bytes {
        let (kind, policies) = match self {
            Self::Limited { policy: Some(policy), .. } => (QUOTA_EXCEEDED, format!(",\"violated-policies\":[{policy}]")),
            Self::Limited { limit, .. } => (QUOTA_EXCEEDED, format!(",\"violated-policies\":[\"{limit}\"]")),
            _ => ("about:blank", String::new()),
        };
        let title = status.canonical_reason().unwrap_or(code);
        let status = status.as_u16();
        Bytes::from(format!(
            "{{\"type\":\"{kind}\",\"title\":\"{title}\",\"status\":{status},\"detail\":\"{message}\",\"code\":\"{code}\"{policies}}}\n"
        ))
    }
}

/// What would have been believed: a key, or a token as RFC 6750 section 3 says it.
fn challenge(fault: IdentityFault) -> Option<HeaderValue> {
    match fault {
        IdentityFault::UnknownKey | IdentityFault::ExpiredKey | IdentityFault::AmbiguousKey => {
            Some(HeaderValue::from_static("ApiKey realm=\"tollgate\""))
        }
        IdentityFault::Token(fault) => {
            HeaderValue::from_str(&format!("Bearer realm=\"tollgate\", error=\"invalid_token\", error_description=\"{fault}\""))
                .ok()
        }
    }
}

fn limited(limit: &str, retry_after: Option<Nanos>) -> String {
    let mut digits = itoa::Buffer::new();
    match retry_after.map(retry_after_seconds) {
        Some(1) => ["limit ", limit, " is exhausted; try again in 1 second"].concat(),
        Some(seconds) => ["limit ", limit, " is exhausted; try again in ", digits.format(seconds), " seconds"].concat(),
        None => ["this request costs more than limit ", limit, " ever allows"].concat(),
    }
}

/// nginx's word for a client that did not wait.
pub const CLIENT_CLOSED_REQUEST: StatusCode = match StatusCode::from_u16(499) {
    Ok(status) => status,
    Err(_) => StatusCode::BAD_REQUEST,
};
/// What the gateway itself lets through: everything common but CONNECT and TRACE.
pub const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH");
/// The whole answer, sent in clear text, to a client that speaks HTTP to a port that speaks TLS.
pub const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n\
Content-Length: 32\r\nConnection: close\r\n\r\nthis port speaks TLS: use https\n";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
/// The problem type that draft-ietf-httpapi-ratelimit-headers-10 registers.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::identity::jwt::TokenFault;

    pub(super) fn all() -> Vec<Answer> {
        let limited = |retry_after| Answer::Limited {
            limit: "plan".into(),
            policy: None,
            retry_after,
            status: StatusCode::TOO_MANY_REQUESTS,
        };
        vec![
            Answer::Malformed(Fault::Target),
            Answer::Malformed(Fault::Expectation),
            Answer::Malformed(Fault::Method),
            Answer::Malformed(Fault::TransferCoding),
            Answer::Malformed(Fault::Protocol),
            Answer::NoUpgrade,
            Answer::MalformedBody,
            Answer::Abandoned,
            Answer::Unauthorized(IdentityFault::UnknownKey),
            Answer::Unauthorized(IdentityFault::Token(TokenFault::Signature)),
            Answer::NoTokenKeys { retry_after: 9 * SECOND },
            Answer::Forbidden,
            Answer::NotFound,
            Answer::MethodNotAllowed(vec![Method::GET]),
            Answer::RequestTimeout,
            Answer::PayloadTooLarge,
            limited(Some(1)),
            limited(Some(90 * SECOND)),
            limited(None),
            Answer::BadGateway,
            Answer::Unavailable,
            Answer::Overloaded,
            Answer::Shed,
            Answer::GatewayTimeout,
            Answer::Loop,
        ]
    }

    #[test]
    fn every_answer_is_json_of_its_form_and_not_cached() {
        for answer in all() {
            let simple = answer.respond(BodyForm::Simple, &Method::GET, http::Version::HTTP_11);
            let body: serde_json::Value = serde_json::from_slice(simple.body()).unwrap();
            assert_eq!(body["error"], answer.code());
            assert_eq!(simple.headers()[CACHE_CONTROL], "no-store");
            let problem = answer.respond(BodyForm::Problem, &Method::GET, http::Version::HTTP_11);
            let body: serde_json::Value = serde_json::from_slice(problem.body()).unwrap();
            assert_eq!(body["status"], problem.status().as_u16());
            let head = answer.respond(BodyForm::Simple, &Method::HEAD, http::Version::HTTP_11);
            assert!(head.body().is_empty());
            assert_eq!(head.headers()[CONTENT_LENGTH], simple.body().len().to_string());
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let limited = Answer::Limited {
            limit: "plan".into(),
            policy: None,
            retry_after: Some(SECOND + 1),
            status: StatusCode::TOO_MANY_REQUESTS,
        };
        let response = limited.respond(BodyForm::Simple, &Method::GET, http::Version::HTTP_11);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        assert_eq!(
            response.body(),
            "{\"error\":\"rate_limit_exceeded\",\"message\":\"limit plan is exhausted; try again in 2 seconds\",\"retry_after\":2,\"limit\":\"plan\"}\n"
        );
        let never =
            Answer::Limited { limit: "plan".into(), policy: None, retry_after: None, status: StatusCode::TOO_MANY_REQUESTS };
        assert!(!never.respond(BodyForm::Simple, &Method::GET, http::Version::HTTP_11).headers().contains_key(RETRY_AFTER));
    }
}
