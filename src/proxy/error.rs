//! From what went wrong with an exchange to what the client is told. Whose fault it was decides: the client's own faults come
//! back as 4xx, a silent upstream as 504, a broken one as 502, a full one as 503.

use crate::body::RequestBodyError;
use crate::respond::Answer;
use crate::upstream::{ExchangeError, UpstreamError};

pub(super) fn answer(error: &UpstreamError) -> Answer {
    match error {
        UpstreamError::Connect(_) | UpstreamError::Tls(_) => Answer::BadGateway,
        UpstreamError::ConnectTimeout | UpstreamError::Exchange(ExchangeError::Timeout) => Answer::GatewayTimeout,
        UpstreamError::Saturated
        | UpstreamError::PendingFull
        | UpstreamError::RequestsFull
        | UpstreamError::NoEndpoint
        | UpstreamError::Exchange(ExchangeError::Refused) => Answer::Unavailable,
        UpstreamError::Exchange(ExchangeError::Reset(ENHANCE_YOUR_CALM)) => Answer::Overloaded,
        UpstreamError::Exchange(
            ExchangeError::Closed
            | ExchangeError::Io(_)
            | ExchangeError::Invalid(_)
            | ExchangeError::Reset(_)
            | ExchangeError::Unsayable,
        ) => Answer::BadGateway,
        UpstreamError::Exchange(ExchangeError::RequestBody(error)) => body_answer(*error),
    }
}

pub(super) fn body_answer(error: RequestBodyError) -> Answer {
    match error {
        RequestBodyError::TooLarge => Answer::PayloadTooLarge,
        RequestBodyError::Idle | RequestBodyError::TooSlow => Answer::RequestTimeout,
        RequestBodyError::Malformed => Answer::MalformedBody,
        RequestBodyError::Aborted => Answer::Abandoned,
    }
}

/// RFC 9113 §7: "the peer is exhibiting a behavior that might be generating excessive load".
const ENHANCE_YOUR_CALM: u32 = 0xb;
