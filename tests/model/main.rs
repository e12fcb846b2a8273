//! Model tests: every algorithm and the store against oracles that are too simple to be wrong.
//!
//! The oracles are written from the documentation, not from the source, and know nothing of packed states, shards or
//! digests: a list of events, windows counted without end, fractions in 128 bits. What is told (verdict, limit, remaining, reset,
//! retry, delay) must be theirs after every one of millions of operations, with hostile costs and a clock that steps back.
//!
//! - `operations`: the pure functions, a million random operations an algorithm.
//! - `rates`: a counter in the store whose quota changes.
//! - `joint`: slices of charges, all or none. `parallel`: the same from many threads, where totals must be exact.
//! - `properties`: short sequences that shrink; seeds of failures are kept in `proptest-regressions`.
//! - `worst`: the worst case of each algorithm, reached and never exceeded by those who try.
//! - `found`: what these models once found, one small example each.
//! - `flood`: a store at its cap, which forgets nobody who matters.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code: a panic is a failing test")]

mod chance;
mod flood;
mod found;
mod joint;
mod operations;
mod oracle;
mod parallel;
mod properties;
mod random;
mod rates;
mod store;
mod subject;
mod worst;
