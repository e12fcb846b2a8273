//! Floods and exhaustion, bounded so that the tests stay quick: what the gateway takes is limited, it serves others meanwhile, its memory
//! stays where it was, and it recovers.

mod connections;
mod frames;
mod readers;
mod resets;

use crate::harness::Gateway;

const FIELDS: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/flood")];

/// A request of somebody else is answered.
fn others_are_served(gateway: &Gateway) {
    assert_eq!(gateway.get("/other").status, 200);
}

/// The gateway's memory at some moment.
struct Memory<'g> {
    gateway: &'g Gateway,
    before: u64,
}

impl<'g> Memory<'g> {
    /// After a first request, which brings in what every gateway needs.
    fn of(gateway: &'g Gateway) -> Self {
        gateway.get("/warm-up");
        Self { gateway, before: gateway.rss() }
    }

    fn grew_at_most(&self, mebibytes: u64, what: &str) {
        let growth = self.gateway.rss().saturating_sub(self.before);
        assert!(growth < mebibytes << 20, "{what}: memory grew by {} KiB", growth >> 10);
    }
}
