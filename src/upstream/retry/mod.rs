//! Trying again: requests of upstreams with `retry`, with bounds on requests, or whose connections are shared.
//!
//! [`Client::attempts`] is the loop: a try, what came of it, and whether there is another one. [`Attempts`] decides, from rules that are a
//! few lines each: what is worth another try and may safely be seen twice (`reason`), whether the body can be sent again (`has_body`), and
//! what is left of attempts, time and budget (`again`). Two things are tried again once without `retry` too, and cost nothing: what
//! upstream has refused before it began, and what met a connection that was just being closed.
//!
//! A request that may have been worked on and is not idempotent is never sent twice, unless it is a gRPC call and the operator has said that
//! calls may be, by listing their statuses. None of this is on the way of plain HTTP/1.1 without `retry`.

mod budget;
mod counters;
mod pause;
mod tried;

use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;

use super::announce::Announced;
use super::bulkhead::{Pending, Room};
use super::http2::Sent;
use super::judge::Circumstances;
use super::payload::{Kept, Payload};
use super::pool::{Cluster, Lease};
use super::shared::Place;
use super::{Client, ExchangeError, Received, Request, Response, TotalTimeout, UpstreamError, in_time, is_out_of, running};
use crate::admission::Permit;
use crate::clock::deadline::Deadline;
use crate::clock::{Clock, Nanos, saturating_nanos};
use crate::headers::Framing;
use crate::request::grpc;
use crate::snapshot::Retry;
use crate::telemetry::metrics::Lane;

pub(super) use budget::RetryBudget;
use counters::Withheld;
pub(super) use counters::{Reason, RetryCounters};
use pause::Asked;
pub(super) use tried::Tried;

/// A try that came to nothing, or to a response that may be worth another one.
enum Failure {
    /// There was no connection to send it on.
    Unsent(UpstreamError),
    /// It was sent, and there is no response; with the lease that this is to be judged by, unless it has been.
    Lost(Sent, Option<Lease>),
    /// There is a response.
    Answered(Response),
}

/// What comes before another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// Nothing, and it costs nothing.
    None,
    For(Duration),
}

/// One request's tries.
struct Attempts<'c> {
    cluster: &'c Rc<Cluster>,
    rules: Option<&'c Retry>,
    idempotent: bool,
    /// It had no body.
    bodiless: bool,
    /// The client has a part in how long it takes until the response begins.
    shares_time: bool,
    /// The body, where it is kept.
    kept: Option<Rc<Kept>>,
    tried: Tried,
    /// Where the try under way has come to.
    place: Option<usize>,
    retries: u32,
    /// What costs nothing has been had.
    free: bool,
    /// When the time for the whole exchange is over.
    ends: Option<Nanos>,
    total: Option<Rc<Deadline>>,
}

