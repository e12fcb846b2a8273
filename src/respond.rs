//! Every answer the gateway makes itself. Status codes are chosen here and nowhere else.
//!
//! All have one shape, never carry internals, are never stored by caches, and have no body for HEAD.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::clock::Nanos;
use crate::headers::retry_after_seconds;
use crate::identity::IdentityFault;
use crate::request::Fault;

/// Why the gateway answers itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The request must not be forwarded at all.
    Malformed(Fault),
    /// The body's framing is broken.
    MalformedBody,
    /// A presented key is not accepted.
    Unauthorized(IdentityFault),
    /// Blocked.
    Forbidden,
    /// No route.
    NotFound,
    /// A route, but for other methods.
    MethodNotAllowed(Vec<Method>),
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
    /// Upstream can't be reached or talks nonsense.
    BadGateway,
    /// No endpoint, or no room for another exchange.
    Unavailable,
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
    /// Status, code and message.
    fn describe(&self) -> (StatusCode, &'static str, String) {
        match self {
            Self::Malformed(fault @ Fault::Expectation) => {
                (StatusCode::EXPECTATION_FAILED, "expectation_failed", fault.to_string())
            }
            Self::Malformed(fault @ Fault::Method) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", fault.to_string()),
            Self::Malformed(fault @ Fault::TransferCoding) => (StatusCode::NOT_IMPLEMENTED, "not_implemented", fault.to_string()),
            Self::Malformed(fault) => (StatusCode::BAD_REQUEST, "bad_request", fault.to_string()),
            Self::MalformedBody => (StatusCode::BAD_REQUEST, "bad_request", "the request body is malformed".into()),
            Self::Unauthorized(fault) => (StatusCode::UNAUTHORIZED, "unauthorized", fault.to_string()),
            Self::Forbidden => (StatusCode::FORBIDDEN, "forbidden", "this request is blocked".into()),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found", "no route matches this request".into()),
            Self::MethodNotAllowed(_) => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this method is not allowed here".into())
            }
            Self::RequestTimeout => {
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", "the request took too long to arrive".into())
            }
            Self::PayloadTooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", "the request body is larger than allowed".into())
            }
            Self::Limited { limit, retry_after, status, .. } => (*status, "rate_limit_exceeded", limited(limit, *retry_after)),
            Self::BadGateway => (StatusCode::BAD_GATEWAY, "bad_gateway", "the upstream server failed".into()),
            Self::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", "no upstream server is available".into())
            }
            Self::GatewayTimeout => (StatusCode::GATEWAY_TIMEOUT, "gateway_timeout", "the upstream server took too long".into()),
            Self::Loop => (StatusCode::LOOP_DETECTED, "loop_detected", "the request goes in circles".into()),
        }
    }

    /// The code in the body, which is also a metric's label.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.describe().1
    }

    /// Whether the connection should not be used again, because what follows on it can't be told apart any more.
    fn ends_connection(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::MalformedBody | Self::RequestTimeout | Self::PayloadTooLarge)
    }

    /// The response. `version` decides whether `Connection` may be said.
    #[must_use]
    pub fn respond(&self, form: BodyForm, method: &Method, version: http::Version) -> Response<Bytes> {
        let (status, code, message) = self.describe();
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
            Self::Unauthorized(_) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey realm=\"tollgate\""));
            }
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
            Self::Unavailable => Some(1),
            _ => None,
        }
    }

    fn simple(&self, code: &str, message: &str) -> Bytes {
        let body = match self {
            // Limit names are [a-z0-9-] and messages are ours, so nothing needs escaping.
            Self::Limited { limit, .. } => {
                let retry_after = self.retry_after().map(|seconds| format!(",\"retry_after\":{seconds}")).unwrap_or_default();
                format!("{{\"error\":\"{code}\",\"message\":\"{message}\"{retry_after},\"limit\":\"{limit}\"}}\n")
            }
            _ => format!("{{\"error\":\"{code}\",\"message\":\"{message}\"}}\n"),
        };
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

fn limited(limit: &str, retry_after: Option<Nanos>) -> String {
    match retry_after.map(retry_after_seconds) {
        Some(1) => format!("limit {limit} is exhausted; try again in 1 second"),
        Some(seconds) => format!("limit {limit} is exhausted; try again in {seconds} seconds"),
        None => format!("this request costs more than limit {limit} ever allows"),
    }
}

/// What the gateway itself lets through: everything common but CONNECT and TRACE.
pub const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
/// The problem type that draft-ietf-httpapi-ratelimit-headers-10 registers.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    fn all() -> Vec<Answer> {
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
            Answer::MalformedBody,
            Answer::Unauthorized(IdentityFault::UnknownKey),
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
