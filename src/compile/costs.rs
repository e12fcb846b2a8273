//! What of a limit is neither who nor how much: cost, settlement, delay, calendar, warm-up.

use std::sync::Arc;
use std::time::Duration;

use super::Compiler;
use super::limits::is_own;
use crate::body::usage::FieldPath;
use crate::clock::saturating_nanos;
use crate::config::diagnostic::Path;
use crate::config::{self, HeaderCost, ResponseHeaderCost, ResponseJsonCost};
use crate::limit::{Algorithm, Boost, CalendarUnit, Quota, QuotaError, Warmup};
use crate::policy::{Cost, KeyPart, ResponseCost, Settlement, StatusSet};
use crate::units::Rate;

/// What all windows of a limit have in common.
pub(super) struct Context<'l> {
    pub(super) limit: &'l config::Limit,
    algorithm: Algorithm,
    /// What every request costs at least, as far as the limit itself says.
    pub(super) least_cost: u64,
    /// Whether a counter is the caller's own.
    pub(super) own: bool,
    max_delay: Duration,
    queue: u32,
    owes: bool,
    boost: Boost,
}

impl Context<'_> {
    /// # Errors
    /// When the numbers can't be enforced, at their largest if newcomers have more.
    pub(super) fn quota(&self, rate: &Rate) -> Result<Quota, QuotaError> {
        if self.boost != Boost::NONE {
            let burst = rate.burst.map(|burst| self.boost.of(burst));
            Quota::new(self.boost.of(rate.count), rate.period, burst, self.algorithm)?;
        }
        let quota = Quota::new(rate.count, rate.period, rate.burst, self.algorithm)?;
        let quota = if self.max_delay.is_zero() { quota } else { quota.delaying(self.max_delay, self.queue)? };
        Ok(if self.owes { quota.owing() } else { quota })
    }
}

impl Compiler<'_> {
    pub(super) fn context<'l>(&mut self, limit: &'l config::Limit, per: &[KeyPart], path: &Path) -> Context<'l> {
        let max_delay = match limit.over {
            config::Over::Reject => Duration::ZERO,
            config::Over::Delay(config::Delay { max, queue }) => {
                let path = path.key("over").key("delay");
                if queue == 0 {
                    self.problem(&path.key("queue"), "must be at least 1; to let nobody wait write `over: reject`");
                }
                if max.0 > LONGEST_DELAY {
                    self.problem(&path.key("max"), "a request waits for 10 minutes at most");
                }
                self.positive(max, &path.key("max"))
            }
        };
        if limit.timezone.is_some() && limit.align.is_none() {
            self.problem(&path.key("timezone"), "a time zone needs `align: calendar`");
        }
        if limit.max_keys == Some(0) {
            self.problem(&path.key("max_keys"), "must be at least 1");
        }
        Context {
            limit,
            algorithm: algorithm(limit.algorithm.unwrap_or_default()),
            least_cost: least_cost(limit.cost.as_ref()),
            own: is_own(per),
            max_delay,
            queue: queue(limit),
            owes: matches!(limit.cost, Some(config::Cost::ResponseHeader(_) | config::Cost::ResponseJson(_))),
            boost: limit.warmup.map_or(Boost::NONE, |warmup| boost(warmup.factor).unwrap_or(Boost::NONE)),
        }
    }

    /// A quota whose windows are a calendar's, if the limit wants that.
    pub(super) fn aligned(&mut self, quota: Quota, context: &Context<'_>, path: &Path) -> Option<Quota> {
        let Some(config::Align::Calendar) = context.limit.align else { return Some(quota) };
        let unit = match quota.period() / crate::clock::SECOND {
            86_400 => CalendarUnit::Day,
            604_800 => CalendarUnit::Week,
            2_592_000 => CalendarUnit::Month,
            _ => {
                self.problem(path, "a calendar has days, weeks and months: write COUNT/day, COUNT/week or COUNT/month");
                return None;
            }
        };
        let zone = context.limit.timezone.as_deref().unwrap_or("UTC");
        let calendar = match self.ground.calendars.intern(unit, zone) {
            Ok(calendar) => calendar,
            Err(unknown) => {
                let limit = self.config.limits.iter().position(|limit| std::ptr::eq(limit, context.limit)).unwrap_or(0);
                self.unknown_zone(&unknown, &Path::root("limits").index(limit).key("timezone"));
                return None;
            }
        };
        match quota.aligned(calendar) {
            Ok(quota) => Some(quota),
            Err(error) => {
                self.problem(path, error.to_string());
                None
            }
        }
    }

    /// What a request costs before its response, and what the response has to say about it.
    pub(super) fn cost(&mut self, limit: &config::Limit, path: &Path) -> (Cost, Option<ResponseCost>) {
        let most = |max: &Option<u32>| max.map(u64::from);
        let reserved = |reserve: u32| Cost::Fixed(u64::from(reserve));
        self.costs_make_sense(limit.cost.as_ref(), path);
        match &limit.cost {
            None => (Cost::Route, None),
            Some(config::Cost::Fixed(cost)) => (reserved(*cost), None),
            Some(config::Cost::Header(HeaderCost { header, default, max })) => {
                let Some(name) = self.header_name(header, &path.key("header")) else { return (Cost::Route, None) };
                (Cost::Header { name, default: u64::from(*default), max: most(max) }, None)
            }
            Some(config::Cost::ResponseHeader(ResponseHeaderCost { response_header, reserve, max })) => {
                let name = self.header_name(response_header, &path.key("response_header"));
                (reserved(*reserve), name.map(|name| ResponseCost::Header { name, max: most(max) }))
            }
            Some(config::Cost::ResponseJson(ResponseJsonCost { response_json, reserve, max })) => {
                let path = path.key("response_json");
                let parsed: Option<FieldPath> =
                    response_json.parse().map_err(|error| self.problem(&path, format!("{error}"))).ok();
                (reserved(*reserve), parsed.map(|path| ResponseCost::Json { path: Arc::new(path), max: most(max) }))
            }
        }
    }

    fn costs_make_sense(&mut self, cost: Option<&config::Cost>, path: &Path) {
        let (key, least, max) = match cost {
            Some(config::Cost::Header(HeaderCost { default, max, .. })) => ("default", *default, *max),
            Some(config::Cost::ResponseHeader(ResponseHeaderCost { reserve, max, .. })) => ("reserve", *reserve, *max),
            Some(config::Cost::ResponseJson(ResponseJsonCost { reserve, max, .. })) => ("reserve", *reserve, *max),
            Some(config::Cost::Fixed(_)) | None => return,
        };
        if let Some(max) = max.filter(|max| *max < least) {
            self.problem(&path.key("max"), format!("{max} is less than `{key}`, which is {least}"));
        }
        if key == "reserve" && least == 0 {
            self.problem(&path.key(key), "must be at least 1: a request that takes nothing is never refused");
        }
    }

    /// A list of statuses that says something.
    pub(super) fn statuses(&mut self, limit: &config::Limit, path: &Path) {
        for (key, statuses) in [("count", &limit.count), ("refund", &limit.refund)] {
            if statuses.as_ref().is_some_and(|statuses| statuses.status.0.is_empty()) {
                self.problem(&path.key(key).key("status"), "an empty list is no response; leave the key out");
            }
        }
    }

    pub(super) fn warmup(&mut self, limit: &config::Limit, path: &Path) -> Option<Warmup> {
        let config::Warmup { glide, factor, forget_after } = limit.warmup?;
        let glide = self.positive(glide, &path.key("for"));
        let Some(factor) = boost(factor) else {
            self.problem(&path.key("factor"), "must be from 1 to 1000");
            return None;
        };
        if forget_after.0 < glide {
            self.problem(&path.key("forget_after"), "must not be less than `for`, or nobody would ever be known for long enough");
        }
        let memory = Quota::new(1, forget_after.0.max(glide), None, Algorithm::FirstSeen).ok()?;
        Some(Warmup {
            glide: saturating_nanos(glide),
            factor,
            space: self.ground.spaces.intern(&format!("{}/warmup", limit.name)),
            memory: self.ground.quotas.intern(memory)?,
        })
    }
}

