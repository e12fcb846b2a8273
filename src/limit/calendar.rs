//! Windows of the calendar: a day, week or month of a time zone, over a clock that knows no calendar.
//!
//! A [`Calendar`] says in which window a moment lies and where its edges are. Only here does a limit hear of the wall clock,
//! as the [`WallOffset`] that somebody else keeps up to date. Windows have no gaps and no overlaps: each ends where the next
//! one begins, however clocks are changed in between. Consecutive civil days, weeks and months have consecutive numbers.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use jiff::ToSpan as _;
use jiff::civil::{Date, Time};
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::clock::{Nanos, saturating_nanos};

/// A unit in a time zone. Equal when both are.
#[derive(Debug)]
pub struct Calendar {
    unit: CalendarUnit,
    name: Box<str>,
    zone: TimeZone,
    offset: WallOffset,
    latest: ArcSwap<Span>,
}

/// Which civil span a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight to midnight, or from whichever is the day's first instant.
    Day,
    /// From Monday to Sunday, as in ISO 8601.
    Week,
    /// From the first to the last day of a month.
    Month,
}

/// Where a moment lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalendarWindow {
    /// From 1 in January 1970; all that is earlier is 1 too.
    pub number: u64,
    /// When it began; 0 if that was before the clock's origin.
    pub start: Nanos,
    /// When it ends and the next one begins: later than the moment that was asked for.
    pub end: Nanos,
}

/// Where a moment lies by the wall clock: what clocks of other machines can be held against. In microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixWindow {
    /// As in [`CalendarWindow`].
    pub number: u64,
    /// When it begins.
    pub start: u64,
    /// When it ends and the next one begins.
    pub end: u64,
    /// When the next one ends.
    pub next_end: u64,
}

impl Calendar {
    /// The window that `now` lies in. Cheap unless `now` is the first moment of another window: then civil time is computed.
    #[must_use]
    pub fn window(&self, now: Nanos) -> CalendarWindow {
        // Read once: both edges and the number must be of the same wall clock, whoever sets it meanwhile.
        let offset = self.offset.get();
        let span = self.span_at(wall_nanos(offset, now));
        let monotonic = |wall: i64| u64::try_from(i128::from(wall) - i128::from(offset)).unwrap_or(0);
        CalendarWindow { number: span.number, start: monotonic(span.start), end: monotonic(span.end).max(now.saturating_add(1)) }
    }

    /// The same by the wall clock, with the end of the window after it.
    #[must_use]
    pub fn unix_window(&self, now: Nanos) -> UnixWindow {
        let Span { number, start, end, next_end } = self.span_at(self.offset.wall_nanos(now));
        let micros = |wall: i64| u64::try_from(wall / 1000).unwrap_or(0);
        UnixWindow { number, start: micros(start), end: micros(end), next_end: micros(next_end) }
    }

    fn span_at(&self, wall: i64) -> Span {
        let latest = **self.latest.load();
        if latest.contains(wall) {
            return latest;
        }
        let span = self.span(wall);
        self.latest.store(Arc::new(span));
        span
    }

    /// Which civil span its windows are.
    #[must_use]
    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The time zone's name, as the database spells it.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.name
    }

    fn span(&self, wall: i64) -> Span {
        let civil = self.zone.to_datetime(timestamp(wall)).date();
        let mut first = self.unit.first_day(civil);
        let mut start = self.first_instant(first);
        let mut next = self.unit.next(first);
        let mut end = self.first_instant(next);
        // Clocks that are set back over midnight show the old day again after the new one has begun. It stays begun: a
        // window that came back would have a used-up quota, or a fresh one.
        while end <= wall && end < i64::MAX {
            (first, start, next) = (next, end, self.unit.next(next));
            end = self.first_instant(next);
        }
        let next_end = self.first_instant(self.unit.next(next));
        Span { number: self.unit.number(first), start, end, next_end }
    }

    /// In nanoseconds since 1970. Midnight may occur twice, then the first counts, or never, then the instant in its place.
    fn first_instant(&self, day: Date) -> i64 {
        let midnight = self.zone.to_timestamp(day.to_datetime(Time::midnight()));
        let nanos = midnight.unwrap_or(Timestamp::MAX).as_nanosecond();
        i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        (self.unit, &self.name) == (other.unit, &other.name)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.unit, &self.name).hash(state);
    }
}

