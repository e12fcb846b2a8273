//! What has to be told now and then what time it is, so that no request asks.

use crate::clock::{Clock, unix_seconds};
use crate::limit::WallOffset;
use crate::snapshot::Snapshot;

/// Two clocks: the one that limits count by, and the one on the wall.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) clock: Clock,
    pub(super) wall: WallOffset,
}

impl Times {
    pub(super) fn start() -> Self {
        let (clock, wall) = (Clock::system(), WallOffset::default());
        wall.set(clock.wall_now(), clock.now());
        Self { clock, wall }
    }

    /// Seconds since the Unix epoch.
    pub(super) fn unix_now(&self) -> u64 {
        unix_seconds(self.clock.wall_now())
    }

    /// Calendars follow a wall clock that was set, schedules begin and end, keys expire.
    pub(super) fn tell(&self, snapshot: &Snapshot) {
        let now = self.clock.now();
        let wall = self.clock.wall_now();
        self.wall.set(wall, now);
        snapshot.identity.clients.tell(unix_seconds(wall));
        snapshot.policy.schedules.refresh(self.wall.wall_nanos(now));
    }
}
