//! One request on a stream of its own, to the head of its response.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::Method;

use super::download::{Download, ResponseBody};
use super::fault;
use super::pool::Slot;
use super::upload::{Rest, Shared, Turn, Upload};
use crate::clock::deadline::Deadline;
use crate::headers::{EndToEndFields, Framing, ResponseFraming, ResponseHead, Unsayable};
use crate::telemetry::metrics::Lane;
use crate::upstream::payload::Payload;
use crate::upstream::pool::Lease;
use crate::upstream::{ExchangeError, Heads, Received, Response};

/// A request that has been sent, and what it waits for.
#[derive(Debug)]
pub(in crate::upstream) struct Exchange {
    response: ResponseFuture,
    upload: Upload,
    slot: Slot,
    /// What had been heard on the connection when it was sent.
    heard: u64,
    interim: u32,
    waits_for_client: bool,
    deadline: Deadline,
    patience: Duration,
    total: Option<Rc<Deadline>>,
}

/// What became of an exchange that has failed before its response.
#[derive(Debug)]
pub(in crate::upstream) struct Sent {
    /// Why.
    pub(in crate::upstream) error: ExchangeError,
    /// The body, if nothing had been taken of it.
    pub(in crate::upstream) body: Option<Box<Payload>>,
    /// The connection had carried others before.
    pub(in crate::upstream) reused: bool,
    /// And was at rest when this one began, with no sign since then that it is the peer who is at fault.
    pub(in crate::upstream) from_rest: bool,
}

impl Exchange {
    /// Opens a stream and sends the head.
    pub(in crate::upstream) fn new(
        slot: Slot,
        head: impl FnOnce(&http::uri::Scheme) -> Result<EndToEndFields, Unsayable>,
        framing: Framing,
        body: Option<Payload>,
        patience: Duration,
        total: Option<Rc<Deadline>>,
    ) -> Result<Self, Sent> {
        let reused = slot.connection.is_reused();
        let from_rest = slot.from_rest;
        let lost = |error, body: Option<Payload>| Sent { error, body: body.map(Box::new), reused, from_rest };
        let head = match head(&slot.connection.scheme) {
            Ok(head) => head,
            Err(Unsayable) => return Err(lost(ExchangeError::Unsayable, body)),
        };
        // It has closed since the slot was taken: nothing of this has been sent.
        let Some(mut sender) = slot.connection.sender() else { return Err(lost(ExchangeError::Refused, body)) };
        match sender.send_request(head.request, body.is_none()) {
            Ok((response, stream)) => {
                let deadline = Deadline::new();
                deadline.arm(patience);
                Ok(Self {
                    response,
                    upload: Upload::new(stream, body, framing, head.trailers),
                    heard: slot.connection.heard(),
                    slot,
                    interim: 0,
                    waits_for_client: false,
                    deadline,
                    patience,
                    total,
                })
            }
            Err(error) => {
                let error = match fault(&error) {
                    // It has broken since: nothing of this has been sent either.
                    ExchangeError::Io(_) => ExchangeError::Refused,
                    fault => fault,
                };
                Err(lost(error, body))
            }
        }
    }

    /// Sends the body and waits for the final response, whose body has this `patience`.
    pub(in crate::upstream) async fn response(
        mut self,
        method: &Method,
        heads: &dyn Heads,
        patience: Duration,
        lease: Lease,
        lane: Lane,
    ) -> Result<Response, (Sent, Lease)> {
        match std::future::poll_fn(|cx| self.poll_response(method, heads, cx)).await {
            Ok((head, download)) => {
                self.patience = patience;
                Ok(self.finish(head, download, lease, lane))
            }
            Err(error) => Err((self.fail(error), lease)),
        }
    }

