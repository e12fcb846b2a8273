//! Limits: rates to quotas, `per` to key parts, tiers and clients to windows.

use std::collections::{BTreeMap, HashMap, HashSet};

use http::HeaderValue;

use super::{Compiler, Names};
use crate::config::diagnostic::{Path, Problem};
use crate::config::{self, NOT_AVAILABLE, NamedField, PerPart, PerWord, RateSpec};
use crate::limit::{Algorithm, Quota};
use crate::policy::{Amount, KeyPart, Limit, Missing, Window, Windows};
use crate::snapshot::LimitMetrics;
use crate::telemetry::metrics;
use crate::units::{Rate, RateOrUnlimited, Span};

impl Compiler<'_> {
    pub(super) fn limits(&mut self, names: &Names<'_>) -> Vec<Limit> {
        let root = Path::root("limits");
        let config = self.config;
        let mut taken = HashSet::new();
        let mut limits = Vec::new();
        for (i, limit) in config.limits.iter().enumerate() {
            let path = root.index(i);
            let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            if limit.name.is_empty() || limit.name.len() > MAX_NAME || !limit.name.bytes().all(word) {
                self.problem(&path.key("name"), "a limit is named with a-z, 0-9 and -, at most 60 of them");
            }
            if !taken.insert(limit.name.as_str()) {
                self.problem(&path.key("name"), format!("the name `{}` is taken already", limit.name));
            }
            let compiled = self.limit(limit, &path, names);
            limits.extend(compiled.filter(|_| limit.mode != config::Mode::Off));
        }
        self.route_costs_fit(&limits);
        // Narrow before broad: shared counters are touched last, and only by requests that pass all others.
        limits.sort_by_key(|limit| breadth(&limit.per));
        for (id, limit) in (0..).zip(&mut limits) {
            limit.id = id;
        }
        limits
    }

    /// A route whose cost never fits a limit that counts it would answer 429 for ever.
    fn route_costs_fit(&mut self, limits: &[Limit]) {
        let config = self.config;
        for (i, route) in config.routes.iter().enumerate() {
            let Some(cost) = route.cost.map(u64::from) else { continue };
            for limit in limits.iter().filter(|limit| limit.cost.is_none() && limit.counts_all_of(i)) {
                let Amount::Rate { by_tier, .. } = &limit.amount else { continue };
                let smallest = by_tier.iter().flatten().map(|window| window.quota.quota.burst()).min();
                if let Some(burst) = smallest.filter(|burst| cost > *burst) {
                    let message = format!("a cost of {cost} never fits limit `{}`, which holds {burst} at once", limit.name);
                    self.problem(&Path::root("routes").index(i).key("cost"), message);
                }
            }
        }
    }

    fn limit(&mut self, limit: &config::Limit, path: &Path, names: &Names<'_>) -> Option<Limit> {
        let (per, is_global) = self.per(&limit.per, &path.key("per"));
        let matcher = self.matcher(&limit.matches, &path.key("match"), names);
        let unless = limit.unless.as_ref().map(|unless| self.matcher(unless, &path.key("unless"), names));
        if limit.unless.as_ref().is_some_and(is_empty) {
            self.problem(&path.key("unless"), "an empty `unless` holds for every request, so the limit would count none");
        }
        let algorithm = self.algorithm(limit.algorithm, &path.key("algorithm"));
        let amount = match (&limit.rate, limit.concurrency) {
            (Some(rate), None) => self.rate(limit, rate, algorithm?, &per, path, names),
            (None, Some(max)) => {
                if max == 0 {
                    self.problem(&path.key("concurrency"), "must be at least 1; to refuse everything use `blocked`");
                }
                if limit.cost.is_some() {
                    self.problem(&path.key("cost"), "a concurrency limit counts requests; it has no cost");
                }
                Amount::Concurrency(max)
            }
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
            amount,
            cost: limit.cost.map(|config::Number(cost)| u64::from(cost)),
            shadow: limit.mode == config::Mode::Shadow,
        })
    }

    fn per(&mut self, config::Per(parts): &config::Per, path: &Path) -> (Vec<KeyPart>, bool) {
        let mut per = Vec::new();
        let mut is_global = false;
        if parts.0.is_empty() {
            self.problem(path, "say what gets a counter of its own; `global` is one counter for all");
        }
        for (i, part) in parts.0.iter().enumerate() {
            let at = path.index(i);
            match part {
                PerPart::Word(PerWord::Global) => is_global = true,
                PerPart::Word(word) => per.extend(key_part(*word)),
                PerPart::Field(NamedField::Header(name)) => per.extend(self.header_name(name, &at).map(KeyPart::Header)),
                PerPart::Field(NamedField::Query(name)) => per.push(KeyPart::Query(name.as_str().into())),
                PerPart::Field(NamedField::Cookie(name)) => per.push(KeyPart::Cookie(name.as_str().into())),
                PerPart::Field(NamedField::Claim(_)) => self.problem(&at, format!("claims are {NOT_AVAILABLE}")),
            }
        }
        if is_global && !per.is_empty() {
            self.problem(path, "`global` is one counter for all; with other parts it means nothing");
        }
        (per, is_global)
    }

    fn algorithm(&mut self, algorithm: config::Algorithm, path: &Path) -> Option<Algorithm> {
        let name = match algorithm {
            config::Algorithm::Gcra => return Some(Algorithm::Gcra),
            config::Algorithm::FixedWindow => return Some(Algorithm::FixedWindow),
            config::Algorithm::TokenBucket => "token_bucket",
            config::Algorithm::LeakyBucket => "leaky_bucket",
            config::Algorithm::SlidingWindow => "sliding_window",
            config::Algorithm::SlidingLog => "sliding_log",
        };
        self.problem(path, format!("`{name}` is {NOT_AVAILABLE}"));
        None
    }

    fn rate(
        &mut self,
        limit: &config::Limit,
        rate: &RateSpec,
        algorithm: Algorithm,
        per: &[KeyPart],
        path: &Path,
        names: &Names<'_>,
    ) -> Amount {
        let at = path.key("rate");
        let context = Context { limit, algorithm, own: breadth(per) <= OWN_BREADTH };
        let by_tier = match rate {
            RateSpec::Same(rates) => {
                let windows = self.windows(rates, &context, &at);
                vec![windows; names.tiers.len()]
            }
            RateSpec::ByTier(by_tier) => self.by_tier(by_tier, &context, &at, names),
        };
        let mut by_client = HashMap::new();
        for (i, client) in self.config.clients.iter().enumerate() {
            if let Some(rates) = client.limits.get(&limit.name) {
                let at = Path::root("clients").index(i).key("limits").key(&limit.name);
                let windows = self.windows(rates, &context, &at);
                by_client.extend(names.clients.named(&client.id).map(|id| (id, windows)));
            }
        }
        Amount::Rate { by_tier, by_client }
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
        rates.into_iter().filter_map(|(i, rate)| self.window(&rate, several, context, &path.index(i))).collect()
    }

    fn window(&mut self, rate: &Rate, several: bool, context: &Context<'_>, path: &Path) -> Option<Window> {
        let Context { limit, algorithm, own } = context;
        let quota = match Quota::new(rate.count, rate.period, rate.burst, *algorithm) {
            Ok(quota) => quota,
            Err(error) => {
                self.problem(path, error.to_string());
                return None;
            }
        };
        if let Some(config::Number(cost)) = limit.cost
            && u64::from(cost) > quota.burst()
        {
            let burst = quota.burst();
            self.problem(path, format!("a cost of {cost} never fits into {burst} at once; raise the burst or lower the cost"));
        }
        // `q` cells in `w` seconds: the burst and the time it takes to refill, so that `r` never exceeds `q` and `q/w` is
        // the rate.
        let policy_name =
            if several { format!("\"{}/{}\"", limit.name, Span(rate.period)) } else { format!("\"{}\"", limit.name) };
        let seconds = quota.capacity().div_ceil(crate::clock::SECOND).max(1);
        let policy = HeaderValue::from_str(&format!("{policy_name};q={};w={seconds}", quota.burst())).ok()?;
        let limit = HeaderValue::from(quota.burst());
        Some(Window { quota: self.ground.quotas.intern(quota), policy, policy_name: policy_name.into(), limit, own: *own })
    }

    pub(super) fn limit_metrics(&self, limit: &str, names: &Names<'_>) -> LimitMetrics {
        let by_tier = |family| {
            let counter = |tier: &&str| self.ground.registry.counter(family, &[("limit", limit), ("tier", tier)]);
            names.tiers.iter().map(counter).collect()
        };
        LimitMetrics { limited: by_tier(metrics::LIMITED), shadow: by_tier(metrics::SHADOW_LIMITED) }
    }
}

