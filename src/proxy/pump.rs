//! Bytes between a client and an upstream that have switched protocols, both ways at once.
//!
//! A [`Flow`] reads only when what it read before has been taken, so a slow reader slows the sender and nothing piles up; a tunnel at
//! rest has no buffer. Half a close goes on as half a close. What breaks ends the tunnel once what came before has gone out.
//!
//! Of a WebSocket the flows know where frames begin, because only there another frame may stand: the one by which the
//! gateway says that it [closes](Pump::close). Payloads are looked at by nobody.

use std::borrow::Cow;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::Clock;
use crate::clock::deadline::Deadline;
use crate::websocket::{Close, Frames, Limits, Meter, Refusal, Sender};

/// One of the two connections.
pub(super) trait Side: AsyncRead + AsyncWrite + Unpin {
    /// Whether the end that was just read is one: where a reset reads as an end, or an end that nobody announced, this tells.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Makes the drop that follows a reset rather than an end.
    fn reset_on_drop(&mut self);
}

/// Why a tunnel has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Both sides have.
    Closed,
    /// The client broke it.
    Client,
    /// Upstream broke it.
    Upstream,
    /// Nothing was said for too long.
    Idle,
    /// The gateway or its listener ends.
    Drain,
    /// The client has sent what it may not.
    Refused(Refusal),
}

/// Two sides and what moves between them.
#[derive(Debug)]
pub(super) struct Pump<'t, C, U> {
    client: &'t mut C,
    upstream: &'t mut U,
    up: Flow,
    down: Flow,
    idle: Duration,
    clock: &'t Clock,
    is_websocket: bool,
    /// How both sides are told that the gateway closes, once it does.
    closing: Option<Close>,
    why: Option<Why>,
}

impl<'t, C: Side, U: Side> Pump<'t, C, U> {
    /// Of a protocol that nobody here knows.
    pub(super) fn blind(client: &'t mut C, upstream: &'t mut U, idle: Duration, clock: &'t Clock) -> Self {
        let (up, down) = (Flow::new(Watch::Blind), Flow::new(Watch::Blind));
        Self { client, upstream, up, down, idle, clock, is_websocket: false, closing: None, why: None }
    }

    /// Of a WebSocket, whose client may send what `limits` say.
    pub(super) fn websocket(
        client: &'t mut C,
        upstream: &'t mut U,
        idle: Duration,
        clock: &'t Clock,
        limits: Option<Limits>,
    ) -> Self {
        let frames = || Watch::Frames(Frames::default());
        let up = Flow::new(limits.map_or_else(frames, |limits| Watch::Meter(Box::new(Meter::new(limits)))));
        let down = Flow::new(frames());
        Self { client, upstream, up, down, idle, clock, is_websocket: true, closing: None, why: None }
    }

    /// Moves bytes until it is over. `told` learns how many have come from the client, and from upstream. When `ending` comes, a
    /// WebSocket is closed; what nobody knows goes on.
    pub(super) async fn run(mut self, ending: impl Future<Output = ()>, told: impl Fn(u64, u64)) -> Why {
        let (mut ending, deadline) = (pin!(ending), Deadline::new());
        deadline.arm(self.idle);
        std::future::poll_fn(|cx| {
            if self.is_websocket && self.why.is_none() && ending.as_mut().poll(cx).is_ready() {
                self.close(Close::GOING_AWAY, Why::Drain, &deadline);
            }
            let polled = self.poll(&deadline, cx);
            told(self.up.passed, self.down.passed);
            polled
        })
        .await
    }

