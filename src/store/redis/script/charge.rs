//! Joint charges: all or none of those in one slot.

use smallvec::SmallVec;

use super::numbers::{Kind, Numbers};
use super::{Args, Garbled, Invocation, Script, StoreKey, script};
use crate::clock::Nanos;
use crate::limit::sliding_window::Counts;
use crate::limit::{Algorithm, Boost, Outcome, Quota, Verdict};
use crate::store::redis::Answer;

/// What is asked of one counter.
#[derive(Debug, Clone)]
pub struct Ask<'q> {
    /// The counter. Those of one invocation are distinct and in one slot.
    pub key: StoreKey,
    /// The numbers it is held against.
    pub quota: &'q Quota,
    /// What they are multiplied with for a newcomer.
    pub boost: Boost,
    /// Any number, fixed per key: see [`Quota::decide`]. Of it 50 bits count.
    pub phase: u64,
    /// How many cells; 0 asks without taking.
    pub cost: u64,
    /// Up to this many more, if all asks conform: as many as conform now and without a wait. None of a queue or a log.
    pub more: u64,
}

/// All or none of `asks`. `now` is this process's clock, of which only the windows of calendars are taken; what decides is the server's
/// time, or `server_now` in microseconds instead, so that tests can travel.
#[must_use]
pub fn charge(asks: &[Ask<'_>], now: Nanos, server_now: Option<u64>) -> Invocation {
    let mut args = Args::starting_with(server_now);
    let has_logs = asks.iter().any(|ask| ask.quota.algorithm() == Algorithm::SlidingLog);
    args.text(if has_logs { "logs" } else { "" });
    for ask in asks {
        args.ask(ask, now);
    }
    Invocation { script: &CHARGE, keys: asks.iter().map(|ask| ask.key.clone()).collect(), args }
}

/// The answers, in the order of `asks`.
///
/// # Errors
/// When the reply is not one to these asks.
pub fn charged(asks: &[Ask<'_>], reply: &redis::Value) -> Result<SmallVec<[Answer; 4]>, Garbled> {
    let mut reply = Reply::of(reply)?;
    let (mut denied, now, mut carries) = (reply.next()?, reply.next()?, reply.next()?);
    let all_conform = denied == 0;
    let mut answers = SmallVec::new();
    for ask in asks {
        let numbers = Numbers::of(&ask.quota.boosted(ask.boost));
        let exceeds = denied & 1 == 1;
        denied >>= 1;
        let mut answer = match numbers.kind {
            Kind::Gcra | Kind::TokenBucket | Kind::Meter | Kind::Queue => time(&numbers, ask.cost, exceeds, now, &mut reply)?,
            Kind::Fixed | Kind::Calendar => fixed(&numbers, ask.cost, exceeds, &mut reply)?,
            Kind::Sliding => sliding(&numbers, ask.cost, exceeds, &mut reply)?,
            Kind::Log => log(&numbers, ask.cost, exceeds, now, &mut reply)?,
        };
        if numbers.kind.grants() && ask.more > 0 {
            let granted = reply.next()?;
            answer.granted = if all_conform { granted } else { 0 };
            if numbers.kind.is_time() {
                // What is leased lies behind the charge.
                answer.outcome.mark = answer.outcome.mark.saturating_add(numbers.time_of(answer.granted).unwrap_or(0));
            }
        }
        if carries & 1 == 1 {
            answer.outcome.verdict = Verdict::Exceeds { retry_after: nanos(reply.next()?) };
        }
        carries >>= 1;
        answer.outcome.boost = ask.boost;
        answers.push(answer);
    }
    reply.end()?;
    if denied == 0 && carries == 0 { Ok(answers) } else { Err(Garbled) }
}

/// The numbers of an answer, in order.
struct Reply<'r>(&'r [u8]);

impl<'r> Reply<'r> {
    fn of(reply: &'r redis::Value) -> Result<Self, Garbled> {
        match reply {
            redis::Value::BulkString(bytes) => Ok(Self(bytes)),
            _ => Err(Garbled),
        }
    }

    fn signed(&mut self) -> Result<i64, Garbled> {
        let (number, rest) = self.0.split_first_chunk().ok_or(Garbled)?;
        self.0 = rest;
        Ok(i64::from_be_bytes(*number))
    }

    fn next(&mut self) -> Result<u64, Garbled> {
        u64::try_from(self.signed()?).map_err(|_| Garbled)
    }

    fn end(self) -> Result<(), Garbled> {
        if self.0.is_empty() { Ok(()) } else { Err(Garbled) }
    }
}

impl Args {
    /// A quota as values name it, and in one argument the numbers that go with it: the script reads those faster than text, and a client and a
    /// server have less to take apart.
    fn ask(&mut self, ask: &Ask<'_>, now: Nanos) {
        let plain = Numbers::of(ask.quota);
        self.quota(ask.quota, &plain);
        let numbers = if ask.boost == Boost::NONE { plain } else { Numbers::of(&ask.quota.boosted(ask.boost)) };
        let (cost, more) = (ask.cost.min(MOST), ask.more.min(MOST));
        if numbers.kind.is_time() {
            self.time(&numbers, ask.cost, if numbers.kind.grants() { more } else { 0 });
        } else {
            self.pack([numbers.count, numbers.period, cost]);
        }
        match ask.quota.calendar() {
            _ if numbers.kind.is_time() || numbers.kind == Kind::Log => {}
            Some(calendar) => {
                let window = calendar.unix_window(now);
                self.pack([more, window.number, window.start, window.end, window.next_end]);
            }
            None => self.pack([more, (ask.phase & PHASE) % numbers.period.max(1)]),
        }
        self.pack([ask.phase & PHASE]);
        self.end();
    }

    /// How far ahead a TAT can be, from where on a charge of this cost exceeds, and what it adds.
    fn time(&mut self, numbers: &Numbers, cost: u64, more: u64) {
        let (past, increment) = match numbers.increment(cost) {
            _ if cost == 0 => (numbers.ceiling() + 1, 0),
            Some(increment) => {
                let is_queue = numbers.kind == Kind::Queue;
                let at_once = if is_queue { 0 } else { numbers.capacity.saturating_sub(increment) };
                (at_once + numbers.max_delay + 1, increment)
            }
            None => (0, 0),
        };
        self.pack([numbers.ceiling(), past, increment, more]);
        if more > 0 {
            self.pack([numbers.capacity, numbers.time_of(more).unwrap_or(NEVER), numbers.count, numbers.period]);
        }
    }

    /// Numbers below 2^56, each in seven bytes: `I7` to the scripts.
    fn pack<const N: usize>(&mut self, numbers: [u64; N]) {
        for number in numbers {
            let [_, bytes @ ..] = number.to_be_bytes();
            self.bytes.extend_from_slice(&bytes);
        }
    }
}

fn time(numbers: &Numbers, cost: u64, exceeds: bool, now: u64, reply: &mut Reply<'_>) -> Result<Answer, Garbled> {
    let before = reply.next()?;
    let is_queue = numbers.kind == Kind::Queue;
    let increment = if cost == 0 { Some(0) } else { numbers.increment(cost) };
    let filled = before + increment.unwrap_or(0).min(NEVER);
    let over = if is_queue { before } else { filled.saturating_sub(numbers.capacity) };
    let (verdict, backlog, delay) = if !exceeds {
        (Verdict::Conforms, filled, if cost == 0 { 0 } else { over })
    } else if increment.is_none() {
        (Verdict::Never, before, 0)
    } else {
        (Verdict::Exceeds { retry_after: nanos(over.saturating_sub(numbers.max_delay).max(1)) }, before, 0)
    };
    let remaining = if is_queue {
        numbers.max_delay.checked_sub(backlog).map_or(0, |room| numbers.places_in(room))
    } else {
        numbers.cells_in(numbers.capacity.saturating_sub(backlog))
    };
    let outcome = Outcome {
        verdict,
        limit: numbers.burst,
        remaining: remaining.min(numbers.burst),
        reset_after: nanos(backlog),
        delay: nanos(delay),
        boost: Boost::NONE,
        mark: now + backlog,
    };
    Ok(Answer { outcome, granted: 0, until_end: u64::MAX, window: 0 })
}

fn fixed(numbers: &Numbers, cost: u64, exceeds: bool, reply: &mut Reply<'_>) -> Result<Answer, Garbled> {
    let (number, count, until_end) = (reply.next()?, reply.next()?, nanos(reply.next()?));
    let verdict = verdict(numbers, cost, exceeds, until_end);
    let count = if exceeds { count } else { count.saturating_add(cost) };
    Ok(windowed(numbers, verdict, numbers.count.saturating_sub(count), if count == 0 { 0 } else { until_end }, until_end, number))
}

fn sliding(numbers: &Numbers, cost: u64, exceeds: bool, reply: &mut Reply<'_>) -> Result<Answer, Garbled> {
    let (number, current, previous) = (reply.next()?, reply.next()?, reply.next()?);
    let passed = reply.signed()?;
    let period = numbers.period;
    // Less than 0: the window begins after that long, since the clock went back a little.
    let (elapsed, ahead) = (u64::try_from(passed).unwrap_or(0).min(period), u64::try_from(passed.saturating_neg()).unwrap_or(0));
    let counts = Counts { current, previous, elapsed, ahead, period, limit: numbers.count };
    let verdict = verdict(numbers, cost, exceeds, nanos(counts.retry_after(cost).max(1)));
    let after = if exceeds { counts } else { Counts { current: current.saturating_add(cost), ..counts } };
    let until_end = nanos(ahead + period - elapsed);
    Ok(windowed(numbers, verdict, after.room(), nanos(after.reset_after()), until_end, number))
}

fn log(numbers: &Numbers, cost: u64, exceeds: bool, now: u64, reply: &mut Reply<'_>) -> Result<Answer, Garbled> {
    let (used, last, retry_after) = (reply.next()?, reply.next()?, reply.next()?);
    let verdict = verdict(numbers, cost, exceeds, nanos(retry_after.max(1)));
    let taken = if exceeds { 0 } else { cost };
    let reset_after = if taken == 0 { last } else { numbers.period.max(last) };
    let remaining = numbers.count.saturating_sub(used.saturating_add(taken));
    let mut answer = windowed(numbers, verdict, remaining, nanos(reset_after), u64::MAX, 0);
    answer.outcome.mark = now;
    Ok(answer)
}

fn verdict(numbers: &Numbers, cost: u64, exceeds: bool, retry_after: Nanos) -> Verdict {
    match exceeds {
        false => Verdict::Conforms,
        true if cost > numbers.count => Verdict::Never,
        true => Verdict::Exceeds { retry_after },
    }
}

fn windowed(numbers: &Numbers, verdict: Verdict, remaining: u64, reset_after: Nanos, until_end: Nanos, window: u64) -> Answer {
    let outcome = Outcome { verdict, limit: numbers.count, remaining, reset_after, delay: 0, boost: Boost::NONE, mark: window };
    Answer { outcome, granted: 0, until_end, window }
}

fn nanos(micros: u64) -> Nanos {
    micros.saturating_mul(1000)
}

static CHARGE: Script = script!("cells.lua", "quotas.lua", "log.lua", "charge.lua");
/// Of a phase this much is sent, since the scripts must be able to add it to a time.
pub(super) const PHASE: u64 = (1 << 50) - 1;
/// No window holds so many cells, so a cost above it is sent as this.
const MOST: u64 = 1 << 40;
/// Longer than any capacity, and still exact in the scripts.
const NEVER: u64 = (1 << 53) - 1;
