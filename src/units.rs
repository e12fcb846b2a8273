//! The words people write for rates, durations and sizes: `100/s burst 20`, `5m`, `64KiB`. Parse and print, nothing else.
//!
//! Every type deserialises from a string (a bare number where that is unambiguous), so a mistake is reported at its place in the file.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};

/// Why a word is not a rate, duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not `COUNT/PERIOD`.
    #[error("`{0}` is not a rate; write COUNT/PERIOD, such as 100/min or 5/s burst 10, or unlimited")]
    NotARate(String),
    /// A rate or burst of nothing.
    #[error("a rate and its burst must be at least 1; to refuse everything use `blocked`, to switch a limit off use `mode: off`")]
    Zero,
    /// Not a whole number, or too large to count with.
    #[error("`{0}` is not a whole number from 1 to 1000000000000")]
    Count(String),
    /// Not a period.
    #[error("`{0}` is not a period; use s, min, hour, day, week, month or a duration such as 15min")]
    Period(String),
    /// Not a duration.
    #[error("`{0}` is not a duration; write a number and a unit: ms, s, m, h or d, such as 250ms or 5m")]
    Duration(String),
    /// A duration longer than a year, or zero where time must pass.
    #[error("`{0}` is out of range; the longest duration is 366d, and a period must not be zero")]
    Range(String),
    /// Not `SIZE/PERIOD`.
    #[error("`{0}` is not a rate of bytes; write SIZE/PERIOD, such as 1MiB/s or 64KiB/s burst 1MiB")]
    NotAByteRate(String),
    /// Neither `SIZE/PERIOD` nor `off`.
    #[error("`{0}` is not a least rate; write SIZE/PERIOD without a burst, such as 240B/s, or off")]
    NotALeastRate(String),
    /// Not a size.
    #[error("`{0}` is not a size; write bytes, or a number with KiB, MiB, GiB, KB, MB or GB")]
    Size(String),
}

/// One window of a limit as it is written: `COUNT/PERIOD [burst N]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Cells per period, at least 1.
    pub count: u64,
    /// The period, more than zero and at most 366 days.
    pub period: Duration,
    /// Cells at once from idle, when written; the count otherwise.
    pub burst: Option<u64>,
}

/// A rate, or the word `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateOrUnlimited {
    /// A rate.
    Rate(Rate),
    /// No limit at all.
    Unlimited,
}

/// A rate whose cells are bytes, as it is written: `SIZE/PERIOD [burst SIZE]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRate(pub Rate);

/// A rate of bytes without a burst, or the word `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRateOrOff {
    /// A rate.
    Rate(Rate),
    /// None.
    Off,
}

/// A length of time. `0s` is allowed; who needs more says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl std::str::FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let not_a_rate = || UnitError::NotARate(text.to_owned());
        let (quota, burst) = match text.split_once(" burst ") {
            Some((quota, burst)) => (quota, Some(parse_count(burst.trim())?)),
            None => (text, None),
        };
        let (count, period) = quota.split_once('/').ok_or_else(not_a_rate)?;
        Ok(Self { count: parse_count(count.trim())?, period: parse_period(period.trim())?, burst })
    }
}

impl std::str::FromStr for RateOrUnlimited {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "unlimited" { Ok(Self::Unlimited) } else { text.parse().map(Self::Rate) }
    }
}

impl std::str::FromStr for ByteRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (quota, burst) = match text.split_once(" burst ") {
            Some((quota, burst)) => (quota, Some(parse_bytes(burst.trim())?)),
            None => (text, None),
        };
        let (count, period) = quota.split_once('/').ok_or_else(|| UnitError::NotAByteRate(text.to_owned()))?;
        Ok(Self(Rate { count: parse_bytes(count.trim())?, period: parse_period(period.trim())?, burst }))
    }
}

impl std::str::FromStr for ByteRateOrOff {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text {
            "off" => Ok(Self::Off),
            // A least rate has no burst: what is sent at once is always enough.
            _ if text.contains("burst") => Err(UnitError::NotALeastRate(text.to_owned())),
            _ => text.parse().map(|ByteRate(rate)| Self::Rate(rate)),
        }
    }
}

impl std::str::FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_duration(text).map(Self)
    }
}

