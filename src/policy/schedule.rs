//! Named times, such as business hours, for limits that hold only then.
//!
//! Whether a schedule is active is found out now and then and kept as one bit, not once per request: civil time is dear, and
//! policy has no clock. So all that is here takes the time as nanoseconds since 1970.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;

/// The schedules of a configuration and which of them are active.
#[derive(Debug, Default)]
pub struct Schedules {
    /// By [`ScheduleId`]; those after [`MAX_SCHEDULES`] are never active.
    pub list: Vec<Schedule>,
    active: AtomicU64,
}

impl Schedules {
    /// None is active before the first [`Self::refresh`].
    #[must_use]
    pub fn new(list: Vec<Schedule>) -> Self {
        Self { list, active: AtomicU64::new(0) }
    }

    /// Finds out which are active.
    pub fn refresh(&self, unix_nanos: i64) {
        let bit = |(i, schedule): (usize, &Schedule)| u64::from(schedule.is_active(unix_nanos)) << i;
        let active = self.list.iter().take(MAX_SCHEDULES).enumerate().map(bit).fold(0, |all, bit| all | bit);
        self.active.store(active, Ordering::Relaxed);
    }

    /// Which were active when that was last found out.
    #[must_use]
    pub fn active(&self) -> ActiveSchedules {
        ActiveSchedules(self.active.load(Ordering::Relaxed))
    }
}

/// Which schedules are active, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActiveSchedules(u64);

impl ActiveSchedules {
    /// Whether this one is.
    #[must_use]
    pub fn contains(self, id: ScheduleId) -> bool {
        1_u64.checked_shl(u32::from(id.0)).is_some_and(|bit| self.0 & bit != 0)
    }
}

/// A place in [`Schedules::list`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleId(pub u8);

/// A named time: a part of certain days, as a clock on the wall of the time zone shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Its name.
    pub name: Box<str>,
    /// The days it begins on.
    pub days: Weekdays,
    /// When it begins.
    pub from: Time,
    /// When it is over; midnight is the end of the day. If not later than `from`, it is over on the day after.
    pub to: Time,
    /// Where.
    pub zone: TimeZone,
    /// The days it does not begin on after all.
    pub except: Vec<Date>,
}

impl Schedule {
    /// Whether it is active at this many nanoseconds since 1970.
    #[must_use]
    pub fn is_active(&self, unix_nanos: i64) -> bool {
        let Ok(timestamp) = Timestamp::from_nanosecond(i128::from(unix_nanos)) else { return false };
        let civil = self.zone.to_datetime(timestamp);
        let (today, time) = (civil.date(), civil.time());
        let ends_today = self.to > self.from || self.to == Time::midnight();
        if ends_today {
            return time >= self.from && (time < self.to || self.to == Time::midnight()) && self.begins_on(today);
        }
        (time >= self.from && self.begins_on(today))
            || (time < self.to && today.yesterday().is_ok_and(|yesterday| self.begins_on(yesterday)))
    }

    fn begins_on(&self, day: Date) -> bool {
        self.days.contains(day.weekday()) && !self.except.contains(&day)
    }
}

/// Days of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weekdays(u8);

impl Weekdays {
    /// All seven.
    pub const ALL: Self = Self(0b111_1111);

    /// Whether this one is among them.
    #[must_use]
    pub fn contains(self, day: Weekday) -> bool {
        self.0 & bit(day) != 0
    }
}

impl FromIterator<Weekday> for Weekdays {
    fn from_iter<I: IntoIterator<Item = Weekday>>(days: I) -> Self {
        Self(days.into_iter().fold(0, |all, day| all | bit(day)))
    }
}

fn bit(day: Weekday) -> u8 {
    1 << day.to_monday_zero_offset()
}