impl CalendarUnit {
    fn first_day(self, day: Date) -> Date {
        match self {
            Self::Day => day,
            Self::Week => day.saturating_sub(i64::from(day.weekday().to_monday_zero_offset()).days()),
            Self::Month => day.first_of_month(),
        }
    }

    /// The first day of the next window, from the first of this one.
    fn next(self, first: Date) -> Date {
        match self {
            Self::Day => first.saturating_add(1.day()),
            Self::Week => first.saturating_add(1.week()),
            Self::Month => first.saturating_add(1.month()),
        }
    }

    fn number(self, first: Date) -> u64 {
        let days = |since: Date| first.duration_since(since).as_hours() / 24;
        let before = match self {
            Self::Day => days(EPOCH),
            Self::Week => days(EPOCH_MONDAY) / 7,
            Self::Month => i64::from(first.year() - EPOCH.year()) * 12 + i64::from(first.month() - EPOCH.month()),
        };
        u64::try_from(before).unwrap_or(0) + 1
    }
}

/// A window in wall-clock nanoseconds since 1970. It stays true when the offset changes, which it does a little all the time.
#[derive(Debug, Clone, Copy)]
struct Span {
    number: u64,
    start: i64,
    end: i64,
    next_end: i64,
}

impl Span {
    const NONE: Self = Self { number: 0, start: 0, end: 0, next_end: 0 };

    fn contains(self, wall: i64) -> bool {
        self.start <= wall && wall < self.end
    }
}

/// Wall clock minus monotonic clock, in nanoseconds since 1970: what the process sets now and then, since a wall clock may be
/// stepped. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct WallOffset(Arc<AtomicI64>);

impl WallOffset {
    /// Says that it was `wall` at `now`.
    pub fn set(&self, wall: SystemTime, now: Nanos) {
        let unix = match wall.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => i128::from(saturating_nanos(since)),
            Err(before) => -i128::from(saturating_nanos(before.duration())),
        };
        let offset = unix - i128::from(now);
        let nearest = if offset < 0 { i64::MIN } else { i64::MAX };
        self.0.store(i64::try_from(offset).unwrap_or(nearest), Ordering::Relaxed);
    }

    /// The wall clock at `now`, in nanoseconds since 1970.
    #[must_use]
    pub fn wall_nanos(&self, now: Nanos) -> i64 {
        wall_nanos(self.get(), now)
    }

    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Every calendar of the process: one per unit and time zone. They are never dropped, so that a quota that names one can be
/// copied; there are as many as were ever configured.
#[derive(Debug, Clone, Default)]
pub struct Calendars {
    offset: WallOffset,
    known: Arc<Mutex<Vec<&'static Calendar>>>,
}

impl Calendars {
    /// None yet; those to come follow `offset`.
    #[must_use]
    pub fn new(offset: WallOffset) -> Self {
        Self { offset, known: Arc::default() }
    }

    /// The calendar of a unit in a time zone of this name, in any letter case.
    ///
    /// # Errors
    /// When there is no such time zone.
    pub fn intern(&self, unit: CalendarUnit, zone: &str) -> Result<&'static Calendar, UnknownZone> {
        let zone = time_zone(zone)?;
        let name: Box<str> = zone.iana_name().unwrap_or("UTC").into();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(calendar) = known.iter().find(|calendar| calendar.unit == unit && calendar.name == name) {
            return Ok(calendar);
        }
        let latest = ArcSwap::from_pointee(Span::NONE);
        let calendar: &'static Calendar = Box::leak(Box::new(Calendar { unit, name, zone, offset: self.offset.clone(), latest }));
        known.push(calendar);
        Ok(calendar)
    }
}

/// The time zone of a name, in any letter case: the system's, or a bundled one where the system has none or not this one.
///
/// # Errors
/// When there is no such time zone.
pub fn time_zone(name: &str) -> Result<TimeZone, UnknownZone> {
    let found = TimeZone::get(name).or_else(|_| TimeZoneDatabase::bundled().get(name));
    found.map_err(|_| UnknownZone(name.into()))
}

/// Names of time zones, for suggestions.
#[must_use]
pub fn zone_names() -> Vec<String> {
    TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect()
}

/// There is no time zone of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone `{0}`")]
pub struct UnknownZone(pub Box<str>);

