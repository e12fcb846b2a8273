//! One stream: a request, what is said to it before its response, the response, or a tunnel.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as _;

use super::response::Sending;
use super::socket::StreamSocket;
use crate::body::ClientStream;
use crate::proxy::{self, Gateway, GatewayBody, Handover};
use crate::request::InFlight;
use crate::snapshot::Listener;

/// Answers a request. Dropping this, or what it holds, resets a stream that has not ended.
pub(super) async fn serve(
    gateway: Rc<Gateway>,
    listener: Arc<Listener>,
    in_flight: InFlight,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let (parts, stream) = request.into_parts();
    // What an extended CONNECT sends is the tunnel's, if it comes to one.
    let (body, tunnelled) =
        if is_extended_connect(&parts) { (ClientStream::Nothing, Some(stream)) } else { (ClientStream::Http2(stream), None) };
    let handover = Handover::default();
    let answer = Box::pin(proxy::handle(gateway, &listener, &handover, in_flight, Request::from_parts(parts, body)));
    let Some(response) = answered(answer, &handover, &mut respond).await else { return };
    let (mut head, body) = response.into_parts();
    clean(&mut head.headers);
    match (handover.take(), tunnelled) {
        (Some(tunnel), Some(stream)) => {
            drop(body);
            head.headers.remove(CONTENT_LENGTH);
            if let Ok(send) = respond.send_response(Response::from_parts(head, ()), false) {
                tunnel.over_socket(StreamSocket::new(send, stream), Bytes::new()).await;
            }
        }
        (_, unread) => {
            send(&mut respond, Response::from_parts(head, body), &listener).await;
            drop(unread);
        }
    }
}

/// Waits for the response, and says meanwhile what upstream has to say first; nothing if the client has reset the stream.
async fn answered(
    answer: impl Future<Output = Response<GatewayBody>>,
    handover: &Handover,
    respond: &mut SendResponse<Bytes>,
) -> Option<Response<GatewayBody>> {
    let mut answer = pin!(answer);
    std::future::poll_fn(|cx: &mut Context<'_>| {
        let polled = answer.as_mut().poll(cx).map(Some);
        if respond.poll_reset(cx).is_ready() {
            return Poll::Ready(None);
        }
        for interim in handover.take_interim() {
            let _ = respond.send_informational(interim);
        }
        polled
    })
    .await
}

async fn send(respond: &mut SendResponse<Bytes>, response: Response<GatewayBody>, listener: &Listener) {
    let (mut head, body) = response.into_parts();
    let ends = body.is_end_stream();
    if !ends
        && let Some(length) = body.size_hint().exact()
        && !head.headers.contains_key(CONTENT_LENGTH)
    {
        head.headers.insert(CONTENT_LENGTH, length.into());
    }
    match respond.send_response(Response::from_parts(head, ()), ends) {
        Ok(_) if ends => {}
        Ok(stream) => Sending::new(stream, body, listener.write_idle_timeout).await,
        Err(_) => respond.send_reset(Reason::INTERNAL_ERROR),
    }
}

fn is_extended_connect(parts: &Parts) -> bool {
    parts.method == Method::CONNECT && parts.extensions.get::<h2::ext::Protocol>().is_some()
}

/// What an answer of ours says of a connection in HTTP/1.1.
fn clean(headers: &mut HeaderMap) {
    for name in [http::header::CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}
