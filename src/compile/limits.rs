//! Limits: rates to quotas, `per` to key parts, tiers and clients to windows.

use std::collections::{BTreeMap, HashMap, HashSet};

use http::HeaderValue;

use super::clients::Override;
use super::costs::{Context, queue, settlement};
use super::{Compiler, Names};
use crate::config::diagnostic::{Path, Problem};
use crate::config::{self, NamedField, PerPart, PerWord, RateSpec};
use crate::headers::rate_limit_policy;
use crate::limit::Reach;
use crate::policy::{Amount, Cost, KeyPart, Limit, Missing, ScheduleId, Window, Windows};
use crate::snapshot::{LimitMetrics, Room};
use crate::telemetry::metrics;
use crate::units::{Rate, RateOrUnlimited, Span};

impl Compiler<'_> {
    /// The limits, and the room that each gets in the store.
    pub(super) fn limits(&mut self, names: &Names<'_>) -> (Vec<Limit>, Vec<Room>) {
        let root = Path::root("limits");
        let config = self.config;
        let mut taken = HashSet::new();
        let (mut limits, mut needs) = (Vec::new(), Vec::new());
        for (i, limit) in config.limits.iter().enumerate() {
            let path = root.index(i);
            let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            if limit.name.is_empty() || limit.name.len() > MAX_NAME || !limit.name.bytes().all(word) {
                self.problem(&path.key("name"), "a limit is named with a-z, 0-9 and -, at most 60 of them");
            }
            if !taken.insert(limit.name.as_str()) {
                self.problem(&path.key("name"), format!("the name `{}` is taken already", limit.name));
            }
            let Some(compiled) = self.limit(limit, &path, names) else { continue };
            // A limit that is off keeps its room, so that turning it on again goes on with its counters.
            needs.extend(self.needs(limit, &compiled, &path));
            if limit.mode != config::Mode::Off {
                limits.push(compiled);
            }
        }
        self.route_costs_fit(&limits);
        let rooms = self.rooms(needs);
        // Narrow before broad: what is reported and refused first is the caller's own.
        limits.sort_by_key(|limit| breadth(&limit.per));
        for (id, limit) in (0..).zip(&mut limits) {
            limit.id = id;
        }
        (limits, rooms)
    }

    /// A route whose cost never fits a limit that counts it would answer 429 for ever.
    fn route_costs_fit(&mut self, limits: &[Limit]) {
        let config = self.config;
        // Asked once for each limit: it looks at every client that has rates of its own.
        let by_route = limits.iter().filter(|limit| limit.cost == Cost::Route);
        let bursts: Vec<_> = by_route.filter_map(|limit| Some((limit, limit.amount.smallest_burst()?))).collect();
        for (i, route) in config.routes.iter().enumerate() {
            let Some(cost) = route.cost.map(u64::from) else { continue };
            for (limit, burst) in bursts.iter().filter(|(limit, burst)| cost > *burst && limit.counts_all_of(i)) {
                let message = format!("a cost of {cost} never fits limit `{}`, which holds {burst} at once", limit.name);
                self.problem(&Path::root("routes").index(i).key("cost"), message);
            }
        }
    }

    fn limit(&mut self, limit: &config::Limit, path: &Path, names: &Names<'_>) -> Option<Limit> {
        let (per, is_global) = self.per(&limit.per, &path.key("per"), names);
        let matcher = self.matcher(&limit.matches, &path.key("match"), names);
        let unless = limit.unless.as_ref().map(|unless| self.matcher(unless, &path.key("unless"), names));
        if limit.unless.as_ref().is_some_and(is_empty) {
            self.problem(&path.key("unless"), "an empty `unless` holds for every request, so the limit would count none");
        }
        let amount = match (&limit.rate, limit.concurrency) {
            (Some(rate), None) => self.rate(limit, rate, &per, path, names),
            (None, Some(max)) => self.concurrency(limit, max, path),
            (Some(_), Some(_)) => {
                self.problem(path, "a limit has a rate or a concurrency, not both; write two limits");
                return None;
            }
            (None, None) => {
                if !(self.is_incomplete)("limits") {
                    self.problem(path, "a limit needs a rate or a concurrency");
                }
                return None;
            }
        };
        let key_start = self.ground.hasher.start(&limit.name);
        let differs = differing_tiers(&amount);
        let one_rate = !differs.contains(&true) && !is_overridden(&amount);
        self.statuses(limit, path);
        let (cost, response_cost) = self.cost(limit, &path.key("cost"));
        let reach = if is_own(&per) { Reach::Narrow } else { Reach::Broad };
        let sharing = self.sharing(limit, reach, path);
        Some(Limit {
            id: 0,
            name: limit.name.as_str().into(),
            constant_key: (is_global && one_rate).then(|| key_start.finish()),
            key_start,
            differs,
            missing: missing(limit.missing, &per),
            per,
            matcher,
            unless,
            settlement: settlement(limit, response_cost),
            queue: queue(limit),
            warmup: self.warmup(limit, &path.key("warmup")),
            amount,
            cost,
            shadow: limit.mode == config::Mode::Shadow,
            sharing,
            entity_start: self.ground.hasher.start(""),
        })
    }

    /// Requests in flight; what is about rates means nothing here.
    fn concurrency(&mut self, limit: &config::Limit, max: u32, path: &Path) -> Amount {
        if max == 0 {
            self.problem(&path.key("concurrency"), "must be at least 1; to refuse everything use `blocked`");
        }
        if limit.cost.is_some() {
            self.problem(&path.key("cost"), "a concurrency limit counts requests; it has no cost");
        }
        let rates_only = [
            ("algorithm", limit.algorithm.is_some()),
            ("over", limit.over != config::Over::Reject),
            ("count", limit.count.is_some()),
            ("refund", limit.refund.is_some()),
            ("during", !limit.during.0.is_empty()),
            ("align", limit.align.is_some()),
            ("timezone", limit.timezone.is_some()),
            ("warmup", limit.warmup.is_some()),
            ("max_keys", limit.max_keys.is_some()),
        ];
        for (key, _) in rates_only.into_iter().filter(|(_, given)| *given) {
            self.problem(&path.key(key), "a concurrency limit has no rate that this could be about");
        }
        Amount::Concurrency(max)
    }

    fn per(&mut self, config::Per(parts): &config::Per, path: &Path, names: &Names<'_>) -> (Vec<KeyPart>, bool) {
        let mut per = Vec::new();
        let mut is_global = false;
        if parts.0.is_empty() {
            self.problem(path, "say what gets a counter of its own; `global` is one counter for all");
        }
        for (i, part) in parts.0.iter().enumerate() {
            let at = path.index(i);
            match part {
                PerPart::Word(PerWord::Global) => is_global = true,
                PerPart::Word(word) => {
                    if *word == PerWord::Certificate {
                        self.certificates_are_asked_for(&at);
                    }
                    per.extend(key_part(*word));
                }
                PerPart::Ip(prefixes) => per.push(KeyPart::Ip(Some(self.own_grouping(*prefixes, &at.key("ip"))))),
                PerPart::Field(NamedField::Header(name)) => per.extend(self.header_name(name, &at).map(KeyPart::Header)),
                PerPart::Field(NamedField::Query(name)) => per.push(KeyPart::Query(name.as_str().into())),
                PerPart::Field(NamedField::Cookie(name)) => per.push(KeyPart::Cookie(name.as_str().into())),
                PerPart::Field(NamedField::Claim(name)) => per.extend(self.claim(name, &at, names).map(KeyPart::Claim)),
            }
        }
        if is_global && !per.is_empty() {
            self.problem(path, "`global` is one counter for all; with other parts it means nothing");
        }
        (per, is_global)
    }

    fn rate(&mut self, limit: &config::Limit, rate: &RateSpec, per: &[KeyPart], path: &Path, names: &Names<'_>) -> Amount {
        let context = self.context(limit, per, path);
        let by_tier = self.rate_spec(rate, &context, &path.key("rate"), names);
        let mut by_client = HashMap::new();
        for Override { client, place, rates } in names.known.overrides.get(limit.name.as_str()).into_iter().flatten() {
            let at = place.path().key("limits").key(&limit.name);
            by_client.insert(*client, self.windows(rates, &context, &at));
        }
        let during = self.during(limit, &context, &path.key("during"), names);
        Amount::Rate { by_tier, by_client, during }
    }

    fn during(
        &mut self,
        limit: &config::Limit,
        context: &Context<'_>,
        path: &Path,
        names: &Names<'_>,
    ) -> Vec<(ScheduleId, Vec<Windows>)> {
        let mut during = Vec::new();
        for (i, config::During { schedule, rate }) in limit.during.0.iter().enumerate() {
            let at = path.index(i);
            let by_tier = self.rate_spec(rate, context, &at.key("rate"), names);
            during.extend(self.schedule_id(schedule, &at.key("schedule"), names).map(|schedule| (schedule, by_tier)));
        }
        during
    }

    /// Windows by tier.
    fn rate_spec(&mut self, rate: &RateSpec, context: &Context<'_>, path: &Path, names: &Names<'_>) -> Vec<Windows> {
        match rate {
            RateSpec::Same(rates) => {
                let windows = self.windows(rates, context, path);
                vec![windows; names.tiers.len()]
            }
            RateSpec::ByTier(by_tier) => self.by_tier(by_tier, context, path, names),
        }
    }

    fn by_tier(
        &mut self,
        by_tier: &BTreeMap<String, config::Windows>,
        context: &Context<'_>,
        path: &Path,
        names: &Names<'_>,
    ) -> Vec<Windows> {
        for name in by_tier.keys().filter(|name| *name != "default") {
            let _ = self.tier(name, &path.key(name), names);
        }
        let mut windows = Vec::new();
        for tier in &names.tiers {
            let (key, rates) = match by_tier.get(*tier) {
                Some(rates) => (*tier, Some(rates)),
                None => ("default", by_tier.get("default")),
            };
            match rates {
                Some(rates) => windows.push(self.windows(rates, context, &path.key(key))),
                None => {
                    if !(self.is_incomplete)("limits") && !(self.is_incomplete)("tiers") {
                        let problem = Problem::new(path.clone(), format!("no rate for tier `{tier}`"));
                        self.problems.push(problem.hint("add the tier, or `default` for all that are not named"));
                    }
                    windows.push(Vec::new());
                }
            }
        }
        windows
    }

    /// Longest first: the place of a window names its counter, and the longest is the one whose usage matters most when
    /// a list gets longer or shorter.
    fn windows(&mut self, config::List(rates): &config::Windows, context: &Context<'_>, path: &Path) -> Windows {
        if rates.is_empty() {
            self.problem(path, "at least one rate is needed; `unlimited` is none");
        }
        if rates.len() > 1 && rates.contains(&RateOrUnlimited::Unlimited) {
            self.problem(path, "`unlimited` stands alone");
        }
        let mut rates: Vec<(usize, Rate)> = rates
            .iter()
            .enumerate()
            .filter_map(|(i, rate)| match rate {
                RateOrUnlimited::Rate(rate) => Some((i, *rate)),
                RateOrUnlimited::Unlimited => None,
            })
            .collect();
        rates.sort_by_key(|(_, rate)| std::cmp::Reverse(rate.period));
        if rates.len() > MAX_WINDOWS {
            self.problem(path, "a limit has at most 8 windows");
            rates.truncate(MAX_WINDOWS);
        }
        if let Some(pair) = rates.windows(2).find(|pair| matches!(pair, [a, b] if a.1.period == b.1.period)) {
            let twice = pair.first().map_or(0, |(i, _)| *i);
            self.problem(&path.index(twice), "two windows of the same period: the smaller would always decide");
        }
        let several = rates.len() > 1;
        let windows = rates.into_iter().enumerate().filter_map(|(ordinal, (i, rate))| {
            let name = WindowName { ordinal, several };
            self.window(&rate, name, context, &path.index(i))
        });
        windows.collect()
    }

    fn window(&mut self, rate: &Rate, name: WindowName, context: &Context<'_>, path: &Path) -> Option<Window> {
        let Context { limit, least_cost, own, .. } = context;
        let quota = match context.quota(rate) {
            Ok(quota) => self.aligned(quota, context, path)?,
            Err(error) => {
                self.problem(path, error.to_string());
                return None;
            }
        };
        let most = quota.largest_cost();
        if *least_cost > most {
            self.problem(
                path,
                format!("a cost of {least_cost} never fits into {most} at once; raise the burst or lower the cost"),
            );
        }
        let Some(interned) = self.ground.quotas.intern(quota) else {
            self.problem(path, "a million different rates have been in force since the start; restart to forget them");
            return None;
        };
        let policy_name =
            if name.several { format!("\"{}/{}\"", limit.name, Span(rate.period)) } else { format!("\"{}\"", limit.name) };
        let policy = rate_limit_policy(&policy_name, &quota)?;
        let space = self.ground.spaces.intern(&room_name(&limit.name, name.ordinal));
        let limit = HeaderValue::from(quota.burst());
        Some(Window { quota: interned, space, policy, policy_name: policy_name.into(), limit, own: *own })
    }

    pub(super) fn limit_metrics(&self, limit: &str, names: &Names<'_>) -> LimitMetrics {
        let by_tier = |family| {
            let counter = |tier: &&str| self.ground.registry.counter(family, &[("limit", limit), ("tier", tier)]);
            names.tiers.iter().map(counter).collect()
        };
        let of_limit = |family| self.ground.registry.counter(family, &[("limit", limit)]);
        LimitMetrics {
            limited: by_tier(metrics::LIMITED),
            shadow: by_tier(metrics::SHADOW_LIMITED),
            reserved: of_limit(metrics::RESERVED_CELLS),
            settled: of_limit(metrics::SETTLED_CELLS),
            delay: self.ground.registry.histogram(metrics::DELAY, &[("limit", limit)]),
        }
    }
}

