//! From what was typed to what is true: [`Config`] → [`Snapshot`], or every problem with its path.
//!
//! The only road from one to the other. All references are resolved here, so nothing later looks up a name; all numbers are
//! checked here, so nothing later checks again. A problem does not stop the search for more.

mod adaptive;
mod clients;
mod connections;
mod costs;
mod destinations;
mod health;
mod identity;
mod key_prefixes;
mod limits;
mod listeners;
mod matching;
mod origins;
mod redis;
mod retry;
mod rooms;
mod routes;
mod schedules;
mod sharing;
mod tls;
mod tokens;
mod upgrades;
mod upstreams;

use std::collections::BTreeMap;

use http::StatusCode;

use crate::config::diagnostic::{Diagnostic, Path, Problem, did_you_mean};
use crate::config::{self, Config, NOT_AVAILABLE, Source};
use crate::headers::Family;
use crate::identity::Pseudonyms;
use crate::identity::jwt::KeyRings;
use crate::limit::{Calendars, KeyHasher, Quotas, Spaces};
use crate::policy::{Policy, RouteId, Routes, ScheduleId, Schedules, Sender, UpstreamId};
use crate::request::PathRules;
use crate::respond::{BodyForm, GrpcStatus};
use crate::snapshot::{AccessLog, Addresses, Process, Rejection, Snapshot};
use crate::telemetry::access_log::Format;
use crate::telemetry::metrics::Registry;
use crate::tls::SessionCache;
use clients::KnownClients;
pub use origins::origins;

/// What outlives configurations and a new one is compiled against.
#[derive(Debug, Clone)]
pub struct Ground {
    /// Every quota ever configured.
    pub quotas: Quotas,
    /// Every room in the store ever named.
    pub spaces: Spaces,
    /// Every calendar ever configured.
    pub calendars: Calendars,
    /// Where tokens' keys hang.
    pub key_rings: KeyRings,
    /// TLS sessions of clients.
    pub sessions: SessionCache,
    /// Makes counter keys.
    pub hasher: KeyHasher,
    /// Names addresses in the access log, unless the configuration has a key for that.
    pub pseudonyms: Pseudonyms,
    /// Where counts are kept.
    pub registry: Registry,
}

impl Default for Ground {
    /// For `check` and `explain`: nothing is kept.
    fn default() -> Self {
        Self {
            quotas: Quotas::default(),
            spaces: Spaces::default(),
            calendars: Calendars::default(),
            key_rings: KeyRings::default(),
            sessions: SessionCache::default(),
            hasher: KeyHasher::default(),
            pseudonyms: Pseudonyms::default(),
            registry: Registry::new(0),
        }
    }
}

/// Compiles what was read.
///
/// # Errors
/// Every problem of every file, with its place.
pub fn compile(source: &Source, ground: &Ground, generation: u64) -> Result<Snapshot, Vec<Diagnostic>> {
    let (mut snapshot, mut problems) = (None, Vec::new());
    if let Some(config) = source.config() {
        let is_incomplete = |key: &str| source.is_incomplete(key);
        let mut compiler = Compiler { source, config, ground, problems: Vec::new(), is_incomplete: &is_incomplete };
        snapshot = compiler.snapshot(generation);
        problems = compiler.problems;
    }
    let diagnostics = source.diagnose(problems);
    match snapshot {
        Some(snapshot) if diagnostics.is_empty() => Ok(snapshot),
        _ => Err(diagnostics),
    }
}

/// The search for problems.
struct Compiler<'c> {
    source: &'c Source,
    config: &'c Config,
    ground: &'c Ground,
    problems: Vec<Problem>,
    /// Whether shape errors took something out below this key.
    is_incomplete: &'c dyn Fn(&str) -> bool,
}

/// What names mean.
struct Names<'c> {
    tiers: Vec<&'c str>,
    known: KnownClients<'c>,
    /// Prefixes of keys that conditions name, in the order of their bits.
    key_prefixes: Vec<&'c str>,
    routes: BTreeMap<&'c str, RouteId>,
    upstreams: BTreeMap<&'c str, UpstreamId>,
    schedules: BTreeMap<&'c str, ScheduleId>,
    /// Claims that limits count by, in the order of their ids.
    claims: Vec<&'c str>,
}

