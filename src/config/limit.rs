//! `limits`: who may do how much.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

use super::words::StatusPattern;
use super::{Consistency, Cost, List, NotYet, OnFailure, Over, Per, RateSpec};
use crate::units::Span;

/// A named rule.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// `[a-z0-9-]`, unique: names the counter, the metric label and the header's policy.
    pub name: String,
    /// What gets a counter of its own.
    pub per: Per,
    /// Which requests it counts.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// Which of those it doesn't.
    #[serde(default)]
    pub unless: Option<Match>,
    /// The rate: one, several, or by tier.
    pub rate: Option<RateSpec>,
    /// Requests in flight, instead of a rate.
    pub concurrency: Option<u32>,
    /// How it counts; `gcra` by default.
    pub algorithm: Option<Algorithm>,
    /// Cells per request; the route's cost by default.
    pub cost: Option<Cost>,
    /// What happens when a part of `per` is missing.
    pub missing: Option<Missing>,
    /// Whether it refuses.
    #[serde(default)]
    pub mode: Mode,
    /// What happens over the limit.
    #[serde(default)]
    pub over: Over,
    /// Charged only for these responses.
    pub count: Option<Statuses>,
    /// Given back for these responses.
    pub refund: Option<Statuses>,
    /// Other rates while a schedule is active; the first that is decides.
    #[serde(default)]
    pub during: List<During>,
    /// Where windows begin.
    pub align: Option<Align>,
    /// The time zone of calendar windows; UTC by default.
    pub timezone: Option<String>,
    /// More for clients seen for the first time.
    pub warmup: Option<Warmup>,
    /// Counters it keeps at most; a share of the store's by default.
    pub max_keys: Option<u64>,
    /// How it is kept when there is a shared store; as `store.redis` says by default.
    pub consistency: Option<Consistency>,
    /// What it does while the shared store doesn't answer; as `store.redis` says by default.
    pub on_failure: Option<OnFailure>,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub response: NotYet,
}

/// Responses by status.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Statuses {
    /// Codes, or classes such as `5xx`.
    pub status: List<StatusPattern>,
}

/// Another rate for some time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct During {
    /// When: the name of a schedule.
    pub schedule: String,
    /// The rate then.
    pub rate: RateSpec,
}

/// Where windows begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// With the day, the week (Monday) or the month in a time zone.
    Calendar,
}

/// More for clients seen for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Warmup {
    /// Until the plain quota is reached.
    #[serde(rename = "for")]
    pub glide: Span,
    /// What the quota is multiplied with at first, from 1 to 1000.
    pub factor: f64,
    /// A client that has not been seen for this long is new again.
    #[serde(default = "thirty_days")]
    pub forget_after: Span,
}

fn thirty_days() -> Span {
    super::seconds(30 * 86_400)
}

/// How a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Smooth, with a burst.
    #[default]
    Gcra,
    /// A count that starts again with every window.
    FixedWindow,
    /// The same by its other name.
    TokenBucket,
    /// A meter, or a queue with `over: delay`.
    LeakyBucket,
    /// Two counts, the older one fading.
    SlidingWindow,
    /// Every cell's time; at most 4096 of them.
    SlidingLog,
}

/// What happens when a part of `per` is missing from a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// The limit does not apply.
    Skip,
    /// All such requests share one counter.
    Shared,
}

/// Whether a limit refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It counts and logs, and never refuses.
    Shadow,
    /// It isn't there.
    Off,
}

/// Which requests. All that is given must hold; a list is any-of.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Path patterns with `{x}` and, last, `{*rest}`.
    pub path: Option<List<String>>,
    /// Methods.
    pub methods: Option<List<String>>,
    /// Hosts; `*.example.com` is any one or more labels below.
    pub hosts: Option<List<String>>,
    /// Header values; `*` is any value.
    pub headers: Option<BTreeMap<String, String>>,
    /// Query parameters; `*` is any value.
    pub query: Option<BTreeMap<String, String>>,
    /// Routes by name.
    pub routes: Option<List<String>>,
    /// Tiers.
    pub tiers: Option<List<String>>,
    /// Clients by id.
    pub clients: Option<List<String>>,
    /// Address ranges.
    pub ips: Option<List<String>>,
    /// Whether the client is known by key or user.
    pub authenticated: Option<bool>,
    /// How the text of its known API key begins.
    pub key_prefix: Option<List<String>>,
    /// Schedules by name.
    pub schedule: Option<List<String>>,
}
