//! WebSocket frames (RFC 6455 section 5) as they pass: where they begin, and what a client may send of them.
//!
//! [`Frames`] follows frames by their headers and skips payloads by length, so it needs a few bytes of memory whatever a message's size.
//! [`Meter`] holds a client's frames against [`Limits`]. [`Close`] writes the frame that ends a connection. Separate because
//! all of it is a pure function of bytes and time: no sockets, no HTTP, no routes.

mod close;
mod frames;
mod meter;

pub use close::{Close, Sender};
pub use frames::{Frames, Header};
pub use meter::{Limits, Meter, Refusal};
