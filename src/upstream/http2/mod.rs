//! HTTP/2 towards upstream: many exchanges on few connections.
//!
//! On the `h2` crate and not on hyper's client, which is made of the same but hides what a gateway needs: interim responses, the reason of
//! a reset, whether a stream was refused before anything was done with it, how many streams the peer allows. hyper also takes a task
//! and a channel per body, where here the request's own task moves both.
//!
//! [`pool`] has the connections of one worker to one endpoint, [`connection`] is one of them and the task that drives it, [`exchange`] is
//! one request and the head of its response, [`upload`] and [`download`] are the bodies. As in HTTP/1.1 nothing is buffered beyond the
//! windows: upstream may send what the client takes, and the client may send what upstream takes.

mod connection;
mod download;
mod exchange;
mod keep_alive;
mod pool;
mod upload;

pub(super) use download::ResponseBody;
pub(super) use exchange::{Exchange, Sent};
pub(super) use pool::{Pool, Slot, run};

use super::ExchangeError;

/// What an error of the `h2` crate means for an exchange.
fn fault(error: &h2::Error) -> ExchangeError {
    match error.reason() {
        // Neither did upstream begin with it (RFC 9113 §8.7) nor with what is above the last stream of a GOAWAY (§6.8).
        Some(h2::Reason::REFUSED_STREAM) if error.is_remote() && error.is_reset() => ExchangeError::Refused,
        Some(_) if error.is_remote() && error.is_go_away() => ExchangeError::Refused,
        Some(reason) if error.is_remote() => ExchangeError::Reset(reason.into()),
        Some(_) => ExchangeError::Invalid("it breaks the rules of HTTP/2"),
        None => match error.get_io() {
            Some(error) => ExchangeError::Io(std::io::Error::new(error.kind(), error.to_string())),
            None => ExchangeError::Unsayable,
        },
    }
}