impl<'c> Compiler<'c> {
    fn snapshot(&mut self, generation: u64) -> Option<Snapshot> {
        let config = self.config;
        let listeners = self.listeners();
        let tiers = self.tiers();
        let known = self.clients(&tiers);
        let key_prefixes = self.key_prefixes();
        let routes = self.indexed(&Path::root("routes"), config.routes.iter().map(|route| route.name.as_str()), RouteId);
        let upstreams = (0..).zip(config.upstreams.keys()).map(|(i, name)| (name.as_str(), UpstreamId(i))).collect();
        let (schedules, times) = self.schedules();
        let claims = tokens::counted_claims(&config.limits);
        let names = Names { tiers, known, key_prefixes, routes, upstreams, schedules, claims };
        let exempt =
            self.exceptions(&config.exempt, &Path::root("exempt"), &names, config::IgnoreCase::Always, Sender::TrustedProxy);
        let blocked =
            self.exceptions(&config.blocked, &Path::root("blocked"), &names, config::IgnoreCase::Limits, Sender::Anybody);
        let (limits, rooms) = self.limits(&names);
        let compiled_routes = self.routes(&names);
        let compiled_upstreams = self.upstreams(names.tiers.len());
        let dns = self.dns();
        let process = self.process();
        let rejection = self.rejection();
        let limit_metrics = limits.iter().map(|limit| self.limit_metrics(&limit.name, &names)).collect();
        let route_metrics = config.routes.iter().map(|route| self.metrics_of(route)).collect();
        let ignore_case = config.paths.ignore_case == config::IgnoreCase::Always;
        let (identity, identity_headers) = self.identity(names);
        Some(Snapshot {
            generation,
            path_rules: PathRules {
                distinct_trailing_slash: config.paths.trailing_slash == config::TrailingSlash::Distinct,
                allow_encoded_slash: config.paths.encoded_slash == config::EncodedSlash::Allow,
            },
            identity,
            identity_headers,
            policy: Policy {
                routes: Routes::new(compiled_routes, ignore_case),
                limits,
                exempt,
                blocked,
                schedules: Schedules::new(times),
            },
            rooms,
            upstreams: compiled_upstreams,
            dns,
            rejection,
            access_log: self.access_log(),
            limit_metrics,
            route_metrics,
            unrouted_metrics: self.route_metrics("", None),
            listeners,
            process: process?,
        })
    }

    fn problem(&mut self, path: &Path, message: impl Into<String>) {
        self.problems.push(Problem::new(path.clone(), message));
    }

    /// A name that must be among `known`, which stand under `collection`.
    fn unknown(&mut self, path: &Path, what: &str, name: &str, collection: &str, known: &[&str]) {
        if (self.is_incomplete)(collection) {
            return;
        }
        let mut problem = Problem::new(path.clone(), format!("there is no {what} `{name}` in `{collection}`"));
        problem.hint = did_you_mean(name, known.iter().copied());
        self.problems.push(problem);
    }

