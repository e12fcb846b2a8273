//! A request that wants its connection to become something else: what is offered to upstream, and what happens when that is taken.
//!
//! Only upstream decides. Until it has answered 101 with exactly what it was offered, and the client has that answer, all of this is HTTP:
//! what the client sends behind its request is held back, and any other answer is a response like any other.

use std::rc::Rc;

use http::StatusCode;
use http::request::Parts;
use hyper::upgrade::OnUpgrade;

use super::Reply;
use super::forward::has_body;
use super::gateway::Gateway;
use super::record::Completion;
use super::tunnel::{Agreed, Handover, Tunnel};
use crate::headers::Offer;
use crate::policy::Route;
use crate::request::{ConnInfo, Facts};
use crate::respond::Answer;
use crate::upstream::{Received, Switched};

/// What upstream may switch to; nothing if this is a request like any other.
pub(super) fn offer(parts: &Parts, facts: &Facts<'_>, route: &Route) -> Result<Option<Box<Offer>>, Answer> {
    let protocols = &route.upgrades.protocols;
    if facts.extended_connect {
        let may = route.action.forwards() && protocols.iter().any(|protocol| &**protocol == "websocket");
        // A CONNECT is nothing without its tunnel.
        return if may { Ok(Offer::of_connect().map(Box::new)) } else { Err(Answer::NoUpgrade) };
    }
    // hyper leaves this with a request of HTTP/1.1 that has an `Upgrade`, and there is nothing to look up in any other.
    if parts.extensions.get::<OnUpgrade>().is_none() || protocols.is_empty() || has_body(facts) {
        return Ok(None);
    }
    Ok(Offer::of_upgrade(facts, protocols).map(Box::new))
}

/// Takes note of what has been agreed, and makes upstream's answer the client's.
pub(super) fn answer(
    gateway: &Gateway,
    facts: &Facts<'_>,
    route: &Route,
    offer: Option<Box<Offer>>,
    completion: &mut Completion,
    mut reply: Reply,
) -> Result<Reply, Answer> {
    match (offer, &reply.body) {
        (Some(offer), Received::Switched(_)) => {
            offer.answer(&mut reply.headers);
            if facts.extended_connect {
                reply.status = StatusCode::OK;
            }
            completion.agreed(Agreed {
                protocol: offer.protocol().into(),
                is_websocket: offer.is_websocket(),
                idle: route.upgrades.idle,
                limits: route.upgrades.websocket,
                after: gateway.clock.now().saturating_sub(completion.started),
                received: 0.into(),
                sent: 0.into(),
                why: None.into(),
            });
            Ok(reply)
        }
        // To a client that has asked for a tunnel this would say that it has one.
        _ if facts.extended_connect && reply.status.is_success() => Err(Answer::BadGateway),
        _ => Ok(reply),
    }
}

/// The connection stays what it is. If it shall end it is told so now, before it has the answer, which then says it to the client.
pub(super) async fn declined(conn: &ConnInfo) {
    conn.progress.switching.set(false);
    tokio::task::yield_now().await;
}

/// Leaves the tunnel for whoever has the client's connection or stream, who begins it when the client has the answer.
pub(super) fn begin(handover: &Handover, conn: Rc<ConnInfo>, upstream: Box<Switched>, completion: &mut Completion) {
    if let Some(lasting) = completion.outlive() {
        handover.leave(Tunnel::new(upstream, lasting, conn));
    }
}
