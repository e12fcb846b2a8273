//! The story of one request, from top to bottom: [`handle`].
//!
//! Facts, identity, plan, admission, forwarding, response; each step is a module below, and each can end the story with an
//! [`Answer`]. Only `admit` sees both the plan's charges and the store.

mod admit;
mod affinity;
mod date;
mod destination;
mod error;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod lasting;
mod local;
mod mirror;
mod pump;
mod record;
mod settle;
mod tokens;
mod tunnel;
mod upgrade;

use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONNECTION, DATE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, request::Parts};

use crate::body::{Body, ClientStream, Unread};
use crate::headers::looped;
use crate::identity::identify;
use crate::policy::{Action, Plan, plan};
use crate::request::{ConnInfo, Facts, InFlight};
use crate::respond::Answer;
use crate::snapshot::{Listener, Snapshot};
use crate::upstream::{Destinations, Received, ResponseBody};

use admit::Standing;
use destination::Destination;
use record::Completion;

pub use gateway::{Gateway, Parts as GatewayParts};
pub use tunnel::{ClientSocket, Handover, Tunnel};

/// What a client is sent. The record is boxed: the response moves through hyper several times. An answer behind which the connection becomes
/// something else has none, since the request goes on.
pub type GatewayBody = Body<ResponseBody, Option<Box<Completion>>>;

/// A response before its body and its record are joined.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Received,
}

/// Answers one request. If its connection or stream becomes something else with the answer, what it becomes is left in `handover`.
pub async fn handle(
    gateway: Rc<Gateway>,
    listener: &Listener,
    handover: &Handover,
    in_flight: InFlight,
    request: Request<ClientStream>,
) -> Response<GatewayBody> {
    let (snapshot, destinations) = gateway.in_force();
    let conn = Rc::clone(&in_flight.conn);
    let (parts, body) = request.into_parts();
    let body = Unread::new(body, parts.version == Version::HTTP_2);
    let mut completion = Box::new(Completion::new(&gateway, &snapshot, &parts, in_flight));
    let mut standing = Standing::default();
    let seen = Seen {
        gateway: &gateway,
        snapshot: &snapshot,
        destinations: &destinations,
        listener,
        handover,
        conn: &conn,
        parts: &parts,
    };
    let mut reply = match decide(&seen, body, &mut completion, &mut standing).await {
        Ok(reply) => reply,
        Err(answer) => {
            gateway.count_refusal(&answer);
            let rejection = &snapshot.rejection;
            // Nobody reads the answer to who has left, so that one is for the log.
            let response = if completion.is_grpc() && answer != Answer::Abandoned {
                answer.respond_grpc(rejection.grpc_status)
            } else {
                answer.respond(rejection.form, &parts.method, parts.version)
            };
            let (head, body) = response.into_parts();
            let mut headers = head.headers;
            // Whoever leaves within his own body leaves what he took. What gRPC calls 200 is settled as what it is.
            if answer != Answer::Abandoned {
                completion.settle_head(answer.status(), &headers, &mut standing);
            }
            standing.report(&gateway, &snapshot, &mut headers);
            Reply { status: head.status, headers, body: Received::Whole(body) }
        }
    };
    if conn.progress.switching.get() && !matches!(reply.body, Received::Switched(_)) {
        upgrade::declined(&conn).await;
    }
    if local::must_close(&gateway, parts.version, &reply) {
        reply.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    conn.progress.interim.answer();
    if parts.version == Version::HTTP_2 {
        // Over HTTP/1.1 hyper does that.
        reply.headers.entry(DATE).or_insert_with(|| gateway.date());
    }
    completion.status = reply.status;
    completion.look_for_grpc_status(&reply.headers);
    let mut response = Response::new(match reply.body {
        Received::Whole(bytes) => Body::full(bytes, Some(completion)),
        Received::Stream(stream) => Body::stream(stream, Some(completion)),
        Received::Switched(upstream) => {
            upgrade::begin(handover, conn, upstream, &mut completion);
            Body::full(Bytes::new(), None)
        }
    });
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

/// Where a request came in, and what it is decided by.
struct Seen<'s> {
    gateway: &'s Rc<Gateway>,
    snapshot: &'s Snapshot,
    destinations: &'s Destinations,
    listener: &'s Listener,
    handover: &'s Handover,
    conn: &'s ConnInfo,
    parts: &'s Parts,
}

async fn decide<'s>(
    seen: &Seen<'s>,
    body: Unread<ClientStream>,
    completion: &mut Completion,
    standing: &mut Standing<'s>,
) -> Result<Reply, Answer> {
    let Seen { gateway, snapshot, destinations, listener, handover, conn, parts } = *seen;
    let facts = Facts::read(parts, conn, &snapshot.path_rules).map_err(Answer::Malformed)?;
    completion.saw(&facts);
    if local::ends_here(&facts) {
        return Ok(local::options());
    }
    let claims = match &snapshot.identity.jwt {
        Some(verifier) => tokens::claims(gateway, verifier, &snapshot.identity, &facts).await?,
        None => None,
    };
    let identity = identify(&facts, &snapshot.identity, claims.as_deref()).map_err(Answer::Unauthorized)?;
    completion.identified(&identity);
    let proceed = match plan(&snapshot.policy, &facts, &identity) {
        Plan::Proceed(proceed) => proceed,
        Plan::Blocked => return Err(Answer::Forbidden),
        Plan::NoRoute => return Err(Answer::NotFound),
        Plan::OtherMethods(methods) => return Err(Answer::MethodNotAllowed(methods.into_iter().cloned().collect())),
    };
    completion.routed(proceed.route.id);
    forward::check_size(&facts, proceed.route)?;
    let offer = upgrade::offer(parts, &facts, proceed.route)?;
    conn.progress.switching.set(offer.is_some() && parts.version < Version::HTTP_2);
    if looped(&facts) {
        return Err(Answer::Loop);
    }
    let destination = Destination::of(&proceed.route.action, &identity);
    let limited = destination.and_then(|destination| destinations.get(destination.upstream)?.limited());
    admit::admit(gateway, snapshot, &proceed, completion, standing, limited).await?;
    completion.goes_to(destination.and_then(|destination| destination.side));
    let (started, is_grpc) = (completion.started, completion.is_grpc());
    let admitted = completion.wait().await?;
    if admitted.waited {
        standing.look_again(gateway, gateway.clock.now());
    }
    let mut reply = match (&proceed.route.action, destination) {
        (Action::Respond { status, content_type, body }, _) => local::fixed(*status, content_type, body, facts.method),
        // Something has a weight wherever there are weights.
        (_, None) => return Err(Answer::Unavailable),
        (_, Some(Destination { upstream, .. })) => {
            let way = forward::Way {
                snapshot,
                listener,
                facts: &facts,
                identity: &identity,
                proceed: &proceed,
                upstream,
                destinations,
                reads_response: admitted.reads_response,
                total_timeout: forward::total_timeout(gateway, proceed.route, is_grpc.then_some(facts.headers), started)?,
                offer: offer.as_deref(),
                handover,
                // A call may be a stream that has nothing to say for a while.
                min_body_rate: listener.min_body_rate.filter(|_| !is_grpc),
            };
            let reply = forward::forward(gateway, &way, admitted, body).await;
            completion.answered(reply.as_ref().ok().map(|reply| reply.status));
            upgrade::answer(gateway, &facts, proceed.route, offer, completion, reply?)?
        }
    };
    completion.settle_head(reply.status, &reply.headers, standing);
    proceed.route.response_edits.apply(&mut reply.headers);
    standing.report(gateway, snapshot, &mut reply.headers);
    Ok(reply)
}