impl Client {
    /// See [`Client::exchange`].
    pub(super) async fn attempts(
        &self,
        cluster: &Rc<Cluster>,
        permit: &Permit,
        mut request: Request<'_>,
    ) -> Result<Response, UpstreamError> {
        let room = Room::enter(cluster)?;
        let mut attempts = Attempts::begin(cluster, &mut request, &self.shared.clock);
        loop {
            let failure = match self.one_try(&mut attempts, &mut request).await {
                Ok(response) if attempts.reason_of(&response).is_none() => return Ok(attempts.accept(response, room)),
                Ok(response) => Failure::Answered(response),
                Err(failure) => failure,
            };
            let Some((reason, pause)) = attempts.again(&failure, self) else {
                return match failure {
                    Failure::Unsent(error) => Err(error),
                    Failure::Lost(sent, lease) => Err(attempts.judge(sent, lease).into()),
                    Failure::Answered(response) => Ok(attempts.accept(response, room)),
                };
            };
            request.body = attempts.pass_over(failure, pause, self.lane);
            permit.again();
            cluster.retries.one(reason, self.lane);
            if let Pause::For(pause) = pause {
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn one_try(&self, attempts: &mut Attempts<'_>, request: &mut Request<'_>) -> Result<Response, Failure> {
        let cluster = attempts.cluster;
        let total = attempts.total.clone();
        let found = in_time(total.as_deref(), self.find_or_wait(cluster, request, attempts)).await;
        let (place, lease) = found.map_err(Failure::Unsent)?;
        attempts.place = attempts.rules.and_then(|_| cluster.place_of(&lease));
        if let Some(kept) = &attempts.kept {
            kept.rewind();
            request.body = Some(Payload::Kept(Rc::clone(kept)));
        }
        self.send(place, lease, cluster, request, total).await.map_err(|(sent, lease)| Failure::Lost(sent, lease))
    }

    /// Where to send it. If the upstream has no connection left, that is waited for, as far as others don't already.
    async fn find_or_wait(
        &self,
        cluster: &Rc<Cluster>,
        request: &Request<'_>,
        attempts: &mut Attempts<'_>,
    ) -> Result<(Place, Lease), UpstreamError> {
        let announced = cluster.announced(request.conn);
        let (fresh, shares) = (attempts.free, cluster.may_share_connections() && request.offer.is_none());
        match self.find(cluster, request.balance_key, announced.as_deref(), shares, fresh, &mut attempts.tried).await {
            Err(UpstreamError::Saturated) => {}
            found => return found,
        }
        let pending = Pending::begin(cluster)?;
        let find = async || {
            attempts.tried.begin_anew();
            self.find(cluster, request.balance_key, announced.as_deref(), shares, fresh, &mut attempts.tried).await
        };
        pending.until_free(cluster.connect_timeout, find).await
    }

    async fn find(
        &self,
        cluster: &Rc<Cluster>,
        key: Option<NonZeroU64>,
        announced: Option<&Announced>,
        shares: bool,
        fresh: bool,
        tried: &mut Tried,
    ) -> Result<(Place, Lease), UpstreamError> {
        if shares {
            return self.place(cluster, key, tried).await;
        }
        let (connection, lease) = self.lease(cluster, key, announced, fresh, tried).await?.into_parts();
        Ok((Place::Http1(connection), lease))
    }
}

impl<'c> Attempts<'c> {
    fn begin(cluster: &'c Rc<Cluster>, request: &mut Request<'_>, clock: &Clock) -> Self {
        let rules = cluster.retry.as_ref();
        let (bodiless, shares_time) = (request.body.is_none(), request.shares_time());
        let kept = rules.and_then(|rules| {
            cluster.group.traffic.budget.request(clock.now());
            let Payload::Client(body) = request.body.take()? else { return None };
            // One that says that it is too large can be sent again only as long as nothing of it has been taken.
            let max = match request.framing {
                Framing::Length(length) if usize::try_from(length).is_ok_and(|length| length > rules.max_body) => 0,
                _ => rules.max_body,
            };
            Some(Kept::new(body, max, rules.max_bodies, &cluster.group))
        });
        let ends = |total: TotalTimeout| clock.now().saturating_add(saturating_nanos(total.length()));
        Self {
            cluster,
            rules,
            idempotent: request.method.is_idempotent(),
            bodiless,
            shares_time,
            kept,
            tried: Tried::default(),
            place: None,
            retries: 0,
            free: false,
            ends: request.total_timeout.filter(|_| rules.is_some()).map(ends),
            total: request.total_timeout.map(running),
        }
    }

    /// Whether a response is worth another try.
    fn reason_of(&self, response: &Response) -> Option<Reason> {
        let on = &self.rules?.on;
        if !on.grpc.is_empty() && status_of_call(response).is_some_and(|status| on.grpc.contains(&status)) {
            return Some(Reason::Grpc);
        }
        (self.idempotent && is_among(&on.status, response.status)).then_some(Reason::Status)
    }

    /// Whether what has come of a try is worth another one.
    fn reason(&self, failure: &Failure) -> Option<Reason> {
        let wanted = |wanted: bool, reason| wanted.then_some(reason);
        match failure {
            Failure::Answered(response) => self.reason_of(response),
            Failure::Unsent(UpstreamError::Connect(_) | UpstreamError::ConnectTimeout | UpstreamError::Tls(_)) => {
                wanted(self.rules?.on.connect, Reason::Connect)
            }
            // Nobody has been asked: what the gateway refuses itself it refuses once.
            Failure::Unsent(_) => None,
            Failure::Lost(Sent { error, reused, .. }, _) => match error {
                ExchangeError::Refused => wanted(self.rules.is_some() || !self.free, Reason::Refused),
                ExchangeError::Closed if *reused && !self.free && self.idempotent => Some(Reason::Closed),
                ExchangeError::Closed | ExchangeError::Io(_) | ExchangeError::Reset(_) => {
                    wanted(self.rules?.on.reset && self.idempotent, Reason::Reset)
                }
                ExchangeError::Timeout => wanted(self.rules?.per_try.is_some() && self.idempotent, Reason::Timeout),
                ExchangeError::Invalid(_) | ExchangeError::RequestBody(_) | ExchangeError::Unsayable => None,
            },
        }
    }

    /// Whether the body, if there is one, can be sent from its beginning.
    fn has_body(&self, failure: &Failure) -> bool {
        match (&self.kept, failure) {
            (Some(kept), _) => kept.is_whole(),
            (None, Failure::Lost(sent, _)) => self.bodiless || sent.body.is_some(),
            (None, _) => true,
        }
    }

    /// Why and when there is another try.
    fn again(&mut self, failure: &Failure, client: &Client) -> Option<(Reason, Pause)> {
        let reason = self.reason(failure)?;
        let lane = client.lane;
        let withhold = |why| {
            self.cluster.retries.withhold(why, lane);
            None
        };
        if !self.has_body(failure) {
            return if self.rules.is_some() { withhold(Withheld::Body) } else { None };
        }
        if matches!(reason, Reason::Closed | Reason::Refused) && !self.free {
            self.free = true;
            return Some((reason, Pause::None));
        }
        let rules = self.rules?;
        if self.retries >= rules.attempts {
            return withhold(Withheld::Attempts);
        }
        let now = client.shared.clock.now();
        let Some(pause) = self.pause(rules, reason, failure, client).filter(|pause| self.has_time(now, *pause)) else {
            return withhold(Withheld::Wait);
        };
        if !self.cluster.group.traffic.budget.grant(now, rules.budget, rules.min_per_second) {
            return withhold(Withheld::Budget);
        }
        self.retries += 1;
        Some((reason, Pause::For(pause)))
    }

    /// How long to wait; nothing if that is too long.
    fn pause(&self, rules: &Retry, reason: Reason, failure: &Failure, client: &Client) -> Option<Duration> {
        let backoff = pause::backoff(rules.backoff, self.retries + 1, pause::random());
        let Failure::Answered(Response { headers, .. }) = failure else { return Some(backoff) };
        let pushed = if reason == Reason::Grpc { pause::pushed_back(headers) } else { Asked::Nothing };
        let asked = if pushed == Asked::Nothing { pause::asked(headers, client.shared.clock.wall_now()) } else { pushed };
        match asked {
            Asked::Nothing => Some(backoff),
            Asked::After(asked) => (asked <= rules.max_wait).then(|| asked.max(backoff)),
            Asked::Never => None,
        }
    }

    /// Whether there is time for more than the pause.
    fn has_time(&self, now: Nanos, pause: Duration) -> bool {
        self.ends.is_none_or(|ends| now.saturating_add(saturating_nanos(pause)) < ends)
    }

    /// Takes leave of a try that another one makes up for; the body, if there is one that is not kept.
    fn pass_over(&mut self, failure: Failure, pause: Pause, lane: Lane) -> Option<Payload> {
        let is_free = pause == Pause::None;
        // What costs nothing is the connection's doing, so that the same endpoint is as good as another.
        self.tried.next_try(self.place.take().filter(|_| !is_free));
        match failure {
            Failure::Unsent(error) => {
                self.cluster.errors.count(&error, lane);
                None
            }
            // A response that is not passed on is no error; it has been judged by its status.
            Failure::Answered(_) => None,
            // A refusal that the next try makes up for says nothing about the endpoint: it may just restart in good order.
            Failure::Lost(Sent { error: ExchangeError::Refused, body, .. }, _) if is_free => body.map(|body| *body),
            Failure::Lost(mut sent, lease) => {
                if !is_free {
                    self.cluster.count_error(&sent.error, lane);
                }
                let body = sent.body.take().map(|body| *body);
                self.judge(sent, lease);
                body
            }
        }
    }

    /// Counts what has failed against the endpoint, if it is that one's fault.
    fn judge(&self, sent: Sent, lease: Option<Lease>) -> ExchangeError {
        if let Some(lease) = lease {
            let out_of_shared_time = self.shares_time && is_out_of(self.total.as_ref());
            lease.broke(&sent.error, Circumstances { reused: sent.from_rest, out_of_shared_time });
        }
        sent.error
    }

    /// This is the response. Nothing will be sent again, and the request is under way until its end.
    fn accept(&self, response: Response, room: Room) -> Response {
        if let Some(kept) = &self.kept {
            kept.let_go();
        }
        if let Some(lease) = response.body.lease() {
            room.hand_over(lease);
        }
        response
    }
}

/// What gRPC says in the head of a response behind which nothing follows: of a call that came to an end before its first message.
fn status_of_call(response: &Response) -> Option<u16> {
    let is_whole = matches!(&response.body, Received::Whole(body) if body.is_empty());
    grpc::status(&response.headers).filter(|_| is_whole && grpc::has_grpc_type(&response.headers))
}

fn is_among(statuses: &[(u16, u16)], status: StatusCode) -> bool {
    statuses.iter().any(|(from, to)| (*from..=*to).contains(&status.as_u16()))
}
