//! Coarse per-thread timers.
//!
//! A gateway arms several timeouts per request and almost none of them fires. So a [`Deadline`] is a slot in a
//! thread-local table: arming stores a number, and one [`tick`](run) per thread looks for slots that are due. A
//! deadline fires at most one [`TICK`] late and never early. Not for anything that must be punctual: use tokio's timers there.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How often due deadlines are looked for, and so how late one can fire.
pub const TICK: Duration = Duration::from_millis(20);

/// A timeout that can be armed again and again. Belongs to the thread that made it.
#[derive(Debug)]
pub struct Deadline {
    slot: usize,
    // Slots live in thread-local storage, so the handle must not travel.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

impl Deadline {
    /// A disarmed deadline.
    #[must_use]
    pub fn new() -> Self {
        Self { slot: with_table(Table::claim), _not_send: std::marker::PhantomData }
    }

    /// (Re)starts the countdown. Zero means due at the next tick.
    pub fn arm(&self, after: Duration) {
        let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX / 2);
        with_table(|table| {
            // `now_ms` is up to a tick old, hence one tick on top: late is fine, early is not.
            let due = table.now_ms.saturating_add(after).saturating_add(TICK_MS);
            if let Some(slot) = table.slots.get_mut(self.slot) {
                slot.due_ms = due;
            }
        });
    }

    /// How much has passed of `after`, with which it was armed; as coarse as a tick.
    #[must_use]
    pub fn elapsed(&self, after: Duration) -> Duration {
        let left = with_table(|table| {
            let due = table.slots.get(self.slot).map_or(NEVER, |slot| slot.due_ms);
            due.saturating_sub(table.now_ms.saturating_add(TICK_MS))
        });
        after.saturating_sub(Duration::from_millis(left))
    }

    /// Starts the countdown unless it is running.
    pub fn arm_if_idle(&self, after: Duration) {
        let idle = with_table(|table| table.slots.get(self.slot).is_some_and(|slot| slot.due_ms == NEVER));
        if idle {
            self.arm(after);
        }
    }

    /// Stops the countdown.
    pub fn disarm(&self) {
        with_table(|table| {
            if let Some(slot) = table.slots.get_mut(self.slot) {
                slot.due_ms = NEVER;
            }
        });
    }

    /// Ready once the armed time has passed; otherwise the task is woken when it has.
    pub fn poll_due(&self, cx: &Context<'_>) -> Poll<()> {
        with_table(|table| {
            let now_ms = table.now_ms;
            let Some(slot) = table.slots.get_mut(self.slot) else { return Poll::Pending };
            if slot.due_ms <= now_ms {
                return Poll::Ready(());
            }
            if !slot.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                slot.waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
    }

    /// Runs `work` until it is done or the deadline passes; `None` means it passed.
    pub async fn bound<F: Future>(&self, after: Duration, work: F) -> Option<F::Output> {
        self.arm(after);
        let mut work = std::pin::pin!(work);
        let result = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll_due(cx).map(|()| None),
        })
        .await;
        self.disarm();
        result
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // During thread shutdown the table may already be gone; then there is nothing to give back.
        let _ = TABLE.try_with(|table| table.borrow_mut().release(self.slot));
    }
}

/// Wakes due deadlines of this thread for ever. Each worker runs one.
pub async fn run() {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // Wake outside the borrow: a waker may run code that arms another deadline.
        let due = with_table(Table::advance);
        for waker in due {
            waker.wake();
        }
    }
}

struct Table {
    origin: Instant,
    now_ms: u64,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

struct Slot {
    due_ms: u64,
    waker: Option<Waker>,
}

impl Table {
    fn claim(&mut self) -> usize {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        self.slots.push(Slot { due_ms: NEVER, waker: None });
        self.slots.len() - 1
    }

    fn release(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot { due_ms: NEVER, waker: None };
            self.free.push(index);
        }
    }

    fn advance(&mut self) -> Vec<Waker> {
        let now_ms = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        // A thread that could not run for a while has seen nothing of what its peers did meanwhile: that time is not theirs.
        let stalled = now_ms.saturating_sub(self.now_ms + 2 * TICK_MS);
        if stalled > 0 {
            let armed = self.slots.iter_mut().filter(|slot| slot.due_ms != NEVER);
            armed.for_each(|slot| slot.due_ms = slot.due_ms.saturating_add(stalled));
        }
        self.now_ms = now_ms;
        self.slots.iter_mut().filter(|slot| slot.due_ms <= now_ms).filter_map(|slot| slot.waker.take()).collect()
    }
}

fn with_table<R>(f: impl FnOnce(&mut Table) -> R) -> R {
    TABLE.with(|table| f(&mut table.borrow_mut()))
}

thread_local! {
    static TABLE: RefCell<Table> =
        RefCell::new(Table { origin: Instant::now(), now_ms: 0, slots: Vec::new(), free: Vec::new() });
}

const TICK_MS: u64 = 20;
const NEVER: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn on_runtime(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(run());
            test.await;
        });
    }

    #[test]
    fn it_fires_after_its_time_and_not_before() {
        on_runtime(async {
            let deadline = Deadline::new();
            let started = Instant::now();
            let outcome = deadline.bound(Duration::from_millis(60), std::future::pending::<()>()).await;
            assert!(outcome.is_none());
            assert!(started.elapsed() >= Duration::from_millis(60));
        });
    }

    #[test]
    fn it_knows_how_long_it_has_run() {
        on_runtime(async {
            let (deadline, after) = (Deadline::new(), Duration::from_secs(5));
            deadline.arm(after);
            let started = Instant::now();
            tokio::time::sleep(Duration::from_millis(200)).await;
            let elapsed = deadline.elapsed(after);
            assert!(elapsed >= Duration::from_millis(150) && elapsed <= started.elapsed() + 2 * TICK, "{elapsed:?}");
        });
    }

    #[test]
    fn work_that_ends_in_time_is_returned_and_a_slot_is_used_again() {
        on_runtime(async {
            let deadline = Deadline::new();
            assert_eq!(deadline.bound(Duration::from_secs(5), async { 7 }).await, Some(7));
            let slot = deadline.slot;
            drop(deadline);
            assert_eq!(Deadline::new().slot, slot);
        });
    }
}
