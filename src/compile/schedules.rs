//! Schedules: words to weekdays, times, dates and time zones.

use std::collections::BTreeMap;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;

use super::Compiler;
use crate::config::diagnostic::{Path, Problem, did_you_mean};
use crate::config::{self, List};
use crate::limit::calendar::{self, UnknownZone};
use crate::policy::{MAX_SCHEDULES, Schedule, ScheduleId, Weekdays};

impl<'c> Compiler<'c> {
    /// What names mean, those of wrong schedules included, so that naming one is not a second problem; and the schedules by id.
    pub(super) fn schedules(&mut self) -> (BTreeMap<&'c str, ScheduleId>, Vec<Schedule>) {
        let root = Path::root("schedules");
        let schedules = &self.config.schedules;
        if schedules.len() > MAX_SCHEDULES {
            self.problem(&root, format!("there are {} schedules; {MAX_SCHEDULES} are possible", schedules.len()));
        }
        let id = |i| ScheduleId(u8::try_from(i).unwrap_or(u8::MAX));
        let names = schedules.keys().enumerate().map(|(i, name)| (name.as_str(), id(i))).collect();
        let compiled = schedules.iter().filter_map(|(name, schedule)| self.schedule(name, schedule, &root.key(name)));
        (names, compiled.collect())
    }

    fn schedule(&mut self, name: &str, schedule: &config::Schedule, path: &Path) -> Option<Schedule> {
        let days = self.list(&schedule.days, &path.key("days"), Self::weekdays);
        let days = days.map_or(Weekdays::ALL, |days| days.into_iter().flatten().collect());
        let hours = self.hours(schedule, path);
        let zone = match &schedule.timezone {
            Some(zone) => self.time_zone(zone, &path.key("timezone")),
            None => Some(TimeZone::UTC),
        };
        let List(except) = &schedule.except;
        let except_path = path.key("except");
        let except: Vec<_> = except.iter().enumerate().filter_map(|(i, text)| self.date(text, &except_path.index(i))).collect();
        let (from, to) = hours?;
        Some(Schedule { name: name.into(), days, from, to, zone: zone?, except })
    }

    /// `mon`, or `fri-mon`, which is four days.
    fn weekdays(&mut self, text: &str, path: &Path) -> Option<Vec<Weekday>> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (self.weekday(first, text, path)?, self.weekday(last, text, path)?);
        let count = usize::try_from(first.until(last)).unwrap_or(0) + 1;
        Some(first.cycle_forward().take(count).collect())
    }

    fn weekday(&mut self, word: &str, text: &str, path: &Path) -> Option<Weekday> {
        let known = DAYS.map(|(day, _)| day);
        let found = DAYS.iter().find(|(day, _)| *day == word).map(|(_, weekday)| *weekday);
        if found.is_none() {
            let message =
                format!("`{text}` is no day of the week; write mon, tue, wed, thu, fri, sat, sun or a range such as mon-fri");
            let mut problem = Problem::new(path.clone(), message);
            let lower = word.to_lowercase();
            let beginning = known.iter().find(|day| lower.starts_with(**day)).map(|day| format!("did you mean `{day}`?"));
            problem.hint = beginning.or_else(|| did_you_mean(word, known));
            self.problems.push(problem);
        }
        found
    }

    /// From and to, where midnight as an end is the end of the day.
    fn hours(&mut self, schedule: &config::Schedule, path: &Path) -> Option<(Time, Time)> {
        let midnight = Time::midnight();
        let from = schedule.from.as_deref().map_or(Some(midnight), |text| self.time(text, &path.key("from")));
        let to = match schedule.to.as_deref() {
            None | Some("24:00") => Some(midnight),
            Some(text) => self.time(text, &path.key("to")),
        };
        let (from, to) = (from?, to?);
        if from == to && to != midnight {
            let problem = Problem::new(path.key("to"), "this is the same as `from`, which is either no time or all day");
            self.problems.push(problem.hint("leave both out for the whole day"));
        }
        Some((from, to))
    }

    fn time(&mut self, text: &str, path: &Path) -> Option<Time> {
        let time = time(text);
        if time.is_none() {
            let problem = Problem::new(path.clone(), format!("`{text}` is not a time of day; write HH:MM, such as \"09:00\""));
            self.problems.push(match text {
                "24:00" => problem.hint("a day begins at \"00:00\""),
                _ => problem,
            });
        }
        time
    }

    fn date(&mut self, text: &str, path: &Path) -> Option<Date> {
        // The library reads more forms than we want to explain.
        let date = text.parse().ok().filter(|date: &Date| date.to_string() == text);
        if date.is_none() {
            self.problem(path, format!("`{text}` is not a date; write YYYY-MM-DD, such as 2026-12-25"));
        }
        date
    }

    fn time_zone(&mut self, name: &str, path: &Path) -> Option<TimeZone> {
        calendar::time_zone(name).map_err(|unknown| self.unknown_zone(&unknown, path)).ok()
    }

    pub(super) fn unknown_zone(&mut self, unknown: &UnknownZone, path: &Path) {
        let UnknownZone(name) = unknown;
        let known = calendar::zone_names();
        // People write the city, or an abbreviation, which means different offsets in different places.
        let city = |zone: &&String| zone.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name));
        let hint = match known.iter().find(city) {
            Some(zone) => Some(format!("did you mean `{zone}`?")),
            None if name.contains('/') => did_you_mean(name, known.iter().map(String::as_str)),
            None => None,
        };
        let problem = Problem::new(path.clone(), unknown.to_string());
        self.problems.push(problem.hint(hint.unwrap_or_else(|| "write a name such as Asia/Seoul, or UTC".to_owned())));
    }
}