impl std::str::FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Size(text.to_owned());
        let (number, unit) = split_number(text).ok_or_else(wrong)?;
        let scale = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or_else(wrong)?;
        number.checked_mul(scale).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = PERIOD_NAMES.iter().find(|(_, seconds)| self.period == Duration::from_secs(*seconds));
        match period {
            Some((name, _)) => write!(f, "{}/{name}", self.count)?,
            None => write!(f, "{}/{}", self.count, Span(self.period))?,
        }
        match self.burst {
            Some(burst) if burst != self.count => write!(f, " burst {burst}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let (scale, unit) = DURATION_UNITS
            .iter()
            .rev()
            .find(|(_, scale)| millis > 0 && millis.is_multiple_of(u128::from(*scale)))
            .map_or((1, "ms"), |(unit, scale)| (u128::from(*scale), *unit));
        write!(f, "{}{unit}", millis / scale)
    }
}

fn parse_count(text: &str) -> Result<u64, UnitError> {
    let digits: Cow<'_, str> = if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    let count: u64 = if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
        .ok_or_else(|| UnitError::Count(text.to_owned()))?;
    match count {
        0 => Err(UnitError::Zero),
        count if count > MAX_COUNT => Err(UnitError::Count(text.to_owned())),
        count => Ok(count),
    }
}

/// A size that is counted with.
fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    match text.parse()? {
        ByteSize(0) => Err(UnitError::Zero),
        ByteSize(bytes) if bytes > MAX_COUNT => Err(UnitError::Count(text.to_owned())),
        ByteSize(bytes) => Ok(bytes),
    }
}

fn parse_period(text: &str) -> Result<Duration, UnitError> {
    if let Some((_, seconds)) = PERIOD_NAMES.iter().find(|(name, _)| *name == text) {
        return Ok(Duration::from_secs(*seconds));
    }
    let with_min = text.strip_suffix("min").map(|number| format!("{number}m"));
    match parse_duration(with_min.as_deref().unwrap_or(text)) {
        Ok(Duration::ZERO) => Err(UnitError::Range(text.to_owned())),
        Err(UnitError::Duration(_)) => Err(UnitError::Period(text.to_owned())),
        other => other,
    }
}

fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let wrong = || UnitError::Duration(text.to_owned());
    let (number, unit) = split_number(text).ok_or_else(wrong)?;
    let scale = match (DURATION_UNITS.iter().find(|(name, _)| *name == unit), number) {
        (Some((_, scale)), _) => *scale,
        (None, 0) if unit.is_empty() => 1,
        _ => return Err(wrong()),
    };
    let millis = number.checked_mul(scale).ok_or_else(|| UnitError::Range(text.to_owned()))?;
    if millis > MAX_DURATION_MS {
        return Err(UnitError::Range(text.to_owned()));
    }
    Ok(Duration::from_millis(millis))
}

/// `12KiB` → (12, "KiB"). Nothing but ASCII digits and underscores counts as a number.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let number = number.replace('_', "").parse().ok()?;
    Some((number, unit))
}

/// Deserialises from a string or a bare whole number through `FromStr`.
fn from_word<'de, D, T>(deserializer: D, expecting: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr<Err = UnitError>,
{
    struct Word<T>(&'static str, std::marker::PhantomData<T>);
    impl<T: std::str::FromStr<Err = UnitError>> Visitor<'_> for Word<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.trim().parse().map_err(E::custom)
        }
        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            number.to_string().parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Word(expecting, std::marker::PhantomData))
}

macro_rules! deserialize_word {
    ($($type:ty, $name:literal, $expecting:literal, $pattern:literal;)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_word(deserializer, $expecting)
            }
        }
        impl schemars::JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> { $name.into() }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": ["string", "integer"], "pattern": $pattern, "description": $expecting })
            }
        }
    )*};
}

deserialize_word! {
    RateOrUnlimited, "Rate", "a rate such as 100/min or 5/s burst 10, or unlimited", r"^(unlimited|[0-9_]+ */ *[0-9a-z]+( burst [0-9_]+)?)$";
    ByteRate, "ByteRate", "a rate of bytes such as 1MiB/s or 64KiB/s burst 1MiB", r"^[0-9_]+(B|KiB|MiB|GiB|KB|MB|GB)? */ *[0-9a-z]+( burst [0-9_]+(B|KiB|MiB|GiB|KB|MB|GB)?)?$";
    ByteRateOrOff, "LeastByteRate", "a rate of bytes such as 240B/s or 1KiB/s, or off", r"^(off|[0-9_]+(B|KiB|MiB|GiB|KB|MB|GB)? */ *[0-9a-z]+)$";
    Span, "Duration", "a duration such as 250ms, 30s or 5m", r"^[0-9_]+(ms|s|m|h|d)?$";
    ByteSize, "Size", "a size such as 64KiB or 10MiB", r"^[0-9_]+(B|KiB|MiB|GiB|KB|MB|GB)?$";
}

