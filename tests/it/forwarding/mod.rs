//! Passing messages on: bodies of any size and framing, trailers, upstream faults, patience and size limits.

mod bodies;
mod faults;
mod interim;
mod pace;
mod patience;
mod sizes;
mod unread;
