//! An exchange with an upstream whose connections are shared: a place on an HTTP/2 connection, or whatever else ALPN comes to.

use std::rc::Rc;

use smallvec::SmallVec;

use super::http1::{Connection, Exchange};
use super::http2::{self, Sent};
use super::pool::{Cluster, EndpointPool, Lease, WeightedEndpoint};
use super::{Client, ExchangeError, Request, Response, UpstreamError, in_time, running};
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
        let bodiless = request.body.is_none();
        let mut again = false;
        loop {
            let (place, lease) = in_time(total.as_deref(), self.place(cluster)).await?;
            let Sent { error, body, reused } = match self.send(place, lease, cluster, &mut request, total.clone()).await {
                Ok(response) => return Ok(response),
                Err(sent) => sent,
            };
            let untouched = bodiless || body.is_some();
            let harmless = match error {
                ExchangeError::Refused => untouched,
                ExchangeError::Closed => reused && bodiless && request.method.is_idempotent(),
                _ => false,
            };
            if again || !harmless {
                return Err(error.into());
            }
            again = true;
            request.body = body;
            cluster.retries.one(self.lane);
        }
    }

    async fn send(
        &self,
        place: Place,
        lease: Lease,
        cluster: &Cluster,
        request: &mut Request<'_>,
        total: Option<Rc<Deadline>>,
    ) -> Result<Response, Sent> {
        let patience = request.response_timeout.unwrap_or(cluster.response_timeout);
        let (heads, framing, method) = (request.heads, request.framing, request.method);
        let body = request.body.take();
        match place {
            Place::Http2(slot) => {
                let exchange = http2::Exchange::new(slot, |scheme| heads.http2(scheme), framing, body, patience, total)?;
                exchange.response(method, lease, self.lane).await
            }
            Place::Http1(connection) => {
                let reused = connection.reused;
                let mut exchange = Exchange::new(connection, heads.http1(), framing, body, patience, total);
                let received = exchange.head(method, None).await;
                let response = received.and_then(|(head, rest)| self.over_http1(head, rest, exchange, lease));
                response.map_err(|error| Sent { error, body: None, reused })
            }
        }
    }

    /// A place at the first endpoint that has one.
    async fn place(&self, cluster: &Rc<Cluster>) -> Result<(Place, Lease), UpstreamError> {
        let mut tried = SmallVec::<[usize; 4]>::new();
        let mut last = UpstreamError::Saturated;
        while let Some(index) = self.picker.pick(&cluster.endpoints, &tried) {
            let Some(endpoint) = cluster.endpoints.get(index) else { break };
            // Twice that long at most: for a connection that is full when it is there, and then for another.
            last = match tokio::time::timeout(cluster.connect_timeout * 2, place_at(endpoint, cluster)).await {
                Ok(Ok(place)) => return Ok(place),
                Ok(Err(error)) => error,
                Err(_) => UpstreamError::ConnectTimeout,
            };
            tried.push(index);
            if tried.len() < cluster.endpoints.len() {
                cluster.retries.one(self.lane);
                cluster.errors.count(&last, self.lane);
            }
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