    fn poll(&mut self, deadline: &Deadline, cx: &mut Context<'_>) -> Poll<Why> {
        loop {
            let close = |sender| self.closing.map(|close| (close, sender));
            let (to_upstream, to_client) = (close(By::Client), close(By::Server));
            let up = self.up.poll(self.client, self.upstream, to_upstream, self.clock, cx);
            let down = self.down.poll(self.upstream, self.client, to_client, self.clock, cx);
            if self.up.has_moved() | self.down.has_moved() {
                deadline.arm(if self.why.is_some() { GRACE } else { self.idle });
            }
            for (polled, source, sink) in [(up, Why::Client, Why::Upstream), (down, Why::Upstream, Why::Client)] {
                match polled {
                    // All that came before has gone out, and nothing more will come.
                    Poll::Ready(Err(Fault::Source)) => return Poll::Ready(*self.why.get_or_insert(source)),
                    // What it said last may still be there to be read.
                    Poll::Ready(Err(Fault::Sink)) if self.why.is_none() => {
                        self.why = Some(sink);
                        deadline.arm(GRACE);
                    }
                    Poll::Ready(Err(Fault::Refused(refusal))) => {
                        self.close(refusal.close(), Why::Refused(refusal), deadline);
                    }
                    Poll::Ready(Err(Fault::Sink) | Ok(())) | Poll::Pending => {}
                }
            }
            if up.is_ready() && down.is_ready() && !matches!(up, Poll::Ready(Err(Fault::Refused(_)))) {
                return Poll::Ready(self.why.unwrap_or(Why::Closed));
            }
            if matches!(up, Poll::Ready(Err(Fault::Refused(_)))) {
                continue;
            }
            ready!(deadline.poll_due(cx));
            if !self.is_websocket || self.why.is_some() {
                return Poll::Ready(self.why.unwrap_or(Why::Idle));
            }
            self.close(Close::IDLE, Why::Idle, deadline);
        }
    }

    /// From now on, each side gets a Close frame as soon as it has got the whole of the frame before, and what it still sends is thrown
    /// away until it ends; a side that takes too long is left.
    fn close(&mut self, close: Close, why: Why, deadline: &Deadline) {
        (self.closing, self.why) = (Some(close), Some(why));
        deadline.arm(GRACE);
    }
}

/// Bytes in one direction.
#[derive(Debug)]
struct Flow {
    /// Read, and not yet taken by the sink.
    pending: Bytes,
    unflushed: bool,
    state: State,
    watch: Watch,
    passed: u64,
    moved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Moves bytes.
    Open,
    /// What is pending goes out, then the sink is told that nothing more will come. Whether the source has ended.
    Ending { source_ended: bool },
    /// Nothing moves any more. Whether the source has ended.
    Over { source_ended: bool },
}

/// What is known of the bytes that pass.
#[derive(Debug)]
enum Watch {
    Blind,
    Frames(Frames),
    Meter(Box<Meter>),
}

/// Why a flow can't go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Source,
    Sink,
    Refused(Refusal),
}

/// Who sends in a flow.
#[derive(Debug, Clone, Copy)]
enum By {
    Client,
    Server,
}

impl Flow {
    fn new(watch: Watch) -> Self {
        Self { pending: Bytes::new(), unflushed: false, state: State::Open, watch, passed: 0, moved: false }
    }

    fn has_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Moves what can be moved. Ready when it is over, and when it can't go on.
    fn poll<A: Side, B: Side>(
        &mut self,
        from: &mut A,
        to: &mut B,
        closing: Option<(Close, By)>,
        clock: &Clock,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        loop {
            if let State::Over { source_ended } = self.state {
                if !source_ended && closing.is_some() {
                    ready!(self.poll_discard(from, cx));
                }
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_out(to, cx)).is_err() {
                (self.pending, self.state) = (Bytes::new(), State::Over { source_ended: false });
                return Poll::Ready(Err(Fault::Sink));
            }
            match (self.state, closing) {
                (State::Ending { source_ended }, _) => {
                    // A sink that can't be told any more has gone, which the other direction will show.
                    let _ = ready!(Pin::new(&mut *to).poll_shutdown(cx));
                    (self.state, self.moved) = (State::Over { source_ended }, true);
                }
                (_, Some((close, by))) if self.watch.at_boundary() => self.say(close, by),
                _ => ready!(self.poll_in(from, to, clock, cx))?,
            }
        }
    }

