//! One HTTP/2 connection: how many streams it has and may have, and the task that drives it.
//!
//! It is open to new streams once the peer has sent its SETTINGS, so that the number it allows is known before the first stream, and
//! that whoever does not speak HTTP/2 fails as a connection and not as a request. It is closed to them by a GOAWAY, by retiring, or
//! by silence; streams in flight then finish, and the connection ends with the last.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection as Protocol, SendRequest};
use http::uri::Scheme;
use tokio::io::{AsyncRead, AsyncWrite};

use super::keep_alive::{Intervals, KeepAlive};
use crate::clock::deadline::Deadline;

/// A connection as the pool and its exchanges see it.
#[derive(Debug)]
pub(in crate::upstream) struct Connection {
    /// Opens streams; taken away when there shall be no more of them.
    open: RefCell<Option<SendRequest<Bytes>>>,
    /// What requests on it are called.
    pub(super) scheme: Scheme,
    streams: Cell<u32>,
    /// Streams that were ever opened.
    opened: Cell<u64>,
    /// Things heard from the peer about any stream.
    heard: Cell<u64>,
    /// The peer has refused a stream that it should have room for; until one of the others ends.
    refuses: Cell<bool>,
    /// The peer has said nothing for too long, not even when asked.
    dead: Cell<bool>,
    idle: Cell<Duration>,
    /// How long it still takes new streams.
    left: Cell<Duration>,
    /// Runs while there are streams; see [`KeepAlive`].
    pub(super) silence: Deadline,
}

/// Drives a connection. For a task of its own.
pub(super) struct Driver<S: AsyncRead + AsyncWrite + Unpin> {
    protocol: Protocol<S, Bytes>,
    keep_alive: KeepAlive,
    connection: Rc<Connection>,
}

/// Says hello and waits until the peer has. The caller bounds the time.
pub(super) async fn open<S>(stream: S, scheme: Scheme, intervals: Intervals) -> Result<(Rc<Connection>, Driver<S>), io::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (open, mut protocol) = builder().handshake(stream).await.map_err(io::Error::other)?;
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut protocol).poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Err(ended.err().map_or(io::ErrorKind::UnexpectedEof.into(), io::Error::other))),
        Poll::Pending if open.current_max_send_streams() == UNKNOWN => Poll::Pending,
        Poll::Pending => Poll::Ready(Ok(())),
    })
    .await?;
    if open.current_max_send_streams() == 0 {
        return Err(io::Error::other("upstream allows no streams"));
    }
    let keep_alive = KeepAlive::new(protocol.ping_pong(), intervals);
    let connection = Rc::new(Connection {
        open: RefCell::new(Some(open)),
        scheme,
        streams: Cell::new(0),
        opened: Cell::new(0),
        heard: Cell::new(0),
        refuses: Cell::new(false),
        dead: Cell::new(false),
        idle: Cell::default(),
        left: Cell::new(Duration::MAX),
        silence: Deadline::new(),
    });
    let driver = Driver { protocol, keep_alive, connection: Rc::clone(&connection) };
    Ok((connection, driver))
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(UNKNOWN)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW * MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_reset_streams(REMEMBERED_RESETS)
        // Every frame that was on its way when a client left counts here, for the life of the connection: clients that leave would end it
        // for all others. Upstreams are the operator's own; what they may make us do is bounded by what they are asked.
        .max_local_error_reset_streams(None)
        .data_frame_budget(SMALL_FRAMES);
    builder
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Until the connection has ended, and with it every stream on it.
    pub(super) async fn run(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
        self.connection.retire();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::pin::Pin::new(&mut self.protocol).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        self.keep_alive.poll_dead(&self.connection, cx)
    }
}

