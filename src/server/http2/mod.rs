//! HTTP/2 with clients: a connection and its streams.
//!
//! On the `h2` crate itself, as towards upstreams, and not on hyper, which is made of it: hyper hides from whoever answers a request what
//! HTTP/2 has besides one response (interim responses, and how a stream ends), and how long a response has waited for its client.

mod keep_alive;
mod response;
mod socket;
mod stream;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use http::Request;
use tracing::debug;

use super::io::ClientIo;
use crate::proxy::Gateway;
use crate::request::{BodyLeft, ConnInfo, InFlight};
use crate::snapshot::Listener;

use keep_alive::{Intervals, KeepAlive};

/// A connection that is served: a future until its end.
pub(super) struct Serving {
    state: State,
    conn: Rc<ConnInfo>,
    gateway: Rc<Gateway>,
    listener: Arc<Listener>,
    /// It was asked to end before it had begun.
    ends: bool,
}

enum State {
    Opening(Handshake<ClientIo, Bytes>),
    Open(Connection<ClientIo, Bytes>, KeepAlive),
}

impl Serving {
    pub(super) fn new(io: ClientIo, conn: Rc<ConnInfo>, gateway: Rc<Gateway>, listener: Arc<Listener>) -> Self {
        Self { state: State::Opening(builder().handshake(io)), conn, gateway, listener, ends: false }
    }

    /// Takes no new streams; those in flight finish. Says so with a GOAWAY.
    pub(super) fn graceful_shutdown(&mut self) {
        match &mut self.state {
            State::Opening(_) => self.ends = true,
            State::Open(connection, _) => connection.graceful_shutdown(),
        }
    }

    /// A stream of its own task, for as long as its client takes what it asked for.
    fn begin(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        self.conn.progress.streams.begin();
        let in_flight = InFlight::begin(&self.conn, BodyLeft::Nothing);
        let (gateway, listener) = (Rc::clone(&self.gateway), Arc::clone(&self.listener));
        tokio::task::spawn_local(stream::serve(gateway, listener, in_flight, request, respond));
    }
}

impl Future for Serving {
    /// How it ended is the same to everybody.
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let accepted = match &mut this.state {
                State::Opening(handshake) => {
                    let Ok(mut connection) = ready!(Pin::new(handshake).poll(cx)) else { return Poll::Ready(()) };
                    if this.ends {
                        connection.graceful_shutdown();
                    }
                    let keep_alive = KeepAlive::new(connection.ping_pong(), Intervals::default());
                    this.state = State::Open(connection, keep_alive);
                    continue;
                }
                State::Open(connection, keep_alive) => {
                    if keep_alive.poll_dead(&this.conn.progress.heard, cx).is_ready() {
                        connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                    }
                    ready!(connection.poll_accept(cx))
                }
            };
            match accepted {
                Some(Ok((request, respond))) => this.begin(request, respond),
                Some(Err(error)) => {
                    // Not the client's own word: the library had enough of resets, CONTINUATION frames or the like.
                    if error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM) {
                        debug!(peer = %this.conn.peer, %error, "connection ended: a flood");
                        this.gateway.count_reset_flood();
                    }
                    return Poll::Ready(());
                }
                None => return Poll::Ready(()),
            }
        }
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_connect_protocol()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_send_buffer_size(MAX_SEND_BUFFER)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(Some(1024));
    builder
}

/// What a stream may send ahead of its upstream, and all streams of a connection together.
const WINDOW: u32 = 1 << 20;
const MAX_FRAME: u32 = 16 << 10;
const MAX_STREAMS: u32 = 256;
const MAX_HEADER_LIST: u32 = 32 << 10;
/// What a stream may hold for a client that reads slowly.
const MAX_SEND_BUFFER: usize = 64 << 10;
