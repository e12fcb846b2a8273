//! A worker's HTTP/2 connections to one endpoint. Few: a stream goes to the first connection that has room, so that those at the end
//! of the list become idle and go.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio_rustls::rustls::pki_types::ServerName;

use super::connection::{self, Connection, MAX_STREAMS};
use super::keep_alive::INTERVALS;
use crate::upstream::UpstreamError;
use crate::upstream::connect::{Asked, Established, Spoken, connect, spoken};
use crate::upstream::http1;
use crate::upstream::lifetime::lifetime;
use crate::upstream::pool::{Cluster, EndpointPool};
use crate::upstream::transport::{ConnectError, Transport};

/// The connections, and those that are being made.
#[derive(Debug)]
pub(in crate::upstream) struct Pool {
    connections: RefCell<Vec<Rc<Connection>>>,
    openings: RefCell<Vec<Rc<Opening>>>,
    /// Streams that the last connection allowed: as many wait for one that is being made.
    expected: Cell<u32>,
}

impl Default for Pool {
    fn default() -> Self {
        Self { connections: RefCell::default(), openings: RefCell::default(), expected: Cell::new(MAX_STREAMS) }
    }
}

/// A stream's place on a connection, until dropped.
#[derive(Debug)]
pub(in crate::upstream) struct Slot {
    pub(super) connection: Rc<Connection>,
    endpoint: Rc<EndpointPool>,
    /// The connection had carried others and was at rest, so that upstream may have closed it just then.
    pub(super) from_rest: bool,
}

/// A connection that is being made, by a task of its own, for all who wait for it.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Opening {
    waiting: Cell<u32>,
    outcome: RefCell<Option<Outcome>>,
    wakers: RefCell<Vec<Waker>>,
}

/// What came of it: a connection in the pool, or why not.
type Outcome = Result<(), Failure>;

/// Why not, for as many as wait.
#[derive(Debug, Clone)]
struct Failure {
    kind: io::ErrorKind,
    message: Box<str>,
    is_tls: bool,
}

impl Pool {
    /// A place on a connection that is in use (`busy`), or has just been made for those that wait for it; or else on one at rest.
    pub(in crate::upstream) fn take(&self, endpoint: &Rc<EndpointPool>, busy: bool) -> Option<Slot> {
        let mut connections = self.connections.borrow_mut();
        let found = connections.iter().find(|connection| connection.counts_as_used() == busy && connection.has_room()).cloned();
        connections.retain(|connection| !connection.is_retired());
        drop(connections);
        found.map(|connection| Slot::new(connection, Rc::clone(endpoint)))
    }

    /// A connection that is being made and that fewer wait for than it will probably have room for.
    pub(in crate::upstream) fn opening(&self) -> Option<Rc<Opening>> {
        let few = |opening: &&Rc<Opening>| opening.waiting.get() < self.expected.get();
        self.openings.borrow().iter().find(few).cloned()
    }

    /// Whether there is none, and none is being made.
    pub(in crate::upstream) fn is_empty(&self) -> bool {
        self.connections.borrow().is_empty() && self.openings.borrow().is_empty()
    }

    /// Notes that one is about to be made.
    pub(in crate::upstream) fn begin(&self) -> Rc<Opening> {
        let opening = Rc::new(Opening::default());
        self.openings.borrow_mut().push(Rc::clone(&opening));
        opening
    }

    /// Notes what came of it, and tells those that wait.
    fn finish(&self, opening: &Rc<Opening>, outcome: Outcome) {
        self.openings.borrow_mut().retain(|other| !Rc::ptr_eq(other, opening));
        opening.outcome.borrow_mut().get_or_insert(outcome);
        opening.wakers.take().into_iter().for_each(Waker::wake);
    }

    /// Ages connections by `elapsed`; lets those go that were idle for `limit` or have lived as long as they shall, all of the idle ones if there are
    /// `too_many`.
    pub(in crate::upstream) fn sweep(&self, elapsed: Duration, limit: Duration, too_many: impl Fn() -> bool) {
        self.connections.borrow_mut().retain(|connection| {
            // Both, whichever holds: each counts time.
            let due = connection.ages(elapsed, limit) | connection.outlives(elapsed) || (!connection.is_busy() && too_many());
            if due {
                connection.retire();
            }
            !due && (connection.has_room() || !connection.is_retired())
        });
    }

    /// Opens no more streams on what there is; those in flight finish.
    pub(in crate::upstream) fn retire(&self) {
        self.connections.take().iter().for_each(|connection| connection.retire());
    }
}