/// `HH:MM` or `H:MM`.
fn time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if !(1..=2).contains(&hour.len()) || minute.len() != 2 || !is_number(hour) || !is_number(minute) {
        return None;
    }
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::Ground;
    use crate::config::MainFile;
    use crate::config::document::{Contents, Document};
    use jiff::civil::time;

    /// Compiles the `schedules` of a file: what they become, and the problems.
    fn compiled(schedules: &str) -> (Vec<Schedule>, Vec<String>) {
        let text = format!("listeners: []\nroutes: []\nschedules:\n{schedules}");
        let document = Document { name: "g.yaml".into(), text, contents: Contents::Configuration };
        let parsed = document.parse(&|_| None).unwrap();
        let source = MainFile::parse(document, &|_| None).unwrap().with_clients(&|_| None);
        let config = source.config().unwrap();
        let ground = Ground::default();
        let mut compiler = Compiler { source: &source, config, ground: &ground, problems: Vec::new(), is_incomplete: &|_| false };
        let (names, list) = compiler.schedules();
        assert!((0..).zip(names.values()).all(|(i, id)| *id == ScheduleId(i)));
        let problems = parsed.problems.iter().chain(&compiler.problems);
        let shown = |problem: &Problem| match &problem.hint {
            Some(hint) => format!("{}: {} ({hint})", problem.path, problem.message),
            None => format!("{}: {}", problem.path, problem.message),
        };
        (list, problems.map(shown).collect())
    }

    #[test]
    fn words_become_times() {
        use Weekday::{Friday, Monday, Saturday, Sunday};
        let midnight = Time::midnight();
        let all = DAYS.map(|(_, day)| day);
        let christmas = Date::constant(2026, 12, 25);
        type Row<'r> = (&'r str, &'r [Weekday], Time, Time, &'r str, Vec<Date>);
        #[rustfmt::skip]
        let rows: &[Row<'_>] = &[
            ("{}", &all, midnight, midnight, "UTC", vec![]),
            ("{ days: mon-fri, from: \"09:00\", to: \"18:00\", timezone: Asia/Seoul, except: [2026-12-25] }", &all[..5], time(9, 0, 0, 0), time(18, 0, 0, 0), "Asia/Seoul", vec![christmas]),
            // What YAML 1.1 took for numbers in base 60 is text.
            ("{ from: 09:00, to: 18:30 }", &all, time(9, 0, 0, 0), time(18, 30, 0, 0), "UTC", vec![]),
            ("{ from: 9:00, to: 24:00, except: 2026-12-25 }", &all, time(9, 0, 0, 0), midnight, "UTC", vec![christmas]),
            ("{ from: 22:00, to: 6:00 }", &all, time(22, 0, 0, 0), time(6, 0, 0, 0), "UTC", vec![]),
            ("{ days: [sat, sun], from: 00:00, to: 00:00 }", &[Saturday, Sunday], midnight, midnight, "UTC", vec![]),
            ("{ days: [fri-mon], timezone: europe/berlin }", &[Friday, Saturday, Sunday, Monday], midnight, midnight, "Europe/Berlin", vec![]),
            ("{ days: [mon-mon, sun-sun] }", &[Monday, Sunday], midnight, midnight, "UTC", vec![]),
            ("{ days: sun-sat, to: 12:00 }", &all, midnight, time(12, 0, 0, 0), "UTC", vec![]),
        ];
        for (yaml, days, from, to, zone, except) in rows {
            let (list, problems) = compiled(&format!("  test: {yaml}\n"));
            let zone = TimeZone::get(zone).unwrap();
            let days = days.iter().copied().collect();
            let expected = Schedule { name: "test".into(), days, from: *from, to: *to, zone, except: except.clone() };
            assert_eq!((list, problems), (vec![expected], vec![]), "{yaml}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn mistakes_are_told_with_their_place() {
        for (yaml, expected) in [
            ("{ days: [mon, funday] }", "schedules.test.days[1]: `funday` is no day of the week; write mon, tue, wed, thu, fri, sat, sun or a range such as mon-fri"),
            ("{ days: Monday }", "schedules.test.days[0]: `Monday` is no day of the week; write mon, tue, wed, thu, fri, sat, sun or a range such as mon-fri (did you mean `mon`?)"),
            ("{ days: mon-fry }", "schedules.test.days[0]: `mon-fry` is no day of the week; write mon, tue, wed, thu, fri, sat, sun or a range such as mon-fri (did you mean `fri`?)"),
            ("{ days: [] }", "schedules.test.days: an empty list matches nothing; leave the key out to match everything"),
            ("{ from: 25:00 }", "schedules.test.from: `25:00` is not a time of day; write HH:MM, such as \"09:00\""),
            ("{ from: 24:00 }", "schedules.test.from: `24:00` is not a time of day; write HH:MM, such as \"09:00\" (a day begins at \"00:00\")"),
            ("{ to: 12:60 }", "schedules.test.to: `12:60` is not a time of day; write HH:MM, such as \"09:00\""),
            ("{ to: '24:01' }", "schedules.test.to: `24:01` is not a time of day; write HH:MM, such as \"09:00\""),
            ("{ to: 6pm }", "schedules.test.to: `6pm` is not a time of day; write HH:MM, such as \"09:00\""),
            ("{ to: '+9:+1' }", "schedules.test.to: `+9:+1` is not a time of day; write HH:MM, such as \"09:00\""),
            ("{ from: '' }", "schedules.test.from: `` is not a time of day; write HH:MM, such as \"09:00\""),
            ("{ from: 9 }", "schedules.test.from: invalid type: integer `9`, expected a string"),
            ("{ from: 09:00, to: 9:00 }", "schedules.test.to: this is the same as `from`, which is either no time or all day (leave both out for the whole day)"),
            ("{ except: [2026-12-24, 2026-02-30] }", "schedules.test.except[1]: `2026-02-30` is not a date; write YYYY-MM-DD, such as 2026-12-25"),
            ("{ except: 25.12.2026 }", "schedules.test.except[0]: `25.12.2026` is not a date; write YYYY-MM-DD, such as 2026-12-25"),
            ("{ except: '2026-12-25T00:00' }", "schedules.test.except[0]: `2026-12-25T00:00` is not a date; write YYYY-MM-DD, such as 2026-12-25"),
            ("{ timezone: Asia/Seul }", "schedules.test.timezone: there is no time zone `Asia/Seul` (did you mean `Asia/Seoul`?)"),
            ("{ timezone: seoul }", "schedules.test.timezone: there is no time zone `seoul` (did you mean `Asia/Seoul`?)"),
            ("{ timezone: KST }", "schedules.test.timezone: there is no time zone `KST` (write a name such as Asia/Seoul, or UTC)"),
            ("{ day: mon }", "schedules.test.day: unknown key `day`; known here: days, from, to, timezone, except (did you mean `days`?)"),
        ] {
            assert_eq!(compiled(&format!("  test: {yaml}\n")).1, [expected], "{yaml}");
        }
    }

    #[test]
    fn all_mistakes_of_all_schedules_are_told() {
        let (list, problems) =
            compiled("  a: { days: x, from: y, to: z, timezone: w, except: [u, v] }\n  b: {}\n  c: { to: t }\n");
        assert_eq!((list.len(), problems.len()), (1, 7), "{problems:#?}");
    }

    #[test]
    fn schedules_are_counted() {
        let of = |count| compiled(&(10..10 + count).map(|i| format!("  s{i}: {{}}\n")).collect::<String>()).1;
        assert_eq!(of(64), [""; 0]);
        assert_eq!(of(65), ["schedules: there are 65 schedules; 64 are possible"]);
    }
}
