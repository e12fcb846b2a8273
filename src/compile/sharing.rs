//! Which limits other gateways count with us.

use super::Compiler;
use crate::config::diagnostic::{Path, Problem};
use crate::config::{self, Consistency, Cost, OnFailure};
use crate::limit::{self, Reach, Sharing};

impl Compiler<'_> {
    /// How a limit is shared; nothing if this process counts for itself.
    pub(super) fn sharing(&mut self, limit: &config::Limit, reach: Reach, path: &Path) -> Option<Sharing> {
        let Some(redis) = &self.config.store.redis else {
            self.needs_no_store(limit, path);
            return None;
        };
        let consistency = match limit.consistency.unwrap_or(redis.consistency) {
            Consistency::Strict => limit::Consistency::Strict,
            Consistency::Lease => limit::Consistency::Lease,
            Consistency::Local => {
                if limit.on_failure.is_some() {
                    self.problem(&path.key("on_failure"), "this limit is kept here alone, so no store can fail it");
                }
                return None;
            }
        };
        if limit.warmup.is_some() {
            let problem = Problem::new(
                path.key("warmup"),
                "each gateway would remember other newcomers, so a limit with a warm-up is not shared",
            );
            self.problems.push(problem.hint("add `consistency: local`"));
        }
        let on_failure = match limit.on_failure.unwrap_or(redis.on_failure) {
            OnFailure::Local => limit::OnFailure::Local,
            OnFailure::Open => limit::OnFailure::Open,
            OnFailure::Closed => limit::OnFailure::Closed,
        };
        let comes_back = limit.count.is_some()
            || limit.refund.is_some()
            || matches!(limit.cost, Some(Cost::ResponseHeader(_) | Cost::ResponseJson(_)));
        Some(Sharing { entity: 0, reach, consistency, on_failure, comes_back })
    }

    fn needs_no_store(&mut self, limit: &config::Limit, path: &Path) {
        if (self.is_incomplete)("store") {
            return;
        }
        let wants = matches!(limit.consistency, Some(Consistency::Strict | Consistency::Lease));
        for key in [("consistency", wants), ("on_failure", limit.on_failure.is_some())]
            .into_iter()
            .filter_map(|(key, is)| is.then_some(key))
        {
            let problem = Problem::new(path.key(key), "there is no shared store that this could be about");
            self.problems.push(problem.hint("add `store.redis`"));
        }
    }
}
