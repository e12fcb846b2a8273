//! How long a response waits for its client, where one connection carries many responses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use crate::clock::deadline::Deadline;

/// How long a response may wait for its client to take it, where one connection carries many responses.
///
/// An HTTP/2 client that grants no window keeps its response waiting without its body ever being asked for more, so the body can't
/// notice. The task that sends the response can: it runs inside [`Patience::watch`], and every body made there tells it
/// when the client's turn begins and ends.
#[derive(Debug)]
pub struct Patience {
    deadline: Deadline,
    limit: Duration,
    cut: Cell<bool>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Patience>>> = const { RefCell::new(None) };
}

impl Patience {
    /// Runs a task that sends one response; ends it when the client has not taken a piece for `limit`.
    pub async fn watch(limit: Duration, task: impl Future) {
        let patience = Rc::new(Self { deadline: Deadline::new(), limit, cut: Cell::new(false) });
        let mut task = std::pin::pin!(task);
        std::future::poll_fn(|cx| {
            let polled = {
                let _entered = Entered::new(&patience);
                task.as_mut().poll(cx).map(|_| ())
            };
            if polled.is_ready() { polled } else { patience.deadline.poll_due(cx) }
        })
        .await;
    }

    /// Lends the watch of the task that is being polled to whatever goes on over its stream.
    #[must_use]
    pub fn of_this_task() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Runs the task that sends what a tunnel over the stream carries. A tunnel has a timeout of its own, so nothing runs here until the
    /// stream is [cut](Self::cut).
    pub async fn carry_on(self: Rc<Self>, task: impl Future) {
        self.deadline.disarm();
        let mut task = std::pin::pin!(task);
        std::future::poll_fn(|cx| {
            // Looked at first: whoever cuts also drops his end, and the task must not take that for the stream's.
            if self.cut.get() {
                return Poll::Ready(());
            }
            match task.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => self.deadline.poll_due(cx),
            }
        })
        .await;
    }

    /// Ends the task that sends over the stream, which resets the stream if it has not ended.
    pub fn cut(&self) {
        self.cut.set(true);
        // Wakes it, should nothing else.
        self.deadline.arm(Duration::ZERO);
    }

    /// The watch of the task that is being polled. A response is about to be made there: it is the client's turn until its body is asked
    /// for.
    pub(super) fn current() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Clone::clone).inspect(|patience| patience.clients_turn())
    }

    /// The client has to take what it was given.
    pub(super) fn clients_turn(&self) {
        self.deadline.arm(self.limit);
    }

    /// There is nothing to give; somebody else's timeout runs.
    pub(super) fn upstreams_turn(&self) {
        self.deadline.disarm();
    }
}

/// While it lives, [`Patience::current`] answers; a panic within ends it too.
struct Entered;

impl Entered {
    fn new(patience: &Rc<Patience>) -> Self {
        CURRENT.set(Some(Rc::clone(patience)));
        Self
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}
