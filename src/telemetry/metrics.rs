//! Every metric: its name, help and labels. Label values come from the configuration or from enums, never from traffic.
//!
//! A worker counts in cells of its own, so counting is a load and a store on memory no other thread writes; a scrape adds the cells
//! up. Cells belong to the process, not to a configuration: a reload keeps every count.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::{Nanos, SECOND};

/// A metric's name, help and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

macro_rules! families {
    ($($(#[$doc:meta])* $constant:ident = $kind:ident $name:literal $help:literal;)*) => {$(
        #[doc = $help]
        pub const $constant: Family = Family { name: $name, kind: Kind::$kind, help: $help };
    )*};
}

families! {
    REQUESTS = Counter "tollgate_requests_total" "Requests by route (empty: none was found) and class of status.";
    DURATION = Histogram "tollgate_request_duration_seconds" "From a request's head to its response's last byte, by route.";
    SPLIT_REQUESTS = Counter "tollgate_split_requests_total" "Requests of a route with several upstreams, by route, upstream and class of status.";
    SPLIT_DURATION = Histogram "tollgate_split_duration_seconds" "How long those took, by route and upstream.";
    MIRROR_REQUESTS = Counter "tollgate_mirror_requests_total" "Copies of requests, by route and outcome: answered, server_error, failed, abandoned, too_large or dropped.";
    MIRROR_DURATION = Histogram "tollgate_mirror_duration_seconds" "From sending a copy to the end of its answer, by route.";
    MIRROR_IN_FLIGHT = Gauge "tollgate_mirror_in_flight" "Copies under way, by route.";
    LIMITED = Counter "tollgate_limited_total" "Requests refused, by the limit that refused and the tier.";
    SHADOW_LIMITED = Counter "tollgate_shadow_limited_total" "Requests that a shadow limit would have refused, by limit and tier.";
    DELAY = Histogram "tollgate_delay_seconds" "How long requests waited for their place under a limit with over: delay, by the limit that made them.";
    RESERVED_CELLS = Counter "tollgate_reserved_cells_total" "Cells taken at admission from requests whose response has the last word, by limit.";
    SETTLED_CELLS = Counter "tollgate_settled_cells_total" "Cells that those requests came to cost, by limit.";
    REFUSED = Counter "tollgate_refused_total" "Requests answered by the gateway itself, by reason.";
    GRPC = Counter "tollgate_grpc_responses_total" "gRPC calls, by status code: 0 to 16, other, or none if the call ended without one.";
    JWT = Counter "tollgate_jwt_total" "Tokens presented, by result: verified, cached, or why they are not believed.";
    JWKS_FETCHES = Counter "tollgate_jwks_fetches_total" "Fetches of token keys, by result.";
    UPSTREAM_ERRORS = Counter "tollgate_upstream_errors_total" "Failed exchanges with an upstream, by upstream and kind.";
    UPSTREAM_RETRIES = Counter "tollgate_upstream_retries_total" "Further tries of requests, by upstream and reason.";
    RETRIES_WITHHELD = Counter "tollgate_upstream_retries_withheld_total" "Further tries that were not made, by upstream and by what forbade them.";
    UPSTREAM_REQUESTS = Gauge "tollgate_upstream_requests" "Requests under way in an upstream with max_requests, those that wait included.";
    UPSTREAM_PENDING = Gauge "tollgate_upstream_pending_requests" "Requests that wait for a connection to an upstream.";
    UPSTREAM_PANIC = Gauge "tollgate_upstream_panic" "1 while so few of an upstream's endpoints are in order that all but drained ones are used.";
    ENDPOINT_HEALTHY = Gauge "tollgate_endpoint_healthy" "1, or 0 while an endpoint's health checks fail.";
    ENDPOINT_EJECTED = Gauge "tollgate_endpoint_ejected" "1 while an endpoint is ejected for its answers.";
    ENDPOINT_DRAINED = Gauge "tollgate_endpoint_drained" "1 while an operator has taken an endpoint out of use.";
    ENDPOINT_LOAD = Gauge "tollgate_endpoint_requests" "Exchanges under way with an endpoint.";
    SHED = Counter "tollgate_upstream_shed_total" "Requests refused because an upstream had too much to do, by upstream and tier.";
    SHADOW_SHED = Counter "tollgate_upstream_shadow_shed_total" "Requests that would have been refused for that, by upstream and tier.";
    LOAD_LIMIT = Gauge "tollgate_upstream_concurrency_limit" "How many exchanges an upstream does best with, as far as has been found out.";
    LOAD = Gauge "tollgate_upstream_in_flight" "Exchanges under way with such an upstream that have no answer yet.";
    LOAD_BASELINE = Gauge "tollgate_upstream_baseline_latency_seconds" "How long such an upstream takes to answer without a queue, as far as has been found out.";
    LOAD_LATENCY = Gauge "tollgate_upstream_latency_seconds" "How long it took on average of late.";
    HEALTH_CHECKS = Counter "tollgate_health_checks_total" "Health checks of an endpoint, by result.";
    EJECTIONS = Counter "tollgate_endpoint_ejections_total" "Ejections of an endpoint for its answers, by reason.";
    DNS_LOOKUPS = Counter "tollgate_dns_lookups_total" "Look-ups of a name that stands for endpoints, by result.";
    DNS_RESOLVED = Gauge "tollgate_dns_resolved" "1 if the last look-up of a name succeeded, 0 if what it stood for before is used, or nothing.";
    DNS_TTL = Gauge "tollgate_dns_ttl_seconds" "For how long the last good answer for a name was good.";
    DNS_ADDRESSES = Gauge "tollgate_dns_addresses" "How many addresses a name stands for.";
    ENDPOINT_FILE_READS = Counter "tollgate_endpoint_file_reads_total" "Reads of an upstream's file of endpoints, by result.";
    ENDPOINT_FILE_OK = Gauge "tollgate_endpoint_file_ok" "1 if an upstream's file of endpoints is in force as it is now, 0 if an earlier one is, or none.";
    CLIENT_ABORTS = Counter "tollgate_client_aborts_total" "Requests whose client left before the response was complete.";
    UPGRADED = Gauge "tollgate_upgraded_connections" "Connections and streams that have become something else, WebSockets mostly, by route.";
    UPGRADED_DURATION = Histogram "tollgate_upgraded_duration_seconds" "How long upgraded connections lasted, by route.";
    UPGRADED_BYTES = Counter "tollgate_upgraded_bytes_total" "Bytes over upgraded connections, by route and direction: received from clients, or sent to them.";
    WEBSOCKET_REFUSED = Counter "tollgate_websocket_refused_total" "WebSockets ended for what the client sent, by route and reason: messages, bytes, max_message or protocol.";
    RESET_FLOODS = Counter "tollgate_reset_floods_total" "HTTP/2 connections ended because their client reset most of what it asked for, or flooded them otherwise.";
    CONNECTIONS = Counter "tollgate_connections_total" "Connections accepted, by listener.";
    CONNECTIONS_REFUSED = Counter "tollgate_connections_refused_total" "Connections closed at once, by listener and reason.";
    TLS_HANDSHAKES = Counter "tollgate_tls_handshakes_total" "TLS handshakes with clients that succeeded, by listener and kind: full, or resumed.";
    TLS_HANDSHAKE_FAILURES = Counter "tollgate_tls_handshake_failures_total" "TLS handshakes with clients that failed, by listener and kind.";
    TLS_HANDSHAKES_UNDER_WAY = Gauge "tollgate_tls_handshakes_under_way" "TLS handshakes with clients that are under way, by listener.";
    TLS_NOT_AFTER = Gauge "tollgate_tls_certificate_not_after_seconds" "When a certificate in use expires, in seconds since the Unix epoch, by listener or upstream and file.";
    TLS_FILE_RELOADS = Counter "tollgate_tls_file_reloads_total" "Certificates, keys and authorities read again because their files changed, by result.";
    ACCEPT_ERRORS = Counter "tollgate_accept_errors_total" "Failed attempts to accept a connection, by listener.";
    WORKER_CONNECTIONS = Gauge "tollgate_worker_connections" "Open client connections, by worker.";
    SLOTS_IN_USE = Gauge "tollgate_concurrency_slots" "Requests that hold a slot of a concurrency limit.";
    WAITING = Gauge "tollgate_waiting_requests" "Requests that wait for their place under a limit with over: delay.";
    STORE_KEYS = Gauge "tollgate_store_keys" "Counters in the memory store, by limit.";
    STORE_MAX_KEYS = Gauge "tollgate_store_max_keys" "Counters the memory store keeps at most, by limit.";
    STORE_BYTES = Gauge "tollgate_store_bytes" "Bytes of the memory store's tables, by limit. The logs of sliding_log come on top.";
    STORE_EVICTIONS = Counter "tollgate_store_evictions_total" "Counters that gave their place to a newcomer, by limit and by what they were: idle, or live, whose debt the newcomer inherited.";
    STORE_INHERITED = Histogram "tollgate_store_inherited_debt_ratio" "How much of its quota a counter had used when a newcomer inherited it, by limit.";
    STORE_DECISIONS = Counter "tollgate_store_decisions_total" "Charges of shared limits, by who decided: store, lease, remembered (what the store said last), fallback, open or closed.";
    STORE_REFUNDS = Counter "tollgate_store_refunds_total" "Charges of shared limits that were given back because another limit refused.";
    STORE_LEASED = Gauge "tollgate_store_leased_cells" "Cells that are leased from the shared store and not spent yet.";
    STORE_ROUND_TRIPS = Counter "tollgate_store_round_trips_total" "Decisions asked of the shared store, by outcome: answered, or why there was no answer.";
    STORE_ROUND_TRIP = Histogram "tollgate_store_round_trip_seconds" "How long the shared store took to answer, or was waited for.";
    STORE_UP = Gauge "tollgate_store_up" "1 while a node of the shared store is asked, 0 while its breaker is open, by node.";
    STORE_CONNECTIONS = Gauge "tollgate_store_connections" "Connections to a node of the shared store, by node.";
    STORE_IN_FLIGHT = Gauge "tollgate_store_in_flight" "Decisions under way at a node of the shared store, by node.";
    STORE_INSTANCES = Gauge "tollgate_store_instances" "Gateways that count in the shared store, this one included, as last seen.";
    STORE_BREAKER_OPENED = Counter "tollgate_store_breaker_opened_total" "How often the breaker of a node of the shared store has opened.";
    STORE_REBUILDS = Counter "tollgate_store_rebuilds_total" "Times that all connections to a node of the shared store were made anew, by result: connected or failed.";
    STORE_TOPOLOGY_CHANGES = Counter "tollgate_store_topology_changes_total" "Changes of which node of the shared store is whose master, as followed: failovers and moved slots.";
    STORE_POSTS_LOST = Counter "tollgate_store_posts_lost_total" "Corrections and returns to the shared store that did not get there, by reason: queue_full, fault, or unanswered if they may have.";
    RELOADS = Counter "tollgate_config_reloads_total" "Reloads of the configuration, by result.";
    GENERATION = Gauge "tollgate_config_generation" "The number of the configuration in force.";
    RELOAD_OK = Gauge "tollgate_config_last_reload_successful" "1 if the file as it is now is in force, 0 if it was refused.";
    LOG_DROPPED = Counter "tollgate_access_log_dropped_total" "Access log lines dropped because they could not be written, or not fast enough.";
    BUILD = Gauge "tollgate_build_info" "1, labelled with the version.";
}

/// Where this thread counts. Workers have their own; everybody else shares the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane(usize);

/// One number of a family, spread over lanes.
#[derive(Debug, Clone)]
pub struct Counter(Arc<[Padded]>);

/// A cache line of its own, so that two workers never write to the same one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded(AtomicU64);

impl Counter {
    /// Adds to this lane's cell. A worker's lane has one writer, so no locked instruction is needed; the shared lane
    /// counts events of seconds, and a lost one there is not worth a second kind of counter.
    pub fn add(&self, lane: Lane, n: u64) {
        if let Some(Padded(cell)) = self.0.get(lane.0) {
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
    }

    /// Counts one.
    pub fn one(&self, lane: Lane) {
        self.add(lane, 1);
    }

    /// Takes one away: for gauges.
    pub fn less(&self, lane: Lane) {
        self.add(lane, u64::MAX);
    }

    /// The sum over lanes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, Padded(cell)| sum.wrapping_add(cell.load(Ordering::Relaxed)))
    }
}

/// Durations by bucket, spread over lanes.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<[Buckets]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Buckets {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// Counts a duration.
    pub fn observe(&self, lane: Lane, duration: Nanos) {
        let Some(buckets) = self.0.get(lane.0) else { return };
        let index = BOUNDS.iter().position(|(bound, _)| duration <= *bound).unwrap_or(BOUNDS.len());
        let add = |cell: &AtomicU64, n: u64| cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        if let Some(count) = buckets.counts.get(index) {
            add(count, 1);
        }
        add(&buckets.sum, duration);
    }

    fn render(&self, name: &str, labels: &str, out: &mut String) {
        let mut cumulative = 0;
        let separator = if labels.is_empty() { "" } else { "," };
        let bounds = BOUNDS.iter().map(|(_, text)| *text).chain(["+Inf"]);
        for (i, bound) in bounds.enumerate() {
            let count = |lane: &Buckets| lane.counts.get(i).map_or(0, |count| count.load(Ordering::Relaxed));
            cumulative += self.0.iter().map(count).sum::<u64>();
            let _ = writeln!(out, "{name}_bucket{{{labels}{separator}le=\"{bound}\"}} {cumulative}");
        }
        let sum: u64 = self.0.iter().map(|lane| lane.sum.load(Ordering::Relaxed)).sum();
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}.{:09}", sum / SECOND, sum % SECOND);
        let _ = writeln!(out, "{name}_count{{{labels}}} {cumulative}");
    }
}