/// Which window of its limit one is.
#[derive(Clone, Copy)]
struct WindowName {
    ordinal: usize,
    several: bool,
}

/// What a window's room is called: a limit's windows keep their places when their rates change.
pub(super) fn room_name(limit: &str, ordinal: usize) -> String {
    format!("{limit}/{ordinal}")
}

fn key_part(word: PerWord) -> Option<KeyPart> {
    match word {
        PerWord::Global => None,
        PerWord::Client => Some(KeyPart::Client),
        PerWord::ApiKey => Some(KeyPart::ApiKey),
        PerWord::User => Some(KeyPart::User),
        PerWord::Tenant => Some(KeyPart::Tenant),
        PerWord::Tier => Some(KeyPart::Tier),
        PerWord::Ip => Some(KeyPart::Ip(None)),
        PerWord::Route => Some(KeyPart::Route),
        PerWord::Endpoint => Some(KeyPart::Endpoint),
        PerWord::Certificate => Some(KeyPart::Certificate),
    }
}

fn missing(written: Option<config::Missing>, per: &[KeyPart]) -> Missing {
    let is_of_some = |part: &KeyPart| {
        matches!(part, KeyPart::ApiKey | KeyPart::User | KeyPart::Tenant | KeyPart::Claim(_) | KeyPart::Certificate)
    };
    let skips = per.iter().any(is_of_some);
    match written {
        Some(config::Missing::Skip) => Missing::Skip,
        Some(config::Missing::Shared) => Missing::Shared,
        None if skips => Missing::Skip,
        None => Missing::Shared,
    }
}

