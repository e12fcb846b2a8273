//! An exchange with an upstream whose connections are shared: a place on an HTTP/2 connection, or whatever else ALPN comes to.

use std::num::NonZeroU64;
use std::rc::Rc;

use smallvec::SmallVec;

use super::http1::{Connection, Exchange};
use super::http2::{self, Sent};
use super::judge::Circumstances;
use super::pool::{Cluster, EndpointPool, Lease, WeightedEndpoint};
use super::{Client, ExchangeError, Request, Response, UpstreamError, in_time, is_out_of, running};
use crate::clock::deadline::Deadline;

/// Where an exchange takes place.
enum Place {
    Http1(Connection),
    Http2(http2::Slot),
}

impl Client {
    /// See [`Client::exchange`]. A stream that was refused is opened once more elsewhere, whatever the method, if nothing of its body
    /// was taken; a request whose connection ended before an answer, if it may be seen twice.
    pub(super) async fn attempt_shared(
        &self,
        cluster: &Rc<Cluster>,
        mut request: Request<'_>,
    ) -> Result<Response, UpstreamError> {
        let total = request.total_timeout.map(running);
        let (bodiless, shares_time) = (request.body.is_none(), request.shares_time());
        let mut again = false;
        loop {
            let (place, lease) = in_time(total.as_deref(), self.place(cluster, request.balance_key)).await?;
            let (sent, unjudged) = match self.send(place, lease, cluster, &mut request, total.clone()).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            let Sent { error, body, reused, from_rest } = sent;
            let untouched = bodiless || body.is_some();
            let harmless = match error {
                ExchangeError::Refused => untouched,
                ExchangeError::Closed => reused && bodiless && request.method.is_idempotent(),
                _ => false,
            };
            let is_last = again || !harmless;
            // A refusal that the next try makes up for says nothing about the endpoint: it may just restart in good order.
            if let Some(lease) = unjudged.filter(|_| is_last || !matches!(error, ExchangeError::Refused)) {
                let out_of_shared_time = shares_time && is_out_of(total.as_ref());
                lease.broke(&error, Circumstances { reused: from_rest, out_of_shared_time });
            }
            if is_last {
                return Err(error.into());
            }
            again = true;
            request.body = body;
            cluster.retries.one(self.lane);
        }
    }

    /// What has failed comes with the lease that it is to be judged by, unless it has been.
    async fn send(
        &self,
        place: Place,
        lease: Lease,
        cluster: &Cluster,
        request: &mut Request<'_>,
        total: Option<Rc<Deadline>>,
    ) -> Result<Response, (Sent, Option<Lease>)> {
        let patience = request.response_timeout.unwrap_or(cluster.response_timeout);
        let (heads, framing, method) = (request.heads, request.framing, request.method);
        let body = request.body.take();
        match place {
            Place::Http2(slot) => {
                let exchange = http2::Exchange::new(slot, |scheme| heads.http2(scheme), framing, body, patience, total);
                let exchange = match exchange {
                    Ok(exchange) => exchange,
                    Err(sent) => return Err((sent, Some(lease))),
                };
                exchange.response(method, lease, self.lane).await.map_err(|(sent, lease)| (sent, Some(lease)))
            }
            Place::Http1(connection) => {
                let reused = connection.reused;
                let mut exchange = Exchange::new(connection, heads.http1(), framing, body, patience, total);
                let lost = |error| Sent { error, body: None, reused, from_rest: reused };
                match exchange.head(method, None).await {
                    Ok((head, rest)) => self.over_http1(head, rest, exchange, lease).map_err(|error| (lost(error), None)),
                    Err(error) => Err((lost(error), Some(lease))),
                }
            }
        }
    }

    /// A place at the first endpoint that has one.
    async fn place(&self, cluster: &Rc<Cluster>, key: Option<NonZeroU64>) -> Result<(Place, Lease), UpstreamError> {
        let mut tried = SmallVec::<[usize; 4]>::new();
        let mut last = UpstreamError::NoEndpoint;
        while let Some(index) = cluster.pick(&tried, key) {
            let Some(endpoint) = cluster.endpoints.get(index) else { break };
            if !tried.is_empty() {
                cluster.retries.one(self.lane);
                cluster.errors.count(&last, self.lane);
            }
            // Twice that long at most: for a connection that is full when it is there, and then for another.
            last = match tokio::time::timeout(cluster.connect_timeout * 2, place_at(endpoint, cluster)).await {
                Ok(Ok(place)) => return Ok(place),
                Ok(Err(error)) => error,
                Err(_) => UpstreamError::ConnectTimeout,
            };
            tried.push(index);
        }
        Err(last)
    }
}

/// A place at this endpoint: on a connection that is in use, at rest, being made by somebody, or made now.
async fn place_at(endpoint: &WeightedEndpoint, cluster: &Rc<Cluster>) -> Result<(Place, Lease), UpstreamError> {
    let pool = &endpoint.pool;
    let mut waited = false;
    loop {
        // One that was made for those that wait counts as in use, by them.
        let may_use_another = || waited || !cluster.is_saturated();
        let at_rest = || if may_use_another() { pool.http2.take(pool, false) } else { None };
        if let Some(slot) = pool.http2.take(pool, true).or_else(at_rest) {
            return Ok((Place::Http2(slot), endpoint.lease(cluster)));
        }
        let opening = match pool.http2.opening() {
            Some(opening) => opening,
            None if !may_use_another() => return Err(UpstreamError::Saturated),
            None => {
                if let Some(leased) = pool.take(cluster) {
                    let (connection, lease) = leased.into_parts();
                    return Ok((Place::Http1(connection), lease));
                }
                if cluster.is_saturated() {
                    return Err(UpstreamError::Saturated);
                }
                let opening = pool.http2.begin();
                tokio::task::spawn_local(http2::run(
                    Rc::clone(pool),
                    endpoint.tls.clone(),
                    Rc::clone(cluster),
                    Rc::clone(&opening),
                ));
                opening
            }
        };
        waited = true;
        // A connection under way is load too, but only one connection's.
        let (_lease, _rides) = (endpoint.lease(cluster), (opening.is_awaited()).then(|| Rides::new(pool)));
        opening.done().await?;
    }
}

/// Somebody who waits for a connection that others wait for, until dropped.
struct Rides<'p>(&'p EndpointPool);

impl<'p> Rides<'p> {
    fn new(pool: &'p EndpointPool) -> Self {
        pool.rides();
        Self(pool)
    }
}

impl Drop for Rides<'_> {
    fn drop(&mut self) {
        self.0.rides_no_more();
    }
}