/// Every number of the process. Cheap to clone; clones agree.
#[derive(Debug, Clone)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lanes: usize,
    series: Mutex<BTreeMap<(Family, String), Series>>,
}

#[derive(Debug, Clone)]
enum Series {
    Number(Counter),
    Histogram(Histogram),
}

impl Registry {
    /// For this many workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self(Arc::new(Inner { lanes: workers + 1, series: Mutex::default() }))
    }

    /// A worker's lane.
    #[must_use]
    pub fn lane(&self, worker: usize) -> Lane {
        Lane(worker.min(self.0.lanes - 1))
    }

    /// Everybody else's lane.
    #[must_use]
    pub fn shared_lane(&self) -> Lane {
        Lane(self.0.lanes - 1)
    }

    /// The counter or gauge with these labels; the same one every time.
    #[must_use]
    pub fn counter(&self, family: Family, labels: &[(&str, &str)]) -> Counter {
        let lanes = self.0.lanes;
        let series = self.series(family, labels, || Series::Number(Counter(padded(lanes))));
        match series {
            Series::Number(counter) => counter,
            // The same name with two kinds would be a mistake in this file's table; count into the void.
            Series::Histogram(_) => Counter(padded(lanes)),
        }
    }

    /// The histogram with these labels.
    #[must_use]
    pub fn histogram(&self, family: Family, labels: &[(&str, &str)]) -> Histogram {
        let lanes = self.0.lanes;
        match self.series(family, labels, || Series::Histogram(Histogram(padded(lanes)))) {
            Series::Histogram(histogram) => histogram,
            Series::Number(_) => Histogram(padded(lanes)),
        }
    }

    /// Drops every series whose labels begin with these, and none but these: what they are of is gone.
    pub fn forget(&self, labels: &[(&str, &str)]) {
        let (all, more) = (joined(labels), format!("{},", joined(labels)));
        let mut series = self.0.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.retain(|(_, labels), _| *labels != all && !labels.starts_with(&more));
    }

    fn series(&self, family: Family, labels: &[(&str, &str)], make: impl FnOnce() -> Series) -> Series {
        let labels = joined(labels);
        let mut series = self.0.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.entry((family, labels)).or_insert_with(make).clone()
    }

    /// The text form that Prometheus reads. `extra` is what is only known when asked for, families together.
    #[must_use]
    pub fn render(&self, extra: &[Sample]) -> String {
        let mut out = String::with_capacity(16 << 10);
        let mut last = None;
        let mut heading = |family: Family, out: &mut String| {
            if last != Some(family) {
                last = Some(family);
                let kind = match family.kind {
                    Kind::Counter => "counter",
                    Kind::Gauge => "gauge",
                    Kind::Histogram => "histogram",
                };
                let _ = writeln!(out, "# HELP {} {}\n# TYPE {} {kind}", family.name, family.help, family.name);
            }
        };
        for ((family, labels), series) in self.0.series.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            heading(*family, &mut out);
            match series {
                Series::Number(counter) if labels.is_empty() => {
                    let _ = writeln!(out, "{} {}", family.name, counter.total());
                }
                Series::Number(counter) => {
                    let _ = writeln!(out, "{}{{{labels}}} {}", family.name, counter.total());
                }
                Series::Histogram(histogram) => histogram.render(family.name, labels, &mut out),
            }
        }
        for Sample { family, labels, value } in extra {
            heading(*family, &mut out);
            match value {
                Value::Number(value) if labels.is_empty() => {
                    let _ = writeln!(out, "{} {value}", family.name);
                }
                Value::Number(value) => {
                    let _ = writeln!(out, "{}{{{labels}}} {value}", family.name);
                }
                Value::Time(value) => {
                    let _ = writeln!(out, "{}{{{labels}}} {}.{:09}", family.name, value / SECOND, value % SECOND);
                }
                Value::Shares { counts, sum } => render_shares(family.name, labels, counts, *sum, &mut out),
            }
        }
        out
    }
}