impl Connection {
    /// Whether it takes another stream now. A connection that never will again is retired on the way.
    pub(super) fn has_room(&self) -> bool {
        let mut open = self.open.borrow_mut();
        let Some(sender) = open.as_mut() else { return false };
        // Never pending: that is for handles that have queued a stream, which this one never does.
        if !matches!(sender.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(()))) {
            *open = None;
            return false;
        }
        !self.refuses.get() && self.streams.get() < most_streams(sender)
    }

    /// A handle to open a stream with.
    pub(super) fn sender(&self) -> Option<SendRequest<Bytes>> {
        self.open.borrow().clone()
    }

    /// As many streams as it may have at once.
    pub(super) fn most_streams(&self) -> u32 {
        self.open.borrow().as_ref().map_or(0, most_streams)
    }

    /// Opens no more streams: those in flight finish, then it ends.
    pub(super) fn retire(&self) {
        *self.open.borrow_mut() = None;
    }

    pub(super) fn is_retired(&self) -> bool {
        self.open.borrow().is_none()
    }

    /// Says that a stream begins; whether others were there.
    pub(super) fn begin(&self) -> bool {
        let before = self.streams.get();
        self.streams.set(before + 1);
        self.opened.set(self.opened.get() + 1);
        before > 0
    }

    /// Says that a stream has ended; whether others are still there.
    pub(super) fn end(&self) -> bool {
        let left = self.streams.get().saturating_sub(1);
        self.streams.set(left);
        self.idle.set(Duration::ZERO);
        self.refuses.set(false);
        left > 0
    }

    pub(super) fn is_busy(&self) -> bool {
        self.streams.get() > 0
    }

    /// Whether it is in use, or has been made for somebody who has yet to use it, and so is counted as in use by those who wait.
    pub(super) fn counts_as_used(&self) -> bool {
        self.is_busy() || self.opened.get() == 0
    }

    /// Whether it has carried more than this one stream.
    pub(super) fn is_reused(&self) -> bool {
        self.opened.get() > 1
    }

    /// The peer has refused a stream; new ones go elsewhere until another one has ended, or a moment has passed.
    pub(super) fn refused(&self) {
        self.refuses.set(true);
    }

    /// The peer has not answered a ping.
    pub(super) fn died(&self) {
        self.dead.set(true);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// Notes a sign of life.
    pub(super) fn hear(&self) {
        self.heard.set(self.heard.get().wrapping_add(1));
    }

    /// How many signs of life there were.
    pub(super) fn heard(&self) -> u64 {
        self.heard.get()
    }

    /// Somebody has waited too long for a sign of life since there were `heard` of them. If nobody else has seen one either, the connection is
    /// probably dead, and more than the streams that are on it shall not wait for that to turn out.
    pub(super) fn suspect(&self, heard: u64) {
        if self.heard() == heard {
            self.retire();
        }
    }

    /// Says how long it takes new streams from now on.
    pub(super) fn live_for(&self, time: Duration) {
        self.left.set(time);
    }

    /// Ages it; true once it has lived as long as it shall, whether streams are on it or not.
    pub(super) fn outlives(&self, elapsed: Duration) -> bool {
        if self.left.get() != Duration::MAX {
            self.left.set(self.left.get().saturating_sub(elapsed));
        }
        self.left.get().is_zero()
    }

    /// Ages it; true once it has been idle for `limit`. Also when a peer's refusals are forgotten.
    pub(super) fn ages(&self, elapsed: Duration, limit: Duration) -> bool {
        self.refuses.set(false);
        self.idle.set(self.idle.get() + elapsed);
        !self.is_busy() && self.idle.get() >= limit
    }
}

fn most_streams(sender: &SendRequest<Bytes>) -> u32 {
    u32::try_from(sender.current_max_send_streams()).unwrap_or(u32::MAX).min(MAX_STREAMS)
}