    fn poll_response(
        &mut self,
        method: &Method,
        heads: &dyn Heads,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(ResponseHead, Download), ExchangeError>> {
        self.poll_upload(cx)?;
        while let Poll::Ready(Some(interim)) = self.response.poll_informational(cx) {
            let (parts, ()) = interim.map_err(|error| self.fault(&error))?.into_parts();
            self.slot.connection.hear();
            self.interim += 1;
            if parts.status == http::StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Err(ExchangeError::Invalid("it switched protocols, which HTTP/2 can't")));
            }
            if self.interim > MAX_INTERIM {
                return Poll::Ready(Err(ExchangeError::Invalid("it sent too many interim responses")));
            }
            let head = ResponseHead::from_http2_interim(parts).map_err(|fault| ExchangeError::Invalid(fault.words()))?;
            heads.interim(&head);
        }
        let response = match Pin::new(&mut self.response).poll(cx) {
            Poll::Ready(response) => response.map_err(|error| self.fault(&error))?,
            Poll::Pending if self.is_overdue(cx) => return Poll::Ready(Err(ExchangeError::Timeout)),
            Poll::Pending => return Poll::Pending,
        };
        self.slot.connection.hear();
        let (parts, stream) = response.into_parts();
        let head = ResponseHead::from_http2(parts, method, stream.is_end_stream());
        let head = head.map_err(|fault| ExchangeError::Invalid(fault.words()))?;
        let download = Download::begin(stream, head.framing, cx)?;
        Poll::Ready(Ok((head, download)))
    }

    /// Upstream's time runs while it has something to read or to answer, and not while everybody waits for the client.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError> {
        if self.upload.is_done() {
            return Ok(());
        }
        let polled = self.upload.poll(cx);
        if let Poll::Ready(Err(error)) = polled {
            return Err(ExchangeError::RequestBody(error));
        }
        let sent = std::mem::take(&mut self.upload.sent);
        let before = std::mem::replace(&mut self.waits_for_client, polled.is_pending() && self.upload.turn() == Turn::Client);
        match (self.waits_for_client, before) {
            (true, true) => {}
            (true, false) => self.deadline.disarm(),
            (false, _) if sent || polled.is_ready() => self.deadline.arm(self.patience),
            (false, _) => self.deadline.arm_if_idle(self.patience),
        }
        Ok(())
    }

    fn is_overdue(&self, cx: &Context<'_>) -> bool {
        // The time of the whole exchange may be a caller's, and as short as he likes: that says nothing about the connection.
        if self.total.as_ref().is_some_and(|total| total.poll_due(cx).is_ready()) {
            return true;
        }
        let overdue = self.deadline.poll_due(cx).is_ready();
        if overdue {
            self.slot.connection.suspect(self.heard);
        }
        overdue
    }

    /// A connection that ends before it has said a word of the response has closed without an answer.
    fn fault(&self, error: &h2::Error) -> ExchangeError {
        match fault(error) {
            ExchangeError::Io(_) => ExchangeError::Closed,
            fault => fault,
        }
    }

    fn finish(self, head: ResponseHead, mut download: Download, lease: Lease, lane: Lane) -> Response {
        let Self { upload, slot, deadline, patience, total, heard, .. } = self;
        deadline.disarm();
        lease.answered(head.status);
        let body = match download.take_whole() {
            // Whatever is still being uploaded nobody needs any more: the stream is reset when it is dropped.
            Some(whole) => {
                // Without a body gRPC's status stands in the head.
                lease.said(&head.headers);
                lease.completed();
                Received::Whole(whole)
            }
            None => {
                let shared = Shared::new(deadline);
                let rest = (!upload.is_done()).then(|| Rest::spawn(upload, &shared, patience));
                let silence = Silence { slot, heard };
                Received::Stream(ResponseBody::new(download, shared, rest, silence, lease, patience, total, lane).into())
            }
        };
        Response { status: head.status, headers: head.headers, body }
    }

    fn fail(self, error: ExchangeError) -> Sent {
        let Self { upload, slot, .. } = self;
        let reused = slot.connection.is_reused();
        let from_rest = slot.from_rest && !slot.connection.is_dead();
        if matches!(error, ExchangeError::Refused) {
            let connection = Rc::clone(&slot.connection);
            drop(slot);
            connection.refused();
        }
        Sent { error, body: upload.into_body().map(Box::new), reused, from_rest }
    }
}

/// A place on a connection, and what had been heard there when it was last looked at.
#[derive(Debug)]
pub(super) struct Silence {
    slot: Slot,
    heard: u64,
}

impl Silence {
    /// Upstream has said something.
    pub(super) fn broken(&mut self) {
        self.slot.connection.hear();
        self.heard = self.slot.connection.heard();
    }

    /// Upstream has taken too long.
    pub(super) fn timed_out(&self) {
        self.slot.connection.suspect(self.heard);
    }
}

/// The body's first piece, if it came with the head.
impl Download {
    fn begin(mut stream: RecvStream, framing: ResponseFraming, cx: &mut Context<'_>) -> Result<Self, ExchangeError> {
        let mut download = match framing {
            ResponseFraming::Length(0) => return Ok(Self::empty()),
            ResponseFraming::Length(length) => Self::new(None, Some(length)),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => Self::new(None, None),
        };
        if let Poll::Ready(Some(data)) = stream.poll_data(cx) {
            // While nothing is sent, the client can still get a 502.
            download.first = data.map_err(|error| fault(&error))?;
        }
        download.stream = Some(stream);
        Ok(download)
    }

    /// The whole body, if it has come already.
    fn take_whole(&mut self) -> Option<Bytes> {
        match &mut self.stream {
            None => Some(Bytes::new()),
            Some(stream) if stream.is_end_stream() => {
                let whole = std::mem::take(&mut self.first);
                let _ = stream.flow_control().release_capacity(whole.len());
                Some(whole)
            }
            Some(_) => None,
        }
    }
}

/// As in HTTP/1.1: more interim responses than this are a flood.
const MAX_INTERIM: u32 = 32;
