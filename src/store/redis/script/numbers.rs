//! A quota in the store's unit, and as values name it.

use super::Args;
use crate::limit::{Algorithm, Quota};

/// The numbers of a quota whose period is in microseconds. What comes out of them is what [`Quota`] would say whose nanoseconds were
/// microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) kind: Kind,
    /// Cells per period (`L`).
    pub(super) count: u64,
    /// The period (`P` or `W`).
    pub(super) period: u64,
    /// Cells at once from idle, as they are told.
    pub(super) burst: u64,
    /// The time in which a full burst drains.
    pub(super) capacity: u64,
    pub(super) max_delay: u64,
    pub(super) may_owe: bool,
}

/// How a state is written. The letters are those of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gcra,
    TokenBucket,
    Meter,
    Queue,
    Fixed,
    Calendar,
    Sliding,
    Log,
}

impl Kind {
    fn of(quota: &Quota) -> Self {
        match quota.algorithm() {
            // What is remembered of newcomers has no place in the store; as a quota it never refuses.
            Algorithm::Gcra | Algorithm::FirstSeen => Self::Gcra,
            Algorithm::TokenBucket => Self::TokenBucket,
            Algorithm::LeakyBucket if quota.max_delay() > 0 => Self::Queue,
            Algorithm::LeakyBucket => Self::Meter,
            Algorithm::FixedWindow if quota.calendar().is_some() => Self::Calendar,
            Algorithm::FixedWindow => Self::Fixed,
            Algorithm::SlidingWindow => Self::Sliding,
            Algorithm::SlidingLog => Self::Log,
        }
    }

    fn letter(self) -> u8 {
        match self {
            Self::Gcra => b'g',
            Self::TokenBucket => b't',
            Self::Meter => b'l',
            Self::Queue => b'q',
            Self::Fixed => b'f',
            Self::Calendar => b'c',
            Self::Sliding => b'w',
            Self::Log => b's',
        }
    }

    /// Whether the state is a time.
    pub(super) fn is_time(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::Meter | Self::Queue)
    }

    /// Whether more can be taken than a request asks for. Places of a queue and cells of a log are for those who are there.
    pub(super) fn grants(self) -> bool {
        !matches!(self, Self::Queue | Self::Log)
    }
}

impl Numbers {
    pub(super) fn of(quota: &Quota) -> Self {
        let mut numbers = Self {
            kind: Kind::of(quota),
            count: quota.count().min(LARGEST),
            period: quota.period().div_ceil(1000).min(LARGEST),
            burst: quota.burst(),
            capacity: 0,
            max_delay: quota.max_delay().div_ceil(1000).min(CENTURY),
            may_owe: quota.may_owe(),
        };
        let at_once = if numbers.kind == Kind::Queue { numbers.count } else { numbers.burst };
        let full = numbers.time_of(at_once).unwrap_or(CENTURY);
        let is_whole = numbers.period.is_multiple_of(numbers.count);
        let interval = numbers.period / numbers.count.max(1);
        let slack = if is_whole { 0 } else { at_once.saturating_sub(1).min(interval.saturating_sub(1)) };
        numbers.capacity = full.saturating_add(slack).min(CENTURY);
        numbers
    }

    /// The furthest ahead of now that a TAT can be.
    pub(super) fn ceiling(&self) -> u64 {
        if self.may_owe { CENTURY } else { self.capacity + self.max_delay }
    }

    /// `⌈cells·P/L⌉`; nothing if that is more than a century.
    pub(super) fn time_of(&self, cells: u64) -> Option<u64> {
        let time = (u128::from(cells) * u128::from(self.period)).div_ceil(u128::from(self.count.max(1)));
        u64::try_from(time).ok().filter(|time| *time <= CENTURY)
    }

    /// `⌊time·L/P⌋`.
    pub(super) fn cells_in(&self, time: u64) -> u64 {
        let cells = u128::from(time) * u128::from(self.count) / u128::from(self.period.max(1));
        u64::try_from(cells).unwrap_or(u64::MAX)
    }

    /// What a charge of this cost adds to a TAT; nothing if it can never pass.
    pub(super) fn increment(&self, cost: u64) -> Option<u64> {
        self.time_of(cost).filter(|increment| *increment <= self.capacity)
    }

    /// Requests of one cell that a queue takes whose last place is this far ahead.
    pub(super) fn places_in(&self, room: u64) -> u64 {
        room / self.period.div_ceil(self.count.max(1)).max(1) + 1
    }
}

impl Args {
    /// The quota as values name it: two are the same if and only if nothing of a counter differs under them. Ends with a space, so that none is the
    /// beginning of another.
    pub(super) fn quota(&mut self, quota: &Quota, numbers: &Numbers) {
        self.bytes.push(numbers.kind.letter());
        self.short(numbers.count);
        self.bytes.push(b'/');
        self.short(numbers.period);
        if numbers.kind.is_time() {
            if numbers.kind != Kind::Queue && numbers.burst != numbers.count {
                self.bytes.push(b'*');
                self.short(numbers.burst.min(LARGEST));
            }
            if numbers.max_delay > 0 {
                self.bytes.push(b'+');
                self.short(numbers.max_delay);
            }
        }
        if let Some(calendar) = quota.calendar() {
            let unit = match calendar.unit() {
                crate::limit::CalendarUnit::Day => b"@day:".as_slice(),
                crate::limit::CalendarUnit::Week => b"@week:",
                crate::limit::CalendarUnit::Month => b"@month:",
            };
            self.bytes.extend_from_slice(unit);
            self.bytes.extend_from_slice(calendar.zone().as_bytes());
        }
        if numbers.may_owe {
            self.bytes.push(b'!');
        }
        self.bytes.push(b' ');
        self.end();
    }

    /// Periods are round: `36e8` for an hour.
    fn short(&mut self, number: u64) {
        let (mut digits, mut zeros) = (number, 0_u8);
        while digits >= 10 && digits.is_multiple_of(10) {
            (digits, zeros) = (digits / 10, zeros + 1);
        }
        if zeros < 3 {
            self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        } else {
            self.bytes.extend_from_slice(itoa::Buffer::new().format(digits).as_bytes());
            self.bytes.push(b'e');
            self.bytes.extend_from_slice(itoa::Buffer::new().format(zeros).as_bytes());
        }
    }
}

/// What `count·time` may be multiplied with in the scripts; 142 years of microseconds. What is more counts as that.
const LARGEST: u64 = 1 << 52;
/// Nothing drains for longer. As in [`Quota`].
pub(super) const CENTURY: u64 = 100 * 366 * 86_400 * 1_000_000;
