//! An exchange with an upstream whose connections are shared: a place on an HTTP/2 connection, or whatever else ALPN comes to.

use std::num::NonZeroU64;
use std::rc::Rc;

use super::http1::{Connection, Exchange};
use super::http2::{self, Sent};
use super::pool::{Cluster, EndpointPool, Lease, WeightedEndpoint};
use super::retry::{Reason, Tried};
use super::{Client, Request, Response, UpstreamError};
use crate::clock::deadline::Deadline;

/// Where an exchange takes place.
pub(super) enum Place {
    Http1(Connection),
    Http2(http2::Slot),
}

impl Client {
    /// What has failed comes with the lease that it is to be judged by, unless it has been.
    pub(super) async fn send(
        &self,
        place: Place,
        lease: Lease,
        cluster: &Cluster,
        request: &mut Request<'_>,
        total: Option<Rc<Deadline>>,
    ) -> Result<Response, (Sent, Option<Lease>)> {
        let patience = request.response_timeout.unwrap_or(cluster.response_timeout);
        let to_head = cluster.retry.as_ref().and_then(|retry| retry.per_try).map_or(patience, |per_try| per_try.min(patience));
        let (heads, framing, method) = (request.heads, request.framing, request.method);
        let body = request.body.take();
        match place {
            Place::Http2(slot) => {
                let exchange = http2::Exchange::new(slot, |scheme| heads.http2(scheme), framing, body, to_head, total);
                let exchange = match exchange {
                    Ok(exchange) => exchange,
                    Err(sent) => return Err((sent, Some(lease))),
                };
                exchange.response(method, heads, patience, lease, self.lane).await.map_err(|(sent, lease)| (sent, Some(lease)))
            }
            Place::Http1(connection) => {
                let reused = connection.reused;
                let mut exchange = Exchange::new(connection, heads.http1(), framing, body, to_head, total);
                let lost = |error| Sent { error, body: None, reused, from_rest: reused };
                let answered = exchange.head(method, request.offer, heads).await;
                exchange.patience = patience;
                match answered {
                    Ok((head, rest)) => self.over_http1(head, rest, exchange, lease).map_err(|error| (lost(error), None)),
                    Err(error) => Err((lost(error), Some(lease))),
                }
            }
        }
    }

    /// A place at the first endpoint that has one.
    pub(super) async fn place(
        &self,
        cluster: &Rc<Cluster>,
        key: Option<NonZeroU64>,
        tried: &mut Tried,
    ) -> Result<(Place, Lease), UpstreamError> {
        let mut last = UpstreamError::NoEndpoint;
        while let Some(index) = tried.pick(cluster, key) {
            let Some(endpoint) = cluster.endpoints.get(index) else { break };
            // One that has no room has not been asked.
            if tried.has_unreachable() && !matches!(last, UpstreamError::Saturated) {
                cluster.retries.one(Reason::Connect, self.lane);
                cluster.errors.count(&last, self.lane);
            }
            // Twice that long at most: for a connection that is full when it is there, and then for another.
            last = match tokio::time::timeout(cluster.connect_timeout * 2, place_at(endpoint, cluster)).await {
                Ok(Ok(place)) => return Ok(place),
                Ok(Err(error)) => error,
                Err(_) => UpstreamError::ConnectTimeout,
            };
            tried.unreachable(index);
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
