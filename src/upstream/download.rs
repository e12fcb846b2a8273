//! The body of a response, in the framing its head announced, piece by piece.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::chunked::{self, Decoder};
use super::http1::{Exchange, ExchangeError, HEAD_ROOM, length_of};
use crate::headers::ResponseFraming;

/// The rest of a response.
#[derive(Debug)]
pub(super) struct Download {
    /// Read but not yet passed on.
    rest: Bytes,
    state: State,
}

#[derive(Debug)]
enum State {
    Length(u64),
    Chunked(Decoder),
    UntilClose,
    Done,
}

/// A piece of a response's body.
#[derive(Debug)]
pub(super) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
}

impl Download {
    pub(super) fn new(framing: ResponseFraming, rest: Bytes) -> Self {
        let state = match framing {
            ResponseFraming::Length(0) => State::Done,
            ResponseFraming::Length(length) => State::Length(length),
            ResponseFraming::Chunked => State::Chunked(Decoder::default()),
            ResponseFraming::UntilClose => State::UntilClose,
        };
        Self { rest, state }
    }

    /// Refuses a response whose body is broken as far as it has been read: while nothing is sent, the client can still get a 502.
    pub(super) fn check(&self) -> Result<(), ExchangeError> {
        if let State::Chunked(_) = self.state {
            let (mut decoder, mut rest) = (Decoder::default(), self.rest.clone());
            while let chunked::Step::Data(_) = decoder.decode(&mut rest).map_err(ExchangeError::Invalid)? {}
        }
        Ok(())
    }

    /// The whole body, if it has already been read: the common case of a small response.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        match self.state {
            State::Done => Some(Bytes::new()),
            State::Length(left) if left <= length_of(&self.rest) => {
                self.state = State::Done;
                Some(self.rest.split_to(usize::try_from(left).unwrap_or(usize::MAX).min(self.rest.len())))
            }
            _ => None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(super) fn size_hint(&self) -> http_body::SizeHint {
        match self.state {
            State::Length(left) => http_body::SizeHint::with_exact(left),
            State::Done => http_body::SizeHint::with_exact(0),
            State::Chunked(_) | State::UntilClose => http_body::SizeHint::default(),
        }
    }

    /// Whether the connection is clean behind the response: nothing was sent that nobody asked for.
    pub(super) fn leaves_clean(&self, exchange: &Exchange) -> bool {
        self.is_done() && self.rest.is_empty() && exchange.connection.read.is_empty() && exchange.upload_done()
    }

    /// The next piece; keeps the upload going meanwhile.
    pub(super) fn poll_piece(&mut self, exchange: &mut Exchange, cx: &mut Context<'_>) -> Poll<Result<Piece, ExchangeError>> {
        if exchange.total.as_ref().is_some_and(|total| total.poll_due(cx).is_ready()) {
            return Poll::Ready(Err(ExchangeError::Timeout));
        }
        // A client whose body fails now has left, or sends what can't be read: there is nobody to answer any more.
        exchange.poll_upload(cx)?;
        loop {
            if let Some(piece) = self.take_piece()? {
                return Poll::Ready(Ok(piece));
            }
            let room = match self.state {
                State::Length(left) => usize::try_from(left).unwrap_or(usize::MAX).clamp(HEAD_ROOM, BODY_ROOM),
                _ => BODY_ROOM / 4,
            };
            match exchange.connection.poll_fill(cx, room) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(match self.state {
                        State::UntilClose => {
                            self.state = State::Done;
                            Ok(Piece::End)
                        }
                        _ => Err(ExchangeError::Invalid("it closed within the body")),
                    });
                }
                Poll::Ready(Ok(_)) => {
                    exchange.connection.deadline.disarm();
                    self.refill(&mut exchange.connection.read);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return self.poll_patience(exchange, cx),
            }
        }
    }

    fn poll_patience(&self, exchange: &Exchange, cx: &Context<'_>) -> Poll<Result<Piece, ExchangeError>> {
        exchange.connection.deadline.arm_if_idle(exchange.patience);
        ready!(exchange.poll_overdue(cx));
        Poll::Ready(Err(ExchangeError::Timeout))
    }

    fn refill(&mut self, read: &mut BytesMut) {
        if self.rest.is_empty() {
            self.rest = std::mem::take(read).freeze();
        } else {
            // An incomplete chunk header or trailer: short, so joining it is cheap.
            let mut joined = BytesMut::with_capacity(self.rest.len() + read.len());
            joined.extend_from_slice(&self.rest);
            joined.extend_from_slice(read);
            read.clear();
            self.rest = joined.freeze();
        }
    }

    /// What can be said without reading more.
    fn take_piece(&mut self) -> Result<Option<Piece>, ExchangeError> {
        match &mut self.state {
            State::Done => Ok(Some(Piece::End)),
            _ if self.rest.is_empty() => Ok(None),
            State::UntilClose => Ok(Some(Piece::Data(std::mem::take(&mut self.rest)))),
            State::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(self.rest.len());
                let data = self.rest.split_to(taken);
                *left -= length_of(&data);
                if *left == 0 {
                    self.state = State::Done;
                }
                Ok(Some(Piece::Data(data)))
            }
            State::Chunked(decoder) => match decoder.decode(&mut self.rest).map_err(ExchangeError::Invalid)? {
                chunked::Step::More => Ok(None),
                chunked::Step::Data(data) => Ok(Some(Piece::Data(data))),
                chunked::Step::End(trailers) => {
                    self.state = State::Done;
                    Ok(Some(trailers.map_or(Piece::End, Piece::Trailers)))
                }
            },
        }
    }
}

/// One read of a large body; larger ones gain nothing more over loopback.
const BODY_ROOM: usize = 64 << 10;
