//! `upstream` and `mirror` of a route.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use super::{Compiler, Names};
use crate::config::diagnostic::{Path, Problem};
use crate::config::{self, Destination};
use crate::headers::HeaderEdits;
use crate::policy::{Action, Mirror, Side, Split, UpstreamId};
use crate::snapshot::{MirrorMetrics, SideMetrics};
use crate::telemetry::metrics;

impl Compiler<'_> {
    pub(super) fn destination(&mut self, destination: &Destination, path: &Path, names: &Names<'_>) -> Option<Action> {
        let weights = match destination {
            Destination::One(name) => return self.upstream_named(name, path, names).map(Action::Forward),
            Destination::Split(weights) => weights,
        };
        for (name, _) in weights.iter().filter(|(_, weight)| **weight > MAX_WEIGHT) {
            self.problem(&path.key(name), "a weight is from 0 to 1000000");
        }
        if weights.values().all(|weight| *weight == 0) {
            self.problem(path, "one of the upstreams needs a weight of more than 0");
        }
        let sides: Vec<_> = weights
            .iter()
            .map(|(name, weight)| Some(Side::new(self.upstream_named(name, &path.key(name), names)?, name, *weight)))
            .collect();
        sides.into_iter().collect::<Option<Vec<_>>>().map(|sides| Action::Split(Split::new(sides)))
    }

    fn upstream_named(&mut self, name: &str, path: &Path, names: &Names<'_>) -> Option<UpstreamId> {
        let found = names.upstreams.get(name).copied();
        if found.is_none() {
            let known: Vec<_> = names.upstreams.keys().copied().collect();
            self.unknown(path, "upstream", name, "upstreams", &known);
        }
        found
    }

    /// `edits` are the route's, which a copy has too. Nobody but the gateway says that something is a copy, so the route's own requests lose
    /// the header that does.
    pub(super) fn mirror(
        &mut self,
        route: &config::Route,
        edits: &mut HeaderEdits,
        path: &Path,
        names: &Names<'_>,
    ) -> Option<Box<Mirror>> {
        let mirror = route.mirror.as_ref()?;
        let path = path.key("mirror");
        if route.respond.is_some() {
            self.problem(&path, "only a route with an `upstream` has requests to copy");
        }
        if route.upstream.iter().flat_map(Destination::names).any(|name| name == mirror.upstream) {
            let problem = Problem::new(path.key("upstream"), format!("`{}` gets these requests anyway", mirror.upstream));
            self.problems.push(problem.hint("a second upstream may have the same endpoints"));
        }
        if mirror.max_in_flight == 0 {
            self.problem(&path.key("max_in_flight"), "must be at least 1; take the mirror out to copy nothing");
        }
        if mirror.max_body.0 > MAX_COPY {
            self.problem(&path.key("max_body"), "at most 16MiB: copies are kept in memory");
        }
        let upstream = self.upstream_named(&mirror.upstream, &path.key("upstream"), names)?;
        let mut copy = edits.clone();
        copy.set.retain(|(name, _)| *name != MIRROR);
        copy.add.retain(|(name, _)| *name != MIRROR);
        copy.set.push((MIRROR, HeaderValue::from_static("1")));
        edits.remove.push(MIRROR);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share from 0 to 1 was checked when it was read"
        )]
        let sample = (mirror.sample.0 * 2_f64.powi(32)) as u64;
        Some(Box::new(Mirror {
            upstream,
            sample,
            max_body: usize::try_from(mirror.max_body.0.min(MAX_COPY)).unwrap_or(0),
            max_in_flight: u64::from(mirror.max_in_flight),
            edits: copy,
        }))
    }

    pub(super) fn side_metrics(&self, route: &config::Route) -> Vec<SideMetrics> {
        let Some(Destination::Split(weights)) = &route.upstream else { return Vec::new() };
        let registry = &self.ground.registry;
        let of_side = |name: &String| {
            let (route, upstream) = (("route", route.name.as_str()), ("upstream", name.as_str()));
            let class = |code| registry.counter(metrics::SPLIT_REQUESTS, &[route, upstream, ("code", code)]);
            SideMetrics {
                upstream: name.as_str().into(),
                by_class: ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().map(class).collect(),
                duration: registry.histogram(metrics::SPLIT_DURATION, &[route, upstream]),
            }
        };
        weights.keys().map(of_side).collect()
    }

    pub(super) fn mirror_metrics(&self, route: &config::Route) -> Option<Arc<MirrorMetrics>> {
        route.mirror.as_ref()?;
        let registry = &self.ground.registry;
        let route = ("route", route.name.as_str());
        let outcome = |outcome| registry.counter(metrics::MIRROR_REQUESTS, &[route, ("outcome", outcome)]);
        Some(Arc::new(MirrorMetrics {
            answered: outcome("answered"),
            server_error: outcome("server_error"),
            failed: outcome("failed"),
            abandoned: outcome("abandoned"),
            too_large: outcome("too_large"),
            dropped: outcome("dropped"),
            in_flight: registry.counter(metrics::MIRROR_IN_FLIGHT, &[route]),
            duration: registry.histogram(metrics::MIRROR_DURATION, &[route]),
        }))
    }
}

/// By which an upstream knows that what it gets is a copy.
const MIRROR: HeaderName = HeaderName::from_static("x-tollgate-mirror");
/// Finer shares than a millionth nobody can tell apart.
const MAX_WEIGHT: u32 = 1_000_000;
const MAX_COPY: u64 = 16 << 20;
