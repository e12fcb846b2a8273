//! `tollgate explain`: runs identity and policy on a request that is only imagined, with the code that guards production.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, bail};
use http::{HeaderName, HeaderValue, Method, Request, header::HOST};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::{load, refuse};
use crate::clock::{Clock, unix_seconds};
use crate::identity::jwt::{Cache, Claims, TokenFault};
use crate::identity::{Identity, Part, identify};
use crate::limit::WallOffset;
use crate::policy::{Action, Amount, Limit, Plan, Proceed, Route, Settlement, Side, Split, Subject, UpstreamId, plan};
use crate::request::{ClientCertificate, ConnInfo, Facts};
use crate::snapshot::Snapshot;
use crate::tls::read_small;

/// A line of the report. Writing to a string has no way to fail.
macro_rules! say {
    ($out:expr, $($words:tt)*) => {{
        let _ = writeln!($out, $($words)*);
    }};
}

/// The imagined request.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The configuration.
    #[arg(long, short, default_value = "gateway.yaml")]
    config: PathBuf,
    /// The method.
    #[arg(long, default_value = "GET")]
    method: String,
    /// Path and query.
    #[arg(long)]
    path: String,
    /// A header, `name: value`; may be repeated. `host: …` is localhost if it is not given.
    #[arg(long = "header", short = 'H')]
    headers: Vec<String>,
    /// The address the connection comes from.
    #[arg(long, default_value = "127.0.0.1")]
    ip: IpAddr,
    /// The certificate that the client shows, a file in PEM form; taken as good. The request then comes over TLS.
    #[arg(long)]
    certificate: Option<PathBuf>,
}

pub(super) fn explain(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let snapshot = match load(&arguments.config) {
        Ok(snapshot) => snapshot,
        Err(diagnostics) => return Ok(refuse(&diagnostics)),
    };
    let (clock, wall) = (Clock::system(), WallOffset::default());
    wall.set(clock.wall_now(), clock.now());
    snapshot.identity.clients.tell(unix_seconds(clock.wall_now()));
    snapshot.policy.schedules.refresh(wall.wall_nanos(clock.now()));
    let (parts, ()) = request(arguments)?.into_parts();
    let conn = connection(arguments)?;
    let mut out = String::new();
    match Facts::read(&parts, &conn, &snapshot.path_rules) {
        Ok(facts) => report(&snapshot, &facts, &mut out),
        Err(fault) => say!(out, "refused   {fault}"),
    }
    super::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn connection(arguments: &Arguments) -> anyhow::Result<ConnInfo> {
    let peer = (arguments.ip, 50_000).into();
    let Some(file) = &arguments.certificate else { return Ok(ConnInfo::new(peer, "http")) };
    let pem = read_small(file).with_context(|| format!("--certificate: {}", file.display()))?;
    let der = CertificateDer::from_pem_slice(&pem).ok().context("--certificate: no certificate in PEM form")?;
    Ok(ConnInfo::new(peer, "https").showing(Some(Box::new(ClientCertificate::new(&der)))))
}

fn request(arguments: &Arguments) -> anyhow::Result<Request<()>> {
    if arguments.path.contains('#') {
        bail!("--path: a request target has no fragment");
    }
    let method = Method::from_bytes(arguments.method.as_bytes()).context("--method")?;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = arguments.path.parse().context("--path")?;
    for header in &arguments.headers {
        // What is complained about may be a key: it is not shown.
        let (name, value) = header.split_once(':').context("--header: write `name: value`")?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).context("--header: not a header's name")?;
        let value = HeaderValue::from_str(value.trim()).with_context(|| format!("--header `{name}`"))?;
        request.headers_mut().append(name, value);
    }
    if !request.headers().contains_key(HOST) {
        request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    }
    Ok(request)
}

fn report(snapshot: &Snapshot, facts: &Facts<'_>, out: &mut String) {
    say!(out, "request   {} {} host {}", facts.method, facts.path, facts.authority.host);
    if facts.path == "*" {
        return say!(out, "route     none: `OPTIONS *` is answered by the gateway itself");
    }
    let claims = match believed(snapshot, facts, out) {
        Ok(claims) => claims,
        Err(fault) => {
            return say!(out, "identity  refused with {}: {fault}", if fault == TokenFault::NoKeys { 503 } else { 401 });
        }
    };
    let identity = match identify(facts, &snapshot.identity, claims.as_deref()) {
        Ok(identity) => identity,
        Err(fault) => return say!(out, "identity  refused with 401: {fault}"),
    };
    report_identity(&identity, out);
    match plan(&snapshot.policy, facts, &identity) {
        Plan::Blocked => say!(out, "route     refused with 403: it matches an entry of `blocked`"),
        Plan::NoRoute => say!(out, "route     refused with 404: no route matches host, path and headers"),
        Plan::OtherMethods(methods) => {
            let methods = methods.iter().map(|method| method.as_str()).collect::<Vec<_>>().join(", ");
            say!(out, "route     refused with 405: routes match for other methods only ({methods})");
        }
        Plan::Proceed(proceed) => report_plan(snapshot, facts, &identity, &proceed, out),
    }
}

