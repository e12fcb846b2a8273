//! `schedules`: named times.

use schemars::JsonSchema;
use serde::Deserialize;

use super::List;

/// A named time: hours of certain days in a time zone.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Schedule {
    /// Days of the week it begins on, such as `sat` or `mon-fri`; every day by default.
    pub days: Option<List<String>>,
    /// `"HH:MM"` when it begins; the day's begin by default.
    pub from: Option<String>,
    /// `"HH:MM"` when it is over; the day's end, which may be written `"24:00"`, by default. Earlier than `from` is on the day
    /// after.
    pub to: Option<String>,
    /// Such as `Asia/Seoul`; UTC by default.
    pub timezone: Option<String>,
    /// Dates it does not begin on, such as `2026-12-25`.
    pub except: List<String>,
}