struct Context<'l> {
    limit: &'l config::Limit,
    algorithm: Algorithm,
    own: bool,
}

fn key_part(word: PerWord) -> Option<KeyPart> {
    match word {
        PerWord::Global => None,
        PerWord::Client => Some(KeyPart::Client),
        PerWord::ApiKey => Some(KeyPart::ApiKey),
        PerWord::User => Some(KeyPart::User),
        PerWord::Tenant => Some(KeyPart::Tenant),
        PerWord::Tier => Some(KeyPart::Tier),
        PerWord::Ip => Some(KeyPart::Ip),
        PerWord::Route => Some(KeyPart::Route),
        PerWord::Endpoint => Some(KeyPart::Endpoint),
    }
}

fn missing(written: Option<config::Missing>, per: &[KeyPart]) -> Missing {
    let skips = per.iter().any(|part| matches!(part, KeyPart::ApiKey | KeyPart::User | KeyPart::Tenant));
    match written {
        Some(config::Missing::Skip) => Missing::Skip,
        Some(config::Missing::Shared) => Missing::Shared,
        None if skips => Missing::Skip,
        None => Missing::Shared,
    }
}

/// By tier, whether its rates differ from the first tier's.
fn differing_tiers(amount: &Amount) -> Vec<bool> {
    let Amount::Rate { by_tier, .. } = amount else { return Vec::new() };
    let ids = |windows: &Windows| windows.iter().map(|window| window.quota.id).collect::<Vec<_>>();
    let first = by_tier.first().map(ids);
    by_tier.iter().map(|windows| first.as_ref() != Some(&ids(windows))).collect()
}

/// Whether some client has a rate of its own.
fn is_overridden(amount: &Amount) -> bool {
    matches!(amount, Amount::Rate { by_client, .. } if !by_client.is_empty())
}

/// The narrowest part decides how many callers share a counter.
fn breadth(per: &[KeyPart]) -> u8 {
    per.iter().map(KeyPart::breadth).min().unwrap_or(u8::MAX)
}

fn is_empty(conditions: &config::Match) -> bool {
    let config::Match { path, methods, hosts, headers, query, routes, tiers, clients, ips, authenticated, .. } = conditions;
    let lists = [path, methods, hosts, routes, tiers, clients, ips];
    lists.iter().all(|list| list.is_none()) && headers.is_none() && query.is_none() && authenticated.is_none()
}

/// Up to a tenant, a counter is the caller's own.
const OWN_BREADTH: u8 = 1;
const MAX_NAME: usize = 60;
const MAX_WINDOWS: usize = 8;