fn wall_nanos(offset: i64, now: Nanos) -> i64 {
    offset.saturating_add_unsigned(now)
}

fn timestamp(unix_nanos: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(unix_nanos)).expect("64 bits of nanoseconds reach from 1677 to 2262")
}

const EPOCH: Date = Date::constant(1970, 1, 1);
/// 1970 began on a Thursday.
const EPOCH_MONDAY: Date = Date::constant(1969, 12, 29);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use CalendarUnit::{Day, Month, Week};

    const HOUR: Nanos = 3600 * SECOND;

    /// A calendar over a clock that counts from 1970.
    fn calendar(unit: CalendarUnit, zone: &str) -> &'static Calendar {
        Calendars::default().intern(unit, zone).unwrap()
    }

    fn at(text: &str) -> Nanos {
        u64::try_from(text.parse::<Timestamp>().unwrap().as_nanosecond()).unwrap()
    }

    fn shown(nanos: Nanos) -> String {
        timestamp(i64::try_from(nanos).unwrap()).to_string()
    }

    #[test]
    #[rustfmt::skip]
    fn windows_begin_and_end_where_the_calendar_says() {
        for (unit, zone, now, start, end, hours) in [
            (Day, "UTC", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", 24),
            (Day, "Asia/Seoul", "2026-03-01T14:59:59.999999999Z", "2026-02-28T15:00:00Z", "2026-03-01T15:00:00Z", 24),
            (Day, "Asia/Seoul", "2026-03-01T15:00:00Z", "2026-03-01T15:00:00Z", "2026-03-02T15:00:00Z", 24),
            (Day, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", 23),
            (Day, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", 25),
            // Midnight does not exist: the day begins at 01:00.
            (Day, "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", 23),
            (Day, "America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", 24),
            // The 30th does not exist: the 29th is followed by the 31st.
            (Day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", 24),
            (Day, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", 24),
            // One minute after midnight, clocks were set back an hour: the new day stays begun.
            (Day, "America/St_Johns", "2010-11-07T02:30:30Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z", 25),
            (Day, "America/St_Johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z", 25),
            (Week, "UTC", "2026-12-31T12:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z", 168),
            (Week, "UTC", "2027-01-03T23:59:59Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z", 168),
            (Week, "Asia/Seoul", "2027-01-03T15:00:00Z", "2027-01-03T15:00:00Z", "2027-01-10T15:00:00Z", 168),
            (Week, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z", 167),
            (Month, "UTC", "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", 28 * 24),
            (Month, "UTC", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", 29 * 24),
            (Month, "Asia/Seoul", "2026-04-01T00:00:00Z", "2026-03-31T15:00:00Z", "2026-04-30T15:00:00Z", 30 * 24),
            (Month, "UTC", "2026-12-31T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", 31 * 24),
            (Month, "Europe/Berlin", "2026-03-15T00:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z", 31 * 24 - 1),
        ] {
            let window = calendar(unit, zone).window(at(now));
            assert_eq!((shown(window.start), shown(window.end)), (start.into(), end.into()), "{unit:?} in {zone} at {now}");
            assert_eq!((window.end - window.start) / HOUR, hours, "{unit:?} in {zone} at {now}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn numbers_count_from_1970() {
        for (unit, now, number) in [
            (Day, "1970-01-01T00:00:00Z", 1), (Day, "1970-01-02T00:00:00Z", 2), (Day, "2026-01-01T00:00:00Z", 20_455),
            (Week, "1970-01-01T00:00:00Z", 1), (Week, "1970-01-04T23:59:59Z", 1), (Week, "1970-01-05T00:00:00Z", 2),
            (Month, "1970-01-31T00:00:00Z", 1), (Month, "1970-02-01T00:00:00Z", 2), (Month, "2026-03-01T00:00:00Z", 675),
        ] {
            assert_eq!(calendar(unit, "UTC").window(at(now)).number, number, "{unit:?} at {now}");
        }
        // There it was still 1969.
        assert_eq!(calendar(Day, "America/New_York").window(0).number, 1);
    }

    #[test]
    fn windows_follow_each_other_and_numbers_never_go_down() {
        for (zone, begin) in [
            ("Asia/Seoul", "2026-01-01T00:00:00Z"),
            ("Europe/Berlin", "2026-01-01T00:00:00Z"),
            ("America/Sao_Paulo", "2016-01-01T00:00:00Z"),
            ("America/St_Johns", "2008-01-01T00:00:00Z"),
            ("Africa/Cairo", "2024-01-01T00:00:00Z"),
            ("America/Nuuk", "2023-01-01T00:00:00Z"),
            ("Pacific/Apia", "2010-01-01T00:00:00Z"),
        ] {
            for unit in [Day, Week, Month] {
                let calendar = calendar(unit, zone);
                let begin = at(begin);
                let mut last = calendar.window(begin);
                for now in (0..3 * 366 * 24).map(|hour| begin + hour * HOUR) {
                    let window = calendar.window(now);
                    let place = format!("{unit:?} in {zone} at {}: {window:?} after {last:?}", shown(now));
                    assert!((window.start..window.end).contains(&now), "{place}");
                    if window.number == last.number {
                        assert_eq!(window, last, "{place}");
                    } else {
                        assert!(window.number > last.number, "{place}");
                        assert_eq!(window.start, last.end, "{place}");
                    }
                    last = window;
                }
            }
        }
    }

    #[test]
    fn edges_are_of_the_monotonic_clock() {
        let offset = WallOffset::default();
        let calendar = Calendars::new(offset.clone()).intern(Day, "UTC").unwrap();
        let unix = |text: &str| SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(at(text));
        offset.set(unix("2026-03-01T06:00:00Z"), 2 * HOUR);
        let morning = calendar.window(2 * HOUR);
        // The day began before the clock did.
        assert_eq!((morning.start, morning.end), (0, 20 * HOUR));
        assert_eq!(calendar.window(20 * HOUR).number, morning.number + 1);
        // The wall clock is stepped, forward within the day, then back to the day before.
        offset.set(unix("2026-03-01T09:00:00Z"), 2 * HOUR);
        assert_eq!(calendar.window(2 * HOUR), CalendarWindow { end: 17 * HOUR, ..morning });
        offset.set(unix("2026-02-28T23:00:00Z"), 2 * HOUR);
        assert_eq!(calendar.window(2 * HOUR), CalendarWindow { number: morning.number - 1, start: 0, end: 3 * HOUR });
        assert_eq!(offset.wall_nanos(3 * HOUR), i64::try_from(at("2026-03-01T00:00:00Z")).unwrap());
    }

    #[test]
    fn clocks_at_the_ends_of_time_do_not_panic() {
        let offset = WallOffset::default();
        let calendars = Calendars::new(offset.clone());
        for unit in [Day, Week, Month] {
            let calendar = calendars.intern(unit, "Europe/Berlin").unwrap();
            for wall in [i64::MIN, i64::MIN / 2, 0, i64::MAX] {
                offset.0.store(wall, Ordering::Relaxed);
                for now in [0, HOUR, u64::MAX / 2, u64::MAX - 1] {
                    assert!(calendar.window(now).end > now, "{unit:?} {wall} {now}");
                }
            }
        }
        offset.set(SystemTime::UNIX_EPOCH - std::time::Duration::from_secs(1), 0);
        assert_eq!(offset.wall_nanos(0), -1_000_000_000);
        assert_eq!(calendars.intern(Day, "UTC").unwrap().window(0).number, 1);
    }

    #[test]
    fn the_same_name_is_the_same_calendar() {
        let calendars = Calendars::default();
        let seoul = calendars.intern(Day, "Asia/Seoul").unwrap();
        assert!(std::ptr::eq(seoul, calendars.clone().intern(Day, "asia/SEOUL").unwrap()));
        assert_eq!((seoul.unit(), seoul.zone()), (Day, "Asia/Seoul"));
        assert_ne!(seoul, calendars.intern(Week, "Asia/Seoul").unwrap());
        assert_ne!(seoul, calendars.intern(Day, "Asia/Tokyo").unwrap());
        assert_eq!(seoul, calendar(Day, "Asia/Seoul"));
    }

    #[test]
    fn unknown_zones_are_told_by_name() {
        for name in ["", "Asia/Seul", "../Asia/Seoul", "/etc/localtime", "UTC+9"] {
            assert_eq!(Calendars::default().intern(Day, name), Err(UnknownZone(name.into())));
        }
        assert_eq!(UnknownZone("X".into()).to_string(), "there is no time zone `X`");
        assert!(zone_names().iter().any(|name| name == "Asia/Seoul"));
    }
}
