//! `/upstreams`: what endpoints are like, and an operator's say in it.

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Control, error_json, json_body, with_allow};
use crate::discovery::NameState;
use crate::request::path::percent_decode;
use crate::snapshot::{List, UpstreamKind};
use crate::telemetry::metrics::{self, Family, Sample};
use crate::upstream::{AdaptiveState, EndpointState, UpstreamState};

/// Answers for `/upstreams` and what is below; `None` for other paths.
pub(super) fn answer(control: &Control, method: &Method, path: &str) -> Option<Response<Full<Bytes>>> {
    let rest = path.strip_prefix("/upstreams")?;
    let read = method == Method::GET || method == Method::HEAD;
    let parts: Option<Vec<_>> = rest.split('/').skip(1).map(decoded).collect();
    let Some(parts) = parts.filter(|_| rest.is_empty() || rest.starts_with('/')) else { return Some(not_found()) };
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    Some(match parts.as_slice() {
        [] if read => {
            let states: Vec<_> = control.upstreams.states().iter().map(|state| shown(control, state)).collect();
            json_body(StatusCode::OK, &json!({ "upstreams": states }))
        }
        [upstream] if read => match control.upstreams.states().iter().find(|state| &*state.name == *upstream) {
            Some(state) => json_body(StatusCode::OK, &shown(control, state)),
            None => not_found(),
        },
        [upstream, endpoint, "drain"] if [Method::POST, Method::DELETE].contains(method) => {
            match control.upstreams.set_drained(upstream, endpoint, method == Method::POST) {
                Some(state) => json_body(StatusCode::OK, &shown_endpoint(&state)),
                None => not_found(),
            }
        }
        [_, _, "drain"] => {
            with_allow(error_json(StatusCode::METHOD_NOT_ALLOWED, "POST drains, DELETE enables again"), "POST, DELETE")
        }
        [] | [_] => with_allow(error_json(StatusCode::METHOD_NOT_ALLOWED, "use GET"), "GET, HEAD"),
        _ => not_found(),
    })
}

/// What there is to measure of endpoints.
pub(super) fn samples(control: &Control) -> Vec<Sample> {
    let states = control.upstreams.states();
    let gauge = |family: Family, of: fn(&EndpointState) -> u64| {
        let of_upstream = move |upstream: &UpstreamState| {
            let sample = |endpoint: &EndpointState| {
                let labels = [("upstream", &*upstream.name), ("endpoint", &*endpoint.address)];
                Sample::number(family, &labels, of(endpoint))
            };
            upstream.endpoints.iter().map(sample).collect::<Vec<_>>()
        };
        states.iter().flat_map(of_upstream).collect::<Vec<_>>()
    };
    let of_upstream = |family: Family, of: fn(&UpstreamState) -> u64| {
        states.iter().map(move |state| Sample::number(family, &[("upstream", &*state.name)], of(state))).collect::<Vec<_>>()
    };
    let mut samples = of_upstream(metrics::UPSTREAM_PANIC, |state| u64::from(state.panics));
    samples.extend(of_upstream(metrics::UPSTREAM_REQUESTS, |state| u64::from(state.requests)));
    samples.extend(of_upstream(metrics::UPSTREAM_PENDING, |state| u64::from(state.pending)));
    let loads: Vec<_> = states.iter().filter_map(|state| Some((&*state.name, state.adaptive?))).collect();
    samples
        .extend(loads.iter().map(|(name, load)| Sample::number(metrics::LOAD_LIMIT, &[("upstream", name)], load.limit.into())));
    samples.extend(loads.iter().map(|(name, load)| Sample::number(metrics::LOAD, &[("upstream", name)], load.in_flight.into())));
    samples.extend(loads.iter().map(|(name, load)| Sample::time(metrics::LOAD_BASELINE, &[("upstream", name)], load.baseline)));
    samples.extend(loads.iter().map(|(name, load)| Sample::time(metrics::LOAD_LATENCY, &[("upstream", name)], load.latency)));
    samples.extend(gauge(metrics::ENDPOINT_HEALTHY, |endpoint| u64::from(endpoint.healthy)));
    samples.extend(gauge(metrics::ENDPOINT_EJECTED, |endpoint| u64::from(endpoint.ejected_until.is_some())));
    samples.extend(gauge(metrics::ENDPOINT_DRAINED, |endpoint| u64::from(endpoint.drained)));
    samples.extend(gauge(metrics::ENDPOINT_LOAD, |endpoint| u64::from(endpoint.load)));
    samples.extend(name_samples(control));
    samples
}