/// A share written as `20%`, from 0 to 100; or a plain number from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(pub f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        let share = match Written::deserialize(deserializer).map_err(|_| D::Error::custom(SHARE_EXPECTED))? {
            Written::Number(share) => Some(share),
            Written::Text(text) => text.strip_suffix('%').and_then(|p| p.parse::<f64>().ok()).map(|p| p / 100.0),
        };
        share.filter(|share| (0.0..=1.0).contains(share)).map(Self).ok_or_else(|| D::Error::custom(SHARE_EXPECTED))
    }
}

impl schemars::JsonSchema for Share {
    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["number", "string"], "description": SHARE_EXPECTED })
    }
}

const SHARE_EXPECTED: &str = "expected a share from 0 to 1, such as 0.01 or 1%";

/// Beyond this a count is a typing error, and products with a period of a year still fit 128 bits.
const MAX_COUNT: u64 = 1_000_000_000_000;
const MAX_DURATION_MS: u64 = 366 * 86_400_000;

// A month is 30 days here; calendar months are `align: calendar`.
const PERIOD_NAMES: &[(&str, u64)] =
    &[("s", 1), ("min", 60), ("hour", 3600), ("day", 86_400), ("week", 604_800), ("month", 2_592_000)];
const DURATION_UNITS: &[(&str, u64)] = &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_printed() {
        for (text, count, seconds, burst, printed) in [
            ("100/s", 100, 1, None, "100/s"),
            ("5/min burst 20", 5, 60, Some(20), "5/min burst 20"),
            ("1_000/15min", 1000, 900, None, "1000/15m"),
            ("1/month", 1, 2_592_000, None, "1/month"),
            ("7/90s", 7, 90, None, "7/90s"),
            ("10 / hour burst 10", 10, 3600, Some(10), "10/hour"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.count, rate.period.as_secs(), rate.burst), (count, seconds, burst), "{text}");
            assert_eq!(rate.to_string(), printed);
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (text, expected) in [
            ("0/s", UnitError::Zero),
            ("5/s burst 0", UnitError::Zero),
            ("-1/s", UnitError::Count("-1".into())),
            ("1e30/s", UnitError::Count("1e30".into())),
            ("9223372036854775808/s", UnitError::Count("9223372036854775808".into())),
            ("5/0s", UnitError::Range("0s".into())),
            ("5/400d", UnitError::Range("400d".into())),
            ("5/fortnight", UnitError::Period("fortnight".into())),
            ("5", UnitError::NotARate("5".into())),
            ("5/s bursts 3", UnitError::Period("s bursts 3".into())),
        ] {
            assert_eq!(text.parse::<Rate>(), Err(expected), "{text}");
        }
        assert_eq!("9999999999999999999d".parse::<Span>(), Err(UnitError::Range("9999999999999999999d".into())));
        assert!("5 m".parse::<Span>().is_err() && "m".parse::<Span>().is_err() && "٣s".parse::<Span>().is_err());
    }

    #[test]
    fn rates_of_bytes_are_read() {
        for (text, count, seconds, burst) in [
            ("1MiB/s", 1 << 20, 1, None),
            ("64KiB/s burst 1MiB", 64 << 10, 1, Some(1 << 20)),
            ("500/min", 500, 60, None),
            ("1_000 / 15min burst 2KB", 1000, 900, Some(2000)),
        ] {
            let ByteRate(rate) = text.parse().unwrap();
            assert_eq!((rate.count, rate.period.as_secs(), rate.burst), (count, seconds, burst), "{text}");
        }
        for (text, expected) in [
            ("1MiB", UnitError::NotAByteRate("1MiB".into())),
            ("0/s", UnitError::Zero),
            ("1MiB/s burst 0KiB", UnitError::Zero),
            ("1TiB/s", UnitError::Size("1TiB".into())),
            ("1000GiB/s", UnitError::Count("1000GiB".into())),
            ("1MiB/fortnight", UnitError::Period("fortnight".into())),
        ] {
            assert_eq!(text.parse::<ByteRate>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn durations_and_sizes_round_trip() {
        for (text, millis) in [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("0", 0)] {
            assert_eq!(text.parse::<Span>().unwrap().0, Duration::from_millis(millis));
        }
        assert_eq!(Span(Duration::from_secs(3600)).to_string(), "1h");
        assert_eq!("10MiB".parse::<ByteSize>().unwrap().0, 10 << 20);
        assert!("10 potatoes".parse::<ByteSize>().is_err());
    }
}
