//! The admin listener: health, metrics, reload and a say in which endpoints are used, on a socket and a thread of its own, so that it answers when every
//! worker is busy. It knows nothing of requests in flight; what it can change goes through [`Control`].

mod places;
mod store;
mod upstreams;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};
use tracing::error;

use crate::admission::Registries;
use crate::config::Secret;
use crate::config::diagnostic::Diagnostic;
use crate::discovery::Names;
use crate::request::Authority;
use crate::snapshot::Current;
use crate::socket::{Listener, StdListener, Stream};
use crate::store::{DEBT_SHARES, Occupancy, Store};
use crate::telemetry::metrics::{self, Registry, Sample};
use crate::tls::InUse;
use crate::upstream::Shared;

use places::{Place, Places};

/// What a reload came to: the generation in force, or why the file was refused.
pub type Reloaded = Result<u64, Vec<Diagnostic>>;

/// What the admin listener shows and may ask for.
#[derive(Debug)]
pub struct Control {
    /// Metrics.
    pub registry: Registry,
    /// For its occupancy.
    pub store: Arc<Store>,
    /// For slots in use and requests that wait.
    pub registries: Registries,
    /// For the generation.
    pub current: Arc<Current>,
    /// For endpoints' states.
    pub upstreams: Arc<Shared>,
    /// For what is known of names.
    pub names: Arc<Names>,
    /// Whether `/readyz` says yes.
    pub ready: AtomicBool,
    /// Asks for a reload and gets its result.
    pub reload: mpsc::Sender<oneshot::Sender<Reloaded>>,
    /// Required for everything but health, if there is one.
    pub token: Option<Secret>,
}

/// Starts the admin thread on a bound socket.
///
/// # Errors
/// When the thread can't be made.
pub fn start(listener: StdListener, control: Arc<Control>) -> std::io::Result<()> {
    let serve = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(tokio::runtime::LocalOptions::default());
        match runtime {
            Ok(runtime) => runtime.block_on(accept(listener, control)),
            Err(error) => error!(%error, "admin cannot start its runtime"),
        }
    };
    std::thread::Builder::new().name("admin".to_owned()).spawn(serve)?;
    Ok(())
}

async fn accept(listener: StdListener, control: Arc<Control>) {
    let listener = match Listener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error!(%error, "admin cannot listen"),
    };
    let places = Places::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        tokio::task::spawn_local(serve(stream, places.take(), Arc::clone(&control)));
    }
}