/// A number that is only known when asked for.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Of which family.
    pub family: Family,
    /// Its labels, escaped and joined.
    pub labels: String,
    /// The number.
    pub value: Value,
}

/// A sample's value.
#[derive(Debug, Clone)]
pub enum Value {
    /// A counter or gauge.
    Number(u64),
    /// A gauge of seconds.
    Time(Nanos),
    /// A histogram of shares: how many up to each bound and above, and their sum in 2^-16ths.
    Shares {
        /// Each bound as it is printed, and how many up to it that are above the one before.
        counts: Vec<(&'static str, u64)>,
        /// The sum of all.
        sum: u64,
    },
}

impl Sample {
    /// A number, with its labels.
    #[must_use]
    pub fn number(family: Family, labels: &[(&str, &str)], value: u64) -> Self {
        Self { family, labels: joined(labels), value: Value::Number(value) }
    }

    /// Seconds, with their labels.
    #[must_use]
    pub fn time(family: Family, labels: &[(&str, &str)], value: Nanos) -> Self {
        Self { family, labels: joined(labels), value: Value::Time(value) }
    }

    /// A histogram of shares.
    #[must_use]
    pub fn shares(family: Family, labels: &[(&str, &str)], counts: Vec<(&'static str, u64)>, sum: u64) -> Self {
        Self { family, labels: joined(labels), value: Value::Shares { counts, sum } }
    }
}

fn render_shares(name: &str, labels: &str, counts: &[(&str, u64)], sum: u64, out: &mut String) {
    let mut cumulative = 0;
    for (bound, count) in counts {
        cumulative += count;
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {cumulative}");
    }
    let _ = writeln!(out, "{name}_sum{{{labels}}} {}.{:05}", sum >> 16, ((sum & 0xffff) * 100_000) >> 16);
    let _ = writeln!(out, "{name}_count{{{labels}}} {cumulative}");
}

fn joined(labels: &[(&str, &str)]) -> String {
    labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect::<Vec<_>>().join(",")
}

fn padded<T: Default>(lanes: usize) -> Arc<[T]> {
    (0..lanes).map(|_| T::default()).collect()
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Upper bounds of the buckets, as numbers and as they are printed.
const BOUNDS: [(Nanos, &str); 15] = [
    (SECOND / 4000, "0.00025"),
    (SECOND / 2000, "0.0005"),
    (SECOND / 1000, "0.001"),
    (SECOND / 400, "0.0025"),
    (SECOND / 200, "0.005"),
    (SECOND / 100, "0.01"),
    (SECOND / 40, "0.025"),
    (SECOND / 20, "0.05"),
    (SECOND / 10, "0.1"),
    (SECOND / 4, "0.25"),
    (SECOND / 2, "0.5"),
    (SECOND, "1"),
    (SECOND / 2 * 5, "2.5"),
    (SECOND * 10, "10"),
    (SECOND * 60, "60"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_add_up_and_the_text_form_is_what_prometheus_reads() {
        let registry = Registry::new(2);
        let counter = registry.counter(REQUESTS, &[("route", "a\"b"), ("code", "2xx")]);
        counter.one(registry.lane(0));
        counter.add(registry.lane(1), 2);
        registry.counter(REQUESTS, &[("route", "a\"b"), ("code", "2xx")]).one(registry.shared_lane());
        let gauge = registry.counter(WORKER_CONNECTIONS, &[("worker", "0")]);
        gauge.one(registry.lane(0));
        gauge.less(registry.lane(1));
        registry.histogram(DURATION, &[]).observe(registry.lane(0), SECOND / 300);
        let text = registry.render(&[
            Sample::number(STORE_KEYS, &[("limit", "plan")], 7),
            Sample::number(GENERATION, &[], 3),
            Sample::shares(STORE_INHERITED, &[("limit", "plan")], vec![("0.5", 2), ("+Inf", 1)], 3 << 15),
        ]);
        for line in [
            "# TYPE tollgate_requests_total counter",
            "tollgate_requests_total{route=\"a\\\"b\",code=\"2xx\"} 4",
            "tollgate_worker_connections{worker=\"0\"} 0",
            "tollgate_request_duration_seconds_bucket{le=\"0.0025\"} 0",
            "tollgate_request_duration_seconds_bucket{le=\"0.005\"} 1",
            "tollgate_request_duration_seconds_bucket{le=\"+Inf\"} 1",
            "tollgate_request_duration_seconds_sum{} 0.003333333",
            "tollgate_store_keys{limit=\"plan\"} 7",
            "tollgate_config_generation 3",
            "tollgate_store_inherited_debt_ratio_bucket{limit=\"plan\",le=\"+Inf\"} 3",
            "tollgate_store_inherited_debt_ratio_sum{limit=\"plan\"} 1.50000",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
