//! The upstream inside the gateway: answers with the request as an upstream would have received it. For first runs,
//! examples and load tests; what it shows is exactly what would have been sent.

use std::pin::pin;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body;

use super::http1::ExchangeError;
use super::payload::Payload;
use super::{Received, Response};
use crate::headers::EndToEndHead;

/// Reads the whole body, shows the first [`SHOWN`] bytes of head and body.
pub(super) async fn answer(method: &Method, head: &EndToEndHead, body: Option<Payload>) -> Result<Response, ExchangeError> {
    let mut shown = BytesMut::from(&*head.bytes());
    if let Some(body) = body {
        let mut body = pin!(body);
        while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            if let Ok(data) = frame.map_err(ExchangeError::RequestBody)?.into_data() {
                let room = SHOWN.saturating_sub(shown.len()).min(data.len());
                shown.put_slice(data.get(..room).unwrap_or_default());
            }
        }
    }
    let mut headers = HeaderMap::with_capacity(8);
    // Plain text that no browser takes for anything else: what is shown came from the client.
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(shown.len()));
    let body = if method == Method::HEAD { Bytes::new() } else { shown.freeze() };
    Ok(Response { status: StatusCode::OK, headers, body: Received::Whole(body) })
}

const SHOWN: usize = 64 << 10;