/// One request per connection, and a bound on it. A peer that breaks off is its own affair.
async fn serve(stream: Stream, place: Place, control: Arc<Control>) {
    let service = service_fn(|request| {
        place.asks();
        let control = Arc::clone(&control);
        async move { Ok::<_, Infallible>(answer(&control, &request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).keep_alive(false);
    let served = tokio::time::timeout(REQUEST_TIMEOUT, builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = served => {}
        () = place.lost() => {}
    }
}

async fn answer<B>(control: &Control, request: &Request<B>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let read = request.method() == Method::GET || request.method() == Method::HEAD;
    match path {
        "/healthz" if read => return text(StatusCode::OK, "ok\n"),
        "/readyz" if read && control.ready.load(Ordering::Relaxed) => return text(StatusCode::OK, "ready\n"),
        "/readyz" if read => return text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        _ => {}
    }
    if request.headers().get_all(HOST).iter().count() != 1 || request.uri().authority().is_some() {
        return error_json(StatusCode::BAD_REQUEST, "a request names its Host once, and in no other place");
    }
    if let Some(refusal) = control.refusal(request.headers()) {
        return refusal;
    }
    if let Some(response) = upstreams::answer(control, request.method(), path) {
        return response;
    }
    match path {
        "/metrics" if read => metrics_text(control),
        "/store" if read => store::answer(control),
        "/reload" if request.method() == Method::POST => reload(control).await,
        "/reload" => with_allow(error_json(StatusCode::METHOD_NOT_ALLOWED, "use POST"), "POST"),
        "/healthz" | "/readyz" | "/metrics" | "/store" => {
            with_allow(error_json(StatusCode::METHOD_NOT_ALLOWED, "use GET"), "GET, HEAD")
        }
        _ => error_json(StatusCode::NOT_FOUND, "there are /healthz, /readyz, /metrics, /upstreams, /store and POST /reload"),
    }
}

impl Control {
    /// A token if one is configured; without one, only what a program on this machine sends on purpose: a web page that a
    /// browser here shows must reach nothing, neither by a form nor by a name that resolves to loopback.
    fn refusal(&self, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
        let from_page = headers.contains_key(ORIGIN)
            || headers.get("sec-fetch-site").is_some_and(|site| site != "none" && site != "same-origin");
        if from_page {
            return Some(error_json(StatusCode::FORBIDDEN, "cross-site requests are refused"));
        }
        match &self.token {
            Some(token) => {
                let given = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
                // Digests are compared, so time tells nothing about the token.
                if given.is_some_and(|given| Sha256::digest(given) == Sha256::digest(token.0.as_bytes())) {
                    return None;
                }
                let mut refusal = error_json(StatusCode::UNAUTHORIZED, "a bearer token is required");
                refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tollgate admin\""));
                Some(refusal)
            }
            None if headers.get(HOST).is_none_or(|host| is_local_name(host.as_bytes())) => None,
            None => Some(error_json(StatusCode::FORBIDDEN, "without a token, only localhost and addresses are accepted as Host")),
        }
    }
}

fn is_local_name(host: &[u8]) -> bool {
    let Ok(authority) = Authority::parse(host, "http") else { return false };
    let name = authority.host.trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok()
}

fn metrics_text(control: &Control) -> Response<Full<Bytes>> {
    let mut extra = vec![
        Sample::number(metrics::GENERATION, &[], control.current.generation()),
        Sample::number(metrics::SLOTS_IN_USE, &[], control.registries.slots.in_flight()),
        Sample::number(metrics::WAITING, &[], control.registries.waiting.waiting()),
    ];
    extra.extend(store_samples(control));
    extra.extend(store::samples(control));
    extra.extend(certificate_samples(control));
    extra.extend(upstreams::samples(control));
    let mut response = Response::new(Full::new(Bytes::from(control.registry.render(&extra))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    response
}

/// How full each limit's room is.
fn store_samples(control: &Control) -> Vec<Sample> {
    let (snapshot, occupancy) = (control.current.load(), control.store.memory.occupancy());
    let mut named: BTreeMap<&str, Occupancy> = BTreeMap::new();
    for of_room in &occupancy {
        if let Some(room) = snapshot.rooms.iter().find(|room| room.budget.space == of_room.space) {
            named.entry(&room.limit).and_modify(|sum| sum.add(of_room)).or_insert(*of_room);
        }
    }
    let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let gauge = |family, of: fn(&Occupancy) -> usize| {
        named.iter().map(move |(limit, occupancy)| Sample::number(family, &[("limit", limit)], number(of(occupancy))))
    };
    let evictions = named.iter().flat_map(|(limit, occupancy)| {
        let sample = |was, count| Sample::number(metrics::STORE_EVICTIONS, &[("limit", limit), ("was", was)], count);
        [sample("idle", occupancy.evicted_idle), sample("live", occupancy.evicted_live)]
    });
    let bounds = || DEBT_SHARES.iter().map(|(_, text)| *text).chain(["+Inf"]);
    let inherited = named.iter().map(|(limit, occupancy)| {
        let counts = bounds().zip(occupancy.inherited).collect();
        Sample::shares(metrics::STORE_INHERITED, &[("limit", limit)], counts, occupancy.inherited_sum)
    });
    gauge(metrics::STORE_KEYS, |occupancy| occupancy.keys)
        .chain(gauge(metrics::STORE_MAX_KEYS, |occupancy| occupancy.max_keys))
        .chain(gauge(metrics::STORE_BYTES, |occupancy| occupancy.bytes))
        .chain(evictions)
        .chain(inherited)
        .collect()
}

/// When certificates in use expire.
fn certificate_samples(control: &Control) -> Vec<Sample> {
    let snapshot = control.current.load();
    let sample = |of: &str, name: &str, InUse { file, not_after }: InUse| {
        Sample::number(metrics::TLS_NOT_AFTER, &[(of, name), ("file", &file.display().to_string())], not_after)
    };
    let mut samples = Vec::new();
    for (listener, tls) in snapshot.listeners.iter().filter_map(|listener| Some((listener, listener.tls.as_ref()?))) {
        samples.extend(tls.server.in_use().into_iter().map(|in_use| sample("listener", &listener.name, in_use)));
    }
    for (upstream, tls) in snapshot.upstreams.iter().filter_map(|upstream| Some((upstream, upstream.tls.as_ref()?))) {
        samples.extend(tls.in_use().map(|in_use| sample("upstream", &upstream.name, in_use)));
    }
    samples
}

async fn reload(control: &Control) -> Response<Full<Bytes>> {
    let (sender, result) = oneshot::channel();
    if control.reload.send(sender).await.is_err() {
        return error_json(StatusCode::SERVICE_UNAVAILABLE, "shutting down");
    }
    match result.await {
        Ok(Ok(generation)) => json_body(StatusCode::OK, &json!({ "generation": generation })),
        Ok(Err(diagnostics)) => {
            let generation = control.current.generation();
            json_body(
                StatusCode::UNPROCESSABLE_ENTITY,
                &json!({ "error": "configuration_refused", "generation": generation, "diagnostics": diagnostics }),
            )
        }
        Err(_) => error_json(StatusCode::SERVICE_UNAVAILABLE, "shutting down"),
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn error_json(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    let code = status.canonical_reason().unwrap_or("error").to_ascii_lowercase().replace(' ', "_");
    json_body(status, &json!({ "error": code, "message": message }))
}

fn with_allow(mut response: Response<Full<Bytes>>, allow: &'static str) -> Response<Full<Bytes>> {
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// What stands behind the scheme, which is compared in any case (RFC 9110 §11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn json_body(status: StatusCode, body: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const HEADER_TIMEOUT: Duration = Duration::from_secs(3);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
