//! Faults that were found and mended. Each test is named for what somebody saw.

mod bodies;
mod counters;
mod ending;
mod fields;
mod slots;
mod targets;
