//! The body of a response on its way into a stream: a piece is taken from upstream when the one before has gone into the client's window.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;

use crate::clock::deadline::Deadline;
use crate::proxy::GatewayBody;

/// Sends a body to its end: a future until it has gone, or can't.
pub(super) struct Sending {
    stream: SendStream<Bytes>,
    body: GatewayBody,
    /// Taken from the body, not yet within the client's window.
    pending: Bytes,
    /// Nothing more will come out of the body.
    ends: bool,
    /// Runs while the client takes nothing of what is there.
    patience: Deadline,
    limit: Duration,
}

impl Sending {
    /// A client that takes no piece for `limit` loses the stream.
    pub(super) fn new(stream: SendStream<Bytes>, body: GatewayBody, limit: Duration) -> Self {
        Self { stream, body, pending: Bytes::new(), ends: false, patience: Deadline::new(), limit }
    }

    /// How much the client takes now; nothing if it takes no more.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        self.stream.reserve_capacity(self.pending.len());
        loop {
            match self.stream.capacity() {
                0 => match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(None),
                    Poll::Pending => {
                        self.patience.arm_if_idle(self.limit);
                        return self.patience.poll_due(cx).map(|()| None);
                    }
                },
                room => {
                    self.patience.disarm();
                    return Poll::Ready(Some(room));
                }
            }
        }
    }

    /// Sends what is pending; ready with `false` when the client takes no more.
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while !self.pending.is_empty() {
            let Some(room) = ready!(self.poll_room(cx)) else { return Poll::Ready(false) };
            let piece = self.pending.split_to(room.min(self.pending.len()));
            let last = self.ends && self.pending.is_empty();
            if self.stream.send_data(piece, last).is_err() {
                return Poll::Ready(false);
            }
        }
        Poll::Ready(true)
    }
}

impl Future for Sending {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            // Also so that this is polled when the client resets the stream.
            if this.stream.poll_reset(cx).is_ready() || !ready!(this.poll_pending(cx)) {
                return Poll::Ready(());
            }
            if this.ends {
                return Poll::Ready(());
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        this.ends = this.body.is_end_stream();
                        if data.is_empty() && this.ends {
                            let _ = this.stream.send_data(data, true);
                        } else {
                            this.pending = data;
                        }
                    }
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            this.ends = true;
                            let _ = this.stream.send_trailers(trailers);
                        }
                    }
                },
                Some(Err(_)) => {
                    this.stream.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(());
                }
                None => {
                    this.ends = true;
                    let _ = this.stream.send_data(Bytes::new(), true);
                }
            }
        }
    }
}