    /// Unique names in order, by what they become.
    fn indexed<T>(&mut self, path: &Path, names: impl Iterator<Item = &'c str>, make: impl Fn(u16) -> T) -> BTreeMap<&'c str, T> {
        let mut indexed = BTreeMap::new();
        for (i, name) in names.enumerate() {
            let at = path.index(i).key("name");
            if name.is_empty() || name.chars().any(char::is_control) || name.len() > MAX_NAME {
                self.problem(&at, "a name has 1 to 100 characters and no control characters");
            }
            if indexed.insert(name, make(u16::try_from(i).unwrap_or(u16::MAX))).is_some() {
                self.problem(&at, format!("the name `{name}` is taken already"));
            }
        }
        indexed
    }

    fn positive(&mut self, span: crate::units::Span, path: &Path) -> std::time::Duration {
        if span.0.is_zero() {
            self.problem(path, "must be more than zero");
        }
        span.0
    }

    fn process(&mut self) -> Option<Process> {
        let config = self.config;
        let path = Path::root("admin");
        let (address, admin_mode) = self.admin_address(&path);
        if config.store.memory.max_keys == 0 {
            self.problem(&Path::root("store").key("memory").key("max_keys"), "must be at least 1");
        }
        if config.access_log.to.is_empty() {
            self.problem(&Path::root("access_log").key("to"), "write stdout, stderr or the path of a file");
        }
        let shared_store = self.redis();
        Some(Process {
            workers: match config.workers {
                config::Workers::Auto => None,
                config::Workers::Count(count) => Some(count),
            },
            admin_address: address?,
            admin_mode,
            admin_token: Some(&config.admin.token).filter(|token| !token.0.is_empty()).cloned(),
            access_log_to: config.access_log.to.as_str().into(),
            shared_store,
            shutdown_delay: config.shutdown.delay.0,
            shutdown_drain: config.shutdown.drain.0,
        })
    }

    fn access_log(&mut self) -> Option<AccessLog> {
        let config::AccessLog { format, sample, addresses, hash_key, .. } = &self.config.access_log;
        if hash_key.as_ref().is_some_and(|config::Secret(key)| key.len() < MIN_HASH_KEY) {
            // Addresses are few: whoever guesses the key can find all of them.
            self.problem(
                &Path::root("access_log").key("hash_key"),
                "write at least 16 bytes; `openssl rand -base64 16` makes them",
            );
        }
        let format = match format {
            config::LogFormat::Json => Format::Json,
            config::LogFormat::Text => Format::Text,
            config::LogFormat::Off => return None,
        };
        let addresses = match (addresses, hash_key) {
            (config::LogAddresses::Full, _) => Addresses::Full,
            (config::LogAddresses::Hashed, Some(config::Secret(key))) => Addresses::Hashed(Pseudonyms::keyed(key)),
            (config::LogAddresses::Hashed, None) => Addresses::Hashed(self.ground.pseudonyms.clone()),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share from 0 to 1 was checked when it was read"
        )]
        let sample = (sample.0 * 2_f64.powi(32)) as u64;
        Some(AccessLog { format, sample, addresses })
    }

    fn rejection(&mut self) -> Rejection {
        let rejection = &self.config.rejection;
        let path = Path::root("rejection");
        let status =
            StatusCode::from_u16(rejection.status).ok().filter(|status| status.is_client_error() || status.is_server_error());
        if status.is_none() {
            self.problem(&path.key("status"), "a refusal's status is from 400 to 599");
        }
        let form = match rejection.body {
            config::RejectionBody::Simple => BodyForm::Simple,
            config::RejectionBody::Problem => BodyForm::Problem,
            config::RejectionBody::Stripe => {
                self.problem(&path.key("body"), format!("`stripe` is {NOT_AVAILABLE}"));
                BodyForm::Simple
            }
        };
        let families = rejection.headers.0.iter().map(|family| match family {
            config::RateLimitHeaders::XRatelimit => Family::XRateLimit,
            config::RateLimitHeaders::Ietf => Family::Ietf,
            config::RateLimitHeaders::Ietf03 => Family::Ietf03,
            config::RateLimitHeaders::Github => Family::GitHub,
        });
        let families: Vec<_> = families.collect();
        if families.contains(&Family::XRateLimit) && families.contains(&Family::GitHub) {
            self.problem(&path.key("headers"), "x-ratelimit and github use the same names with different meanings; choose one");
        }
        let grpc_status = match rejection.grpc_status {
            config::GrpcStatus::ResourceExhausted => GrpcStatus::ResourceExhausted,
            config::GrpcStatus::Unavailable => GrpcStatus::Unavailable,
        };
        Rejection { status: status.unwrap_or(StatusCode::TOO_MANY_REQUESTS), grpc_status, form, families }
    }
}

const MAX_NAME: usize = 100;
/// In bytes: as many as the hash's key has.
const MIN_HASH_KEY: usize = 16;
