//! Answers that need no upstream and are no refusals, and when a connection ends with an answer.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, MAX_FORWARDS};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};

use super::Reply;
use super::gateway::Gateway;
use crate::request::Facts;
use crate::respond::ALLOWED_METHODS;
use crate::upstream::Received;

/// `OPTIONS *` is about the gateway itself, and `Max-Forwards: 0` says that nobody further is meant (RFC 9110 §7.6.2, §9.3.7).
pub(super) fn ends_here(facts: &Facts<'_>) -> bool {
    facts.method == Method::OPTIONS && (facts.path == "*" || facts.single(&MAX_FORWARDS) == Some("0"))
}

/// The answer to such a request.
pub(super) fn options() -> Reply {
    let mut headers = HeaderMap::new();
    headers.insert(ALLOW, ALLOWED_METHODS);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    Reply { status: StatusCode::OK, headers, body: Received::Whole(Bytes::new()) }
}

/// A route's fixed answer.
pub(super) fn fixed(status: StatusCode, content_type: &HeaderValue, body: &Bytes, method: &Method) -> Reply {
    let mut headers = HeaderMap::with_capacity(8);
    if status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED {
        headers.insert(CONTENT_TYPE, content_type.clone());
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let bodiless = method == Method::HEAD || !headers.contains_key(CONTENT_LENGTH);
    Reply { status, headers, body: Received::Whole(if bodiless { Bytes::new() } else { body.clone() }) }
}

/// The connection ends with this response: the process is about to end, or only the end of the connection can say where a body
/// ends (HTTP/1.0).
pub(super) fn must_close(gateway: &Gateway, version: Version, reply: &Reply) -> bool {
    let unframed = matches!(reply.body, Received::Stream(_)) && !reply.headers.contains_key(CONTENT_LENGTH);
    let goes_on = matches!(reply.body, Received::Switched(_));
    !goes_on && version < Version::HTTP_2 && (gateway.is_stopping() || (version == Version::HTTP_10 && unframed))
}
