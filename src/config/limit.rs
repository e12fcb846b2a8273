//! `limits`: who may do how much.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

use super::words::word_only;
use super::{List, NotYet, Number, Per, RateSpec};

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
    /// How it counts.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Cells per request; the route's cost by default.
    pub cost: Option<Number>,
    /// What happens when a part of `per` is missing.
    pub missing: Option<Missing>,
    /// Whether it refuses.
    #[serde(default)]
    pub mode: Mode,
    /// What happens over the limit; only `reject` in this version.
    #[serde(default, deserialize_with = "word_only")]
    pub over: Over,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub count: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub refund: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub consistency: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub on_failure: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub response: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub align: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub timezone: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub warmup: NotYet,
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
    /// Not available in this version.
    #[schemars(skip)]
    TokenBucket,
    /// Not available in this version.
    #[schemars(skip)]
    LeakyBucket,
    /// Not available in this version.
    #[schemars(skip)]
    SlidingWindow,
    /// Not available in this version.
    #[schemars(skip)]
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

/// What happens over the limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// The request is refused.
    #[default]
    Reject,
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
    /// Not available in this version.
    #[schemars(skip)]
    pub key_prefix: NotYet,
    /// Not available in this version.
    #[schemars(skip)]
    pub schedule: NotYet,
}