/// By tier, whether its rates ever differ from the first tier's.
fn differing_tiers(amount: &Amount) -> Vec<bool> {
    let Amount::Rate { by_tier, during, .. } = amount else { return Vec::new() };
    let always = std::iter::once(by_tier).chain(during.iter().map(|(_, by_tier)| by_tier));
    let mut differs = vec![false; by_tier.len()];
    for by_tier in always {
        let ids = |windows: &Windows| windows.iter().map(|window| window.quota.id).collect::<Vec<_>>();
        let first = by_tier.first().map(ids);
        for (differs, windows) in differs.iter_mut().zip(by_tier) {
            *differs |= first.as_ref() != Some(&ids(windows));
        }
    }
    differs
}

/// Whether some client has a rate of its own.
fn is_overridden(amount: &Amount) -> bool {
    matches!(amount, Amount::Rate { by_client, .. } if !by_client.is_empty())
}

/// Whether a counter is the caller's own rather than shared by many.
pub(super) fn is_own(per: &[KeyPart]) -> bool {
    breadth(per) <= OWN_BREADTH
}

/// The narrowest part decides how many callers share a counter.
fn breadth(per: &[KeyPart]) -> u8 {
    per.iter().map(KeyPart::breadth).min().unwrap_or(u8::MAX)
}

fn is_empty(conditions: &config::Match) -> bool {
    let config::Match { path, methods, hosts, headers, query, routes, tiers, clients, ips, authenticated, key_prefix, schedule } =
        conditions;
    let lists = [path, methods, hosts, routes, tiers, clients, ips, key_prefix, schedule];
    lists.iter().all(|list| list.is_none()) && headers.is_none() && query.is_none() && authenticated.is_none()
}

/// Up to a tenant, a counter is the caller's own.
const OWN_BREADTH: u8 = 1;
const MAX_NAME: usize = 60;
const MAX_WINDOWS: usize = 8;
