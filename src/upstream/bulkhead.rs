//! How much of the gateway one upstream may take: requests under way, and those among them that wait for a connection.
//!
//! Both are counted exactly, over all workers. Who is one too many is refused at once, and nothing of it ever counts against an endpoint.
//! Connections are bounded in `pool`.

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::time::Duration;

use tokio::sync::Notify;

use super::UpstreamError;
use super::pool::{Cluster, Lease};
use super::retry::RetryBudget;

/// What all workers share about an upstream's requests.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    requests: AtomicU32,
    waiting: AtomicU32,
    freed: Notify,
    /// Bytes of bodies that are kept.
    kept: AtomicUsize,
    pub(super) budget: RetryBudget,
}

/// As configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) max_requests: Option<u32>,
    pub(super) max_pending: u32,
}

impl Bounds {
    /// Whether there is anything to look after.
    pub(super) fn are_set(self) -> bool {
        self.max_requests.is_some() || self.max_pending > 0
    }
}

impl Traffic {
    /// Requests under way, where they are bounded.
    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Those that wait.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A request is over.
    pub(super) fn leave(&self) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection may have come free: whoever waits longest looks.
    pub(super) fn freed(&self) {
        // The load that was just given up must be seen by whoever is not seen waiting here.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.freed.notify_one();
        }
    }

    /// Whether so many bytes more may be kept; they are counted then.
    pub(super) fn keep(&self, bytes: usize, max: usize) -> bool {
        let more = |kept: usize| kept.checked_add(bytes).filter(|kept| *kept <= max);
        self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// So many bytes are kept no longer.
    pub(super) fn let_go(&self, bytes: usize) {
        self.kept.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A count that is at its bound already stays there.
fn take(count: &AtomicU32, max: u32) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |taken| (taken < max).then_some(taken + 1)).is_ok()
}

/// A request's place among those under way, until dropped.
#[derive(Debug)]
pub(super) struct Room(Option<Rc<Cluster>>);

impl Room {
    /// None is needed where requests are not bounded.
    pub(super) fn enter(cluster: &Rc<Cluster>) -> Result<Self, UpstreamError> {
        let Some(max) = cluster.bounds.max_requests else { return Ok(Self(None)) };
        let entered = take(&cluster.group.traffic.requests, max);
        entered.then(|| Self(Some(Rc::clone(cluster)))).ok_or(UpstreamError::RequestsFull)
    }

    /// It is the exchange's from now on, whose end is the request's.
    pub(super) fn hand_over(mut self, lease: &Lease) {
        if self.0.take().is_some() {
            lease.has_room();
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(cluster) = &self.0 {
            cluster.group.traffic.leave();
        }
    }
}

/// A request's place among those that wait for a connection, until dropped.
pub(super) struct Pending<'c>(&'c Traffic);

impl<'c> Pending<'c> {
    pub(super) fn begin(cluster: &'c Cluster) -> Result<Self, UpstreamError> {
        let traffic = &cluster.group.traffic;
        match cluster.bounds.max_pending {
            0 => Err(UpstreamError::Saturated),
            max if take(&traffic.waiting, max) => Ok(Self(traffic)),
            _ => Err(UpstreamError::PendingFull),
        }
    }

    /// Asks again and again for what comes free, roughly in the order in which they began to wait; at most this long.
    pub(super) async fn until_free<T>(
        &self,
        patience: Duration,
        mut ask: impl AsyncFnMut() -> Result<T, UpstreamError>,
    ) -> Result<T, UpstreamError> {
        let over = std::pin::pin!(tokio::time::sleep(patience));
        let mut over = Some(over);
        loop {
            // Before it asks, so that nothing comes free unnoticed in between.
            let mut freed = std::pin::pin!(self.0.freed.notified());
            freed.as_mut().enable();
            match ask().await {
                Err(UpstreamError::Saturated) => {}
                answer => return answer,
            }
            let Some(waits) = &mut over else { return Err(UpstreamError::Saturated) };
            tokio::select! {
                () = &mut freed => {}
                // What comes free on another worker's HTTP/2 connection is nothing that this one can use, so it may have been told in vain, and
                // another one not at all.
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = waits => over = None,
            }
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How late somebody may be who was not told.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn what_comes_free_is_told_to_one_that_waits_and_kept_for_nobody() {
        let traffic = Traffic::default();
        traffic.freed();
        assert!(take(&traffic.waiting, 2) && take(&traffic.waiting, 2) && !take(&traffic.waiting, 2));
        let (mut first, mut second) = (pin!(traffic.freed.notified()), pin!(traffic.freed.notified()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
        traffic.freed();
        assert!(first.as_mut().poll(&mut cx).is_ready() && second.as_mut().poll(&mut cx).is_pending());
    }

    #[test]
    fn what_is_kept_of_bodies_is_bounded_and_given_back() {
        let traffic = Traffic::default();
        assert!(traffic.keep(60, 100) && !traffic.keep(41, 100) && traffic.keep(40, 100) && !traffic.keep(1, 100));
        traffic.let_go(60);
        assert!(!traffic.keep(usize::MAX, 100) && traffic.keep(60, 100));
    }
}