/// What the number of streams is before the peer has said one: it could never say this.
const UNKNOWN: usize = usize::MAX - 1;
/// The least that RFC 9113 §6.5.2 recommends to allow. More than that on one TCP connection wait for each other's losses.
pub(super) const MAX_STREAMS: u32 = 100;
/// What a stream may hold for a client that reads slowly. The connection's window is that of all its streams together: else a few
/// slow clients would hold up everybody.
const STREAM_WINDOW: u32 = 64 << 10;
/// What a stream may hold for an upstream that reads slowly, however large its windows are.
const SEND_BUFFER: usize = 64 << 10;
/// Streams whose client has left and for which frames may still come, for a second each; more of them are answered with a reset.
const REMEMBERED_RESETS: usize = 1000;
/// As in HTTP/1.1.
const MAX_HEADER_LIST: u32 = 64 << 10;
/// What unread DATA frames below 256 bytes may cost: each counts by what it is shorter, which is about what it takes in memory. Beyond this
/// the `h2` crate ends the connection with all its streams. The default is reached by five slow clients of a stream of small messages;
/// this one not by a hundred, unless their messages are below 13 bytes.
const SMALL_FRAMES: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::deadline;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    const SHORT: Intervals =
        Intervals { quiet: Duration::from_millis(40), patience: Duration::from_millis(80), apart: Duration::from_secs(3600) };

    /// Frames behind a reset.
    const LATE: usize = 5;

    fn on_runtime(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(deadline::run());
            tokio::time::timeout(Duration::from_secs(8), test).await.unwrap();
        });
    }

    /// A peer that says hello and then answers pings, or not, and counts them. Frames of every stream that is reset were on their way.
    async fn peer(mut stream: DuplexStream, answers: bool, said: Rc<Cell<u32>>) {
        const RESET: u8 = 3;
        const PING: u8 = 6;
        stream.read_exact(&mut [0; 24]).await.unwrap();
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        let mut head = [0; 9];
        while stream.read_exact(&mut head).await.is_ok() {
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            stream.read_exact(&mut payload).await.unwrap();
            if head[3] == RESET {
                let data = [&[0, 0, 1, 0, 0], &head[5..], b"x"].concat();
                stream.write_all(&data.repeat(LATE)).await.unwrap();
            }
            if head[3] == PING {
                said.set(said.get() + 1);
                if answers {
                    stream.write_all(&[0, 0, 8, PING, 1, 0, 0, 0, 0]).await.unwrap();
                    stream.write_all(&payload).await.unwrap();
                }
            }
        }
    }

    async fn connected(answers: bool) -> (Rc<Connection>, tokio::task::JoinHandle<()>, Rc<Cell<u32>>) {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let pings = Rc::new(Cell::new(0));
        tokio::task::spawn_local(peer(theirs, answers, Rc::clone(&pings)));
        let (connection, driver) = open(ours, Scheme::HTTP, SHORT).await.unwrap();
        (connection, tokio::task::spawn_local(driver.run()), pings)
    }

    fn request(connection: &Connection) -> h2::client::ResponseFuture {
        connection.begin();
        let request = http::Request::get("http://a/").version(http::Version::HTTP_2).body(()).unwrap();
        connection.sender().unwrap().send_request(request, true).unwrap().0
    }

    #[test]
    fn a_peer_that_answers_no_ping_is_dead() {
        on_runtime(async {
            let (connection, driver, pings) = connected(false).await;
            let response = request(&connection);
            assert!(response.await.unwrap_err().is_io(), "who waits for it is told");
            driver.await.unwrap();
            assert!(pings.get() == 1 && connection.is_retired());
        });
    }

    #[test]
    fn a_peer_that_is_only_slow_is_asked_once_and_left_alone() {
        on_runtime(async {
            let (connection, driver, pings) = connected(true).await;
            let response = request(&connection);
            let waited = tokio::time::timeout(SHORT.quiet * 10, response).await;
            assert!(waited.is_err() && !driver.is_finished() && !connection.is_retired());
            assert_eq!(pings.get(), 1);
        });
    }

    #[test]
    fn clients_that_leave_do_not_end_it_for_the_others() {
        on_runtime(async {
            let (connection, driver, _) = connected(true).await;
            for _ in 0..50 {
                let streams: Vec<_> = (0..90).map(|_| request(&connection)).collect();
                tokio::task::yield_now().await;
                drop(streams);
                for _ in 0..90 {
                    connection.end();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            assert!(connection.has_room() && !driver.is_finished());
        });
    }

    #[test]
    fn a_connection_at_rest_is_not_pinged() {
        on_runtime(async {
            let (connection, driver, pings) = connected(false).await;
            drop(request(&connection));
            connection.end();
            tokio::time::sleep(SHORT.quiet * 10).await;
            assert!(pings.get() == 0 && !driver.is_finished(), "{} pings", pings.get());
            connection.retire();
            driver.await.unwrap();
        });
    }
}
