//! The gateway over time: new configurations, signals, many connections, slots that come back.

mod drain;
mod reload;
mod reload_counters;
mod slots;
