//! Keeps `min_connections` ready: a worker's sweep makes what is missing, each in a task of its own, so that requests find a connection that
//! is there. Counted are those at rest, beside what requests use.

use std::rc::Rc;

use super::connect::{Asked, Established, connect};
use super::http1::Connection;
use super::http2;
use super::pool::{Cluster, EndpointPool};

/// Makes what is missing to endpoints that are used. After a failure an endpoint is left alone for a while.
pub(super) fn keep_ready(cluster: &Rc<Cluster>) {
    if cluster.min_connections == 0 {
        return;
    }
    for (place, endpoint) in cluster.endpoints.iter().enumerate() {
        let pool = &endpoint.pool;
        if !cluster.is_used(endpoint) || pool.rests_from_failure() {
            continue;
        }
        if cluster.may_share_connections() {
            // One carries many; where ALPN comes to HTTP/1.1 there is one more at every sweep.
            if pool.http2.is_empty() && pool.ready() < cluster.min_connections && !cluster.is_full() {
                let opening = pool.http2.begin();
                let (tls, cluster) = (endpoint.tls.clone(), Rc::clone(cluster));
                tokio::task::spawn_local(http2::run(Rc::clone(pool), tls, cluster, opening));
            }
            continue;
        }
        for _ in pool.ready()..cluster.min_connections {
            if cluster.is_full() {
                return;
            }
            tokio::task::spawn_local(make(Rc::clone(cluster), place, Making::begin(pool)));
        }
    }
}

async fn make(cluster: Rc<Cluster>, place: usize, making: Making) {
    let Some(endpoint) = cluster.endpoints.get(place) else { return };
    let counted = cluster.count_connection();
    let connecting = connect(endpoint.pool.address(), None, cluster.secured(endpoint), Asked::Http1);
    match tokio::time::timeout(cluster.connect_timeout, connecting).await {
        Ok(Ok(Established { stream, .. })) => {
            endpoint.pool.succeeded();
            drop(making);
            if !endpoint.pool.is_retired() {
                endpoint.pool.rest(Connection::new(stream, counted, endpoint.pool.end_of_life(cluster.max_age)));
            }
        }
        // Nobody's request has failed, so it says nothing about the endpoint; those that need a connection will.
        _ => endpoint.pool.failed(),
    }
}

/// A connection that is being made, until dropped.
struct Making(Rc<EndpointPool>);

impl Making {
    fn begin(pool: &Rc<EndpointPool>) -> Self {
        pool.making(1);
        Self(Rc::clone(pool))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.0.made(1);
    }
}