/// Makes a connection and drives it to its end; if ALPN says that it speaks HTTP/1.1 it goes to those that rest. For a task of its own,
/// so that a client that leaves does not take with it what others wait for.
pub(in crate::upstream) async fn run(
    endpoint: Rc<EndpointPool>,
    name: Option<ServerName<'static>>,
    cluster: Rc<Cluster>,
    opening: Rc<Opening>,
) {
    let counted = cluster.count_connection();
    let promise = Promise { endpoint: Rc::clone(&endpoint), opening };
    let connecting = async {
        let Established { stream, negotiated, scheme } =
            connect(endpoint.address(), None, cluster.tls.as_deref().zip(name.as_ref()), Asked::Configured).await?;
        match spoken(cluster.protocol, negotiated.as_deref()) {
            Spoken::Http1 => Ok(Made::Http1(stream)),
            Spoken::Http2 => connection::open(stream, scheme, INTERVALS)
                .await
                .map(|(connection, driver)| Made::Http2(connection, Box::new(driver)))
                .map_err(ConnectError::Tcp),
        }
    };
    let made = tokio::time::timeout(cluster.connect_timeout, connecting).await;
    let pool = &endpoint.http2;
    match made.unwrap_or_else(|_| Err(ConnectError::Tcp(io::ErrorKind::TimedOut.into()))) {
        Ok(Made::Http1(stream)) => {
            pool.expected.set(1);
            endpoint.succeeded();
            endpoint.rest(http1::Connection::new(stream, counted, endpoint.end_of_life(cluster.max_age)));
            promise.keep(Ok(()));
        }
        Ok(Made::Http2(connection, driver)) => {
            pool.expected.set(connection.most_streams());
            endpoint.succeeded();
            connection.live_for(lifetime(cluster.max_age));
            pool.connections.borrow_mut().push(Rc::clone(&connection));
            promise.keep(Ok(()));
            let unused = async {
                tokio::time::sleep(cluster.connect_timeout).await;
                connection.retire();
                std::future::pending().await
            };
            if endpoint.is_retired() {
                // For requests that were planned before a reload; nobody sweeps here any more.
                tokio::select! { () = driver.run() => {}, () = unused => {} }
            } else {
                driver.run().await;
            }
            drop(counted);
        }
        Err(error) => {
            // Once for all that wait: none of them has begun anything with the endpoint. Nobody does if it was only to be ready.
            if promise.opening.is_awaited() {
                cluster.failed(&endpoint);
            }
            endpoint.failed();
            promise.keep(Err(error.into()));
        }
    }
}

/// That those who wait are told, however the task ends.
struct Promise {
    endpoint: Rc<EndpointPool>,
    opening: Rc<Opening>,
}

impl Promise {
    fn keep(self, outcome: Outcome) {
        self.endpoint.http2.finish(&self.opening, outcome);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        // Does nothing if it was kept.
        self.endpoint.http2.finish(&self.opening, Err(ConnectError::Tcp(io::Error::other("the attempt was given up")).into()));
    }
}

/// A connection, by what is spoken on it.
enum Made {
    Http1(Transport),
    Http2(Rc<Connection>, Box<connection::Driver<Transport>>),
}

impl Opening {
    /// Whether somebody waits for it.
    pub(in crate::upstream) fn is_awaited(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Waits for its end.
    pub(in crate::upstream) async fn done(&self) -> Result<(), UpstreamError> {
        let _waiting = Waiting::new(self);
        std::future::poll_fn(|cx| {
            if let Some(outcome) = &*self.outcome.borrow() {
                return Poll::Ready(outcome.clone());
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
        .map_err(UpstreamError::from)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let (is_tls, error) = match error {
            ConnectError::Tcp(error) => (false, error),
            ConnectError::Tls(error) => (true, error),
        };
        Self { kind: error.kind(), message: error.to_string().into(), is_tls }
    }
}

impl From<Failure> for UpstreamError {
    fn from(Failure { kind, message, is_tls }: Failure) -> Self {
        let error = io::Error::new(kind, String::from(message));
        match kind {
            _ if is_tls => Self::Tls(error),
            io::ErrorKind::TimedOut => Self::ConnectTimeout,
            _ => Self::Connect(error),
        }
    }
}

/// Somebody who waits, until dropped.
struct Waiting<'o>(&'o Opening);

impl<'o> Waiting<'o> {
    fn new(opening: &'o Opening) -> Self {
        opening.waiting.set(opening.waiting.get() + 1);
        Self(opening)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get().saturating_sub(1));
    }
}

impl Slot {
    fn new(connection: Rc<Connection>, endpoint: Rc<EndpointPool>) -> Self {
        let is_shared = connection.begin();
        if is_shared {
            endpoint.rides();
        }
        Self { from_rest: !is_shared && connection.is_reused(), connection, endpoint }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.connection.end() {
            self.endpoint.rides_no_more();
        } else if self.endpoint.is_retired() {
            self.connection.retire();
        }
    }
}