/// What the request's token says, if it is believed.
fn believed(snapshot: &Snapshot, facts: &Facts<'_>, out: &mut String) -> Result<Option<Rc<Claims>>, TokenFault> {
    let Some(verifier) = &snapshot.identity.jwt else { return Ok(None) };
    let now = unix_seconds(Clock::system().wall_now());
    let checked = verifier.find(facts, &snapshot.identity.key_sources).and_then(|token| {
        let Some(token) = token else { return Ok(None) };
        Cache::default().check(verifier, &token, now).map(|(claims, _)| Some(claims))
    });
    match checked {
        Ok(None) => {}
        Ok(Some(_)) => say!(out, "token     believed"),
        Err(TokenFault::NoKeys) => say!(out, "token     not checked: only a running gateway fetches keys from a URL"),
        Err(fault) => say!(out, "token     not believed: {}", fault.label().replace('_', " ")),
    }
    match checked {
        Err(fault) if !verifier.ignores(fault) => Err(fault),
        checked => Ok(checked.ok().flatten()),
    }
}

fn report_identity(identity: &Identity<'_>, out: &mut String) {
    let known = match identity.known_by {
        Part::ApiKey => "its API key",
        Part::User if identity.claims.is_some_and(|claims| claims.user.is_some()) => "the user of its token",
        Part::User => "the user a trusted proxy named",
        Part::Ip => "its address",
    };
    say!(out, "address   {} (counted as {})", identity.address, identity.network);
    let client = identity.client.map(|(_, client)| &*client.id);
    let counted = match (identity.known_by, client, identity.user_client, identity.user) {
        (Part::ApiKey, Some(client), ..) => client.to_owned(),
        (Part::User, _, Some(client), _) => client.id.to_string(),
        (Part::User, _, None, Some(user)) => format!("user {user}"),
        _ => identity.network.to_string(),
    };
    say!(out, "client    {counted} (by {known})");
    if let Some(client) = client.filter(|client| *client != counted) {
        say!(out, "          with the tier and overrides of {client}");
    }
    say!(out, "tier      {}", identity.tier_name);
    if let Some(certificate) = identity.certificate {
        say!(out, "certificate {}", certificate.details());
    }
}

fn report_plan(snapshot: &Snapshot, facts: &Facts<'_>, identity: &Identity<'_>, proceed: &Proceed<'_>, out: &mut String) {
    let route = proceed.route;
    match &route.action {
        Action::Forward(upstream) => say!(out, "route     {} to upstream {}", route.name, upstream_name(snapshot, *upstream)),
        Action::Split(split) => report_split(snapshot, split, route, identity, out),
        Action::Respond { status, .. } => say!(out, "route     {} answers {status}", route.name),
    }
    if let Some(mirror) = &route.mirror {
        say!(
            out,
            "mirror    {} of the requests to upstream {}",
            percent(mirror.sample, 1 << 32),
            upstream_name(snapshot, mirror.upstream)
        );
    }
    if proceed.exempt {
        return say!(out, "limits    none: the request is exempt");
    }
    let subject = Subject { facts, identity, route: Some(route.id), active: snapshot.policy.schedules.active() };
    for limit in &snapshot.policy.limits {
        say!(out, "limit     {}: {}", limit.name, verdict(limit, &subject, route));
    }
}

fn report_split(snapshot: &Snapshot, split: &Split, route: &Route, identity: &Identity<'_>, out: &mut String) {
    let all: u64 = split.sides().iter().map(|side| u64::from(side.weight)).sum();
    let place = split.place(identity.client_hash());
    let chosen = place.and_then(|place| split.sides().get(place)).map_or("", |side| upstream_name(snapshot, side.upstream));
    say!(out, "route     {} to upstream {chosen}, always for this client", route.name);
    let share = |side: &Side| format!("{} {}", upstream_name(snapshot, side.upstream), percent(u64::from(side.weight), all));
    say!(out, "split     {}", split.sides().iter().map(share).collect::<Vec<_>>().join(", "));
}

fn upstream_name(snapshot: &Snapshot, upstream: UpstreamId) -> &str {
    snapshot.upstreams.get(usize::from(upstream.0)).map_or("", |upstream| &upstream.name)
}

/// With three digits behind the point, and none that say nothing.
fn percent(part: u64, of: u64) -> String {
    let thousandths = (u128::from(part) * 100_000 + u128::from(of) / 2) / u128::from(of.max(1));
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn verdict(limit: &Limit, subject: &Subject<'_>, route: &Route) -> String {
    if !limit.matcher.matches(subject) {
        return "does not apply: `match` does not hold".to_owned();
    }
    if !limit.applies(subject) {
        return "does not apply: `unless` holds".to_owned();
    }
    if limit.key(subject, route).is_none() {
        return "does not apply: the request lacks a part of `per`".to_owned();
    }
    let shadow = if limit.shadow { " (shadow: counted, never refused)" } else { "" };
    if let Amount::Concurrency(max) = &limit.amount {
        return format!("{max} in flight{shadow}");
    }
    let windows = limit.windows(subject);
    if windows.is_empty() {
        return format!("unlimited{shadow}");
    }
    let cost = limit.cost.of(subject, route, windows);
    let policies = windows.iter().map(|window| window.policy.to_str().unwrap_or_default()).collect::<Vec<_>>().join(", ");
    format!("cost {cost} of {policies}{}{shadow}", manner(limit))
}

/// What is not plain about how a limit counts.
fn manner(limit: &Limit) -> String {
    let mut manner = String::new();
    if let Some(settlement) = &limit.settlement {
        manner.push_str(match settlement {
            Settlement { cost: Some(_), .. } => ", until the response says what it cost",
            Settlement { count: Some(_), .. } => ", given back unless the response counts",
            _ => ", given back for some responses",
        });
    }
    if limit.queue > 0 {
        manner.push_str(", over it requests wait");
    }
    if limit.warmup.is_some() {
        manner.push_str(", more for newcomers");
    }
    manner
}