/// As many as there are bits in an atomic integer.
pub const MAX_SCHEDULES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::time;

    /// `days from to` in a zone, not on Christmas 2026 (a Friday).
    fn schedule(days: &[Weekday], from: Time, to: Time, zone: &str) -> Schedule {
        Schedule {
            name: "test".into(),
            days: days.iter().copied().collect(),
            from,
            to,
            zone: TimeZone::get(zone).unwrap(),
            except: vec![Date::constant(2026, 12, 25)],
        }
    }

    fn check(schedule: &Schedule, rows: &[(i64, bool, &str)]) {
        for (unix_seconds, expected, what) in rows {
            assert_eq!(schedule.is_active(unix_seconds * 1_000_000_000), *expected, "{what}");
        }
    }

    const WORKDAYS: &[Weekday] = &[Weekday::Monday, Weekday::Tuesday, Weekday::Wednesday, Weekday::Thursday, Weekday::Friday];

    /// 2026-12-21, a Monday, at midnight in UTC and in Seoul.
    const MONDAY: i64 = 1_797_811_200;
    const MONDAY_IN_SEOUL: i64 = MONDAY - 9 * HOUR;
    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;

    #[test]
    fn business_hours_in_seoul() {
        let hours = schedule(WORKDAYS, time(9, 0, 0, 0), time(18, 0, 0, 0), "Asia/Seoul");
        let begin = MONDAY_IN_SEOUL + 9 * HOUR;
        assert_eq!(begin, MONDAY);
        check(
            &hours,
            &[
                (begin - 1, false, "08:59:59 on Monday"),
                (begin, true, "09:00 on Monday"),
                (begin + 9 * HOUR - 1, true, "17:59:59 on Monday"),
                (begin + 9 * HOUR, false, "18:00 on Monday"),
                (begin + 3 * DAY, true, "Thursday"),
                (begin + 4 * DAY, false, "Friday, Christmas"),
                (begin + 5 * DAY, false, "Saturday"),
                (begin + 11 * DAY, true, "Friday a week later"),
                (begin - 3 * DAY, true, "Friday before"),
                (begin - DAY, false, "Sunday before"),
            ],
        );
        assert!(!hours.is_active(begin * 1_000_000_000 - 1));
        assert!(hours.is_active((begin + 9 * HOUR) * 1_000_000_000 - 1));
    }

    #[test]
    fn a_night_belongs_to_the_day_it_began_on() {
        let night = schedule(&[Weekday::Thursday, Weekday::Friday], time(22, 0, 0, 0), time(6, 0, 0, 0), "UTC");
        let thursday = MONDAY + 3 * DAY;
        check(
            &night,
            &[
                (thursday + 5 * HOUR, false, "the night that began on Wednesday"),
                (thursday + 22 * HOUR - 1, false, "before it begins"),
                (thursday + 22 * HOUR, true, "Thursday 22:00"),
                (thursday + DAY, true, "Friday 00:00"),
                (thursday + 30 * HOUR - 1, true, "05:59:59 on Friday, Christmas"),
                (thursday + 30 * HOUR, false, "Friday 06:00"),
                (thursday + 46 * HOUR, false, "Christmas 22:00"),
                (thursday + 50 * HOUR, false, "the night that would have begun on Christmas"),
                (thursday + 8 * DAY + 2 * HOUR, true, "Friday 02:00 a week later"),
                (thursday + 9 * DAY + 2 * HOUR, true, "Saturday 02:00 a week later"),
                (thursday + 10 * DAY + 2 * HOUR, false, "Sunday 02:00 a week later"),
            ],
        );
    }

    #[test]
    fn midnight_as_an_end_is_the_end_of_the_day() {
        let midnight = Time::midnight();
        let evening = schedule(&[Weekday::Monday], time(18, 0, 0, 0), midnight, "UTC");
        check(
            &evening,
            &[(MONDAY + 18 * HOUR, true, "18:00"), (MONDAY + DAY - 1, true, "23:59:59"), (MONDAY + DAY, false, "Tuesday")],
        );
        let whole = schedule(&[Weekday::Monday], midnight, midnight, "UTC");
        check(&whole, &[(MONDAY - 1, false, "Sunday"), (MONDAY, true, "00:00"), (MONDAY + DAY - 1, true, "23:59:59")]);
        check(&whole, &[(MONDAY + DAY, false, "Tuesday")]);
    }

    #[test]
    fn civil_time_follows_the_zones_clock() {
        // 2026-10-25 in Berlin: 02:30 is shown at 00:30 and at 01:30 UTC. 2026-03-29: 02:30 is never shown.
        let every_day: Vec<Weekday> = Weekday::Monday.cycle_forward().take(7).collect();
        let hour = schedule(&every_day, time(2, 0, 0, 0), time(3, 0, 0, 0), "Europe/Berlin");
        let (october, march) = (1_792_886_400, 1_774_742_400);
        check(
            &hour,
            &[
                (october - 1, false, "01:59:59"),
                (october + HOUR / 2, true, "02:30, first"),
                (october + HOUR + HOUR / 2, true, "02:30, second"),
                (october + 2 * HOUR, false, "03:00"),
                (march + HOUR - 1, false, "01:59:59"),
                (march + HOUR, false, "03:00"),
            ],
        );
    }

    #[test]
    fn bits_are_what_the_last_refresh_found() {
        let on = |days: &[Weekday]| schedule(days, Time::midnight(), Time::midnight(), "UTC");
        let mut list = vec![on(&[Weekday::Tuesday]); 65];
        list[0] = on(&[Weekday::Monday]);
        let schedules = Schedules::new(list);
        let active = |id| schedules.active().contains(ScheduleId(id));
        assert_eq!(schedules.active(), ActiveSchedules::default());
        schedules.refresh(MONDAY * 1_000_000_000);
        assert_eq!([0, 1, 63, 64, 255].map(active), [true, false, false, false, false]);
        schedules.refresh((MONDAY + DAY) * 1_000_000_000);
        assert_eq!([0, 1, 63, 64, 255].map(active), [false, true, true, false, false]);
        schedules.refresh(i64::MIN);
        schedules.refresh(i64::MAX);
    }

    #[test]
    fn all_days_are_seven() {
        assert_eq!(Weekday::Monday.cycle_forward().take(7).collect::<Weekdays>(), Weekdays::ALL);
        assert!(!Weekdays::default().contains(Weekday::Monday));
    }
}