    /// Gives the sink what is pending.
    fn poll_out<B: Side>(&mut self, to: &mut B, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            match ready!(Pin::new(&mut *to).poll_write(cx, &self.pending))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                taken => self.pending.advance(taken),
            }
            (self.moved, self.unflushed) = (true, true);
        }
        if self.unflushed {
            ready!(Pin::new(&mut *to).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and gives the sink as much of it as it takes at once.
    fn poll_in<A: Side, B: Side>(
        &mut self,
        from: &mut A,
        to: &mut B,
        clock: &Clock,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        let mut room = [const { MaybeUninit::uninit() }; ROOM];
        let mut buffer = ReadBuf::uninit(&mut room);
        let read = ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer));
        if read.is_err() || buffer.filled().is_empty() {
            let ended = if read.is_ok() { ready!(from.poll_ended(cx)) } else { read };
            if ended.is_err_and(|error| self.watch.is_broken_by(&error)) {
                return Poll::Ready(Err(Fault::Source));
            }
            self.pending = self.watch.rest();
            self.state = State::Ending { source_ended: true };
            return Poll::Ready(Ok(()));
        }
        self.moved = true;
        let (admitted, refusal) = self.watch.admit(buffer.filled(), clock);
        self.passed += u64::try_from(admitted.len()).unwrap_or_default();
        // Most sinks take all of it now, and then it is copied nowhere.
        let taken = match Pin::new(&mut *to).poll_write(cx, &admitted) {
            Poll::Ready(Ok(taken)) => taken,
            // Shown again by the next attempt, if it is still there then.
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        self.unflushed |= taken > 0;
        self.pending = Bytes::copy_from_slice(admitted.get(taken..).unwrap_or_default());
        Poll::Ready(refusal.map_or(Ok(()), |refusal| Err(Fault::Refused(refusal))))
    }

    /// Throws away what comes, until nothing does.
    fn poll_discard<A: Side>(&mut self, from: &mut A, cx: &mut Context<'_>) -> Poll<()> {
        let mut room = [const { MaybeUninit::uninit() }; ROOM];
        loop {
            let mut buffer = ReadBuf::uninit(&mut room);
            let ended = ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer)).is_err() || buffer.filled().is_empty();
            if ended {
                self.state = State::Over { source_ended: true };
                return Poll::Ready(());
            }
        }
    }

    /// The last frame to the sink; none behind a Close frame that has passed already.
    fn say(&mut self, close: Close, by: By) {
        if !self.watch.has_closed() {
            let sender = match by {
                By::Client => Sender::Client(mask()),
                By::Server => Sender::Server,
            };
            self.pending = close.frame(sender);
        }
        self.state = State::Ending { source_ended: false };
    }
}

impl Watch {
    /// What may pass of what has come.
    fn admit<'b>(&mut self, bytes: &'b [u8], clock: &Clock) -> (Cow<'b, [u8]>, Option<Refusal>) {
        let meter = match self {
            Self::Blind => return (bytes.into(), None),
            Self::Frames(frames) => {
                frames.pass(bytes);
                return (bytes.into(), None);
            }
            Self::Meter(meter) => meter,
        };
        let mut bytes = Cow::Borrowed(bytes);
        if let Some(mut held) = meter.take_held() {
            held.extend_from_slice(&bytes);
            bytes = held.into();
        }
        let (admitted, refusal) = meter.admit(&bytes, clock.now());
        match &mut bytes {
            Cow::Borrowed(bytes) => *bytes = bytes.get(..admitted).unwrap_or_default(),
            Cow::Owned(bytes) => bytes.truncate(admitted),
        }
        (bytes, refusal)
    }

    /// Whether such an end is none. An unexpected one is what TLS has without a `close_notify`, which many clients leave out: frames show
    /// by themselves whether something is missing, and of what nobody knows nobody could tell.
    fn is_broken_by(&self, error: &io::Error) -> bool {
        matches!(self, Self::Blind) || error.kind() != io::ErrorKind::UnexpectedEof
    }

    /// What was held back and will not be completed.
    fn rest(&mut self) -> Bytes {
        match self {
            Self::Meter(meter) => meter.take_held().map(Bytes::from).unwrap_or_default(),
            Self::Blind | Self::Frames(_) => Bytes::new(),
        }
    }

    fn at_boundary(&self) -> bool {
        match self {
            Self::Blind => false,
            Self::Frames(frames) => frames.at_boundary(),
            Self::Meter(meter) => meter.at_boundary(),
        }
    }

    fn has_closed(&self) -> bool {
        match self {
            Self::Blind => false,
            Self::Frames(frames) => frames.has_closed(),
            Self::Meter(meter) => meter.has_closed(),
        }
    }
}

/// A mask hides what a client sends from what is in between (RFC 6455 section 10.3). What we send is always the same, so where there is
/// no randomness a poor mask will do.
fn mask() -> [u8; 4] {
    let mut mask = [0; 4];
    let _ = aws_lc_rs::rand::fill(&mut mask);
    mask
}

/// One read.
const ROOM: usize = 32 << 10;
/// How long a side may stand still while a tunnel is ended.
const GRACE: Duration = Duration::from_secs(5);