/// Requests that may wait at once; 0 if none may.
pub(super) fn queue(limit: &config::Limit) -> u32 {
    match limit.over {
        config::Over::Delay(delay) => delay.queue,
        config::Over::Reject => 0,
    }
}

/// What the limit's response rules come to, if it has any.
pub(super) fn settlement(limit: &config::Limit, cost: Option<ResponseCost>) -> Option<Settlement> {
    let set = |statuses: &Option<config::Statuses>| {
        let ranges =
            |config::Statuses { status }: &config::Statuses| status.0.iter().map(|status| (status.from, status.to)).collect();
        statuses.as_ref().map(|statuses| StatusSet(ranges(statuses)))
    };
    let settlement = Settlement { count: set(&limit.count), refund: set(&limit.refund), cost };
    (settlement != Settlement { count: None, refund: None, cost: None }).then_some(settlement)
}

fn algorithm(algorithm: config::Algorithm) -> Algorithm {
    match algorithm {
        config::Algorithm::Gcra => Algorithm::Gcra,
        config::Algorithm::TokenBucket => Algorithm::TokenBucket,
        config::Algorithm::LeakyBucket => Algorithm::LeakyBucket,
        config::Algorithm::FixedWindow => Algorithm::FixedWindow,
        config::Algorithm::SlidingWindow => Algorithm::SlidingWindow,
        config::Algorithm::SlidingLog => Algorithm::SlidingLog,
    }
}

fn least_cost(cost: Option<&config::Cost>) -> u64 {
    u64::from(match cost {
        None => 0,
        Some(config::Cost::Fixed(cost)) => *cost,
        Some(config::Cost::Header(cost)) => cost.default,
        Some(config::Cost::ResponseHeader(cost)) => cost.reserve,
        Some(config::Cost::ResponseJson(cost)) => cost.reserve,
    })
}

/// A factor from 1 to 1000.
fn boost(factor: f64) -> Option<Boost> {
    if !(1.0..=1000.0).contains(&factor) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 1000 it is in range")]
    Some(Boost((factor * f64::from(Boost::NONE.0)) as u32))
}

/// A client and its connection are held for as long.
const LONGEST_DELAY: Duration = Duration::from_secs(600);