/// What there is to measure of names that stand for endpoints.
fn name_samples(control: &Control) -> Vec<Sample> {
    let names: Vec<_> = control.names.states().into_iter().map(|(_, state)| state).collect();
    let gauge = |family: Family, of: fn(&NameState) -> u64| {
        names.iter().map(move |state| Sample::number(family, &[("name", &state.name)], of(state))).collect::<Vec<_>>()
    };
    let mut samples = gauge(metrics::DNS_RESOLVED, |state| u64::from(state.result == "success"));
    samples.extend(gauge(metrics::DNS_TTL, |state| state.ttl.as_secs()));
    samples.extend(gauge(metrics::DNS_ADDRESSES, |state| u64::try_from(state.addresses).unwrap_or(u64::MAX)));
    samples
}

fn shown(control: &Control, state: &UpstreamState) -> Value {
    let endpoints: Vec<_> = state.endpoints.iter().map(shown_endpoint).collect();
    let snapshot = control.current.load();
    let configured = snapshot.upstreams.iter().find(|upstream| upstream.name == state.name).map(|upstream| &upstream.kind);
    let (listed, file) = match configured {
        Some(UpstreamKind::Endpoints(set)) => (set.listed.as_slice(), set.file.as_deref()),
        _ => (&[][..], None),
    };
    let stands_for_some = |name: &NameState| {
        let is_it = |other: &str| *other == *name.name;
        listed.iter().filter_map(|origin| origin.place.query()).any(|query| is_it(query.name()))
            || state.endpoints.iter().filter_map(|endpoint| endpoint.source.as_ref()?.name.as_ref()).any(|other| is_it(other))
    };
    let names = control.names.states().into_iter().map(|(_, name)| name).filter(stands_for_some);
    let mut shown = json!({
        "name": &*state.name,
        "panic": state.panics,
        "file": file.map(|file| file.display().to_string()),
        "names": names.map(|name| shown_name(&name)).collect::<Vec<_>>(),
        "endpoints": endpoints,
    });
    if let (Some(load), Some(shown)) = (&state.adaptive, shown.as_object_mut()) {
        shown.insert("adaptive_concurrency".to_owned(), shown_load(load));
    }
    shown
}

fn shown_name(name: &NameState) -> Value {
    json!({
        "name": &*name.name,
        "kind": name.kind,
        "addresses": name.addresses,
        "ttl_seconds": name.ttl.as_secs(),
        "last_result": name.result,
        "resolved_at": name.succeeded_at.and_then(|at| Timestamp::try_from(at).ok()).map(|at| format!("{at:.3}")),
    })
}

fn shown_load(load: &AdaptiveState) -> Value {
    json!({
        "limit": load.limit,
        "in_flight": load.in_flight,
        "baseline_us": load.baseline / 1000,
        "latency_us": load.latency / 1000,
        "mode": if load.enforced { "enforce" } else { "shadow" },
    })
}

fn shown_endpoint(state: &EndpointState) -> Value {
    let until = state.ejected_until.and_then(|until| Timestamp::try_from(until).ok());
    json!({
        "address": &*state.address,
        "weight": state.weight,
        "weight_share": state.share,
        "requests": state.load,
        "healthy": state.healthy,
        "ejected_until": until.map(|until| format!("{until:.3}")),
        "drained": state.drained,
        "standby": state.stands_by,
        "from": state.source.as_ref().map(|source| match source.list {
            List::Configuration => "configuration",
            List::File => "file",
        }),
        "resolved_from": state.source.as_ref().and_then(|source| source.name.as_deref()),
        "used": state.used,
    })
}

/// A segment of the path as it was meant: brackets and blanks come encoded.
fn decoded(segment: &str) -> Option<String> {
    String::from_utf8(percent_decode(segment).into_owned()).ok()
}

fn not_found() -> Response<Full<Bytes>> {
    error_json(
        StatusCode::NOT_FOUND,
        "there are /upstreams, /upstreams/NAME and, for POST and DELETE, /upstreams/NAME/ADDRESS/drain, with names and addresses of the configuration",
    )
}
