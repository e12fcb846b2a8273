//! What a head says about where a request came from: the gateway's own words, behind those that a trusted proxy may say.
//!
//! Of `X-Forwarded-For` and `Forwarded` only the one that is believed is continued. A proxy that writes the other passes on whatever a
//! client has put into this one, and an upstream must not get that from us.

use std::net::IpAddr;

use http::HeaderName;
use http::header::FORWARDED;

use super::request::Forwarding;
use super::sink::Sink;
use crate::request::{Facts, ForwardedHeader};

impl Forwarding<'_> {
    pub(super) fn write_forwarding(&self, head: &mut impl Sink) {
        self.write_forwarded_for(head);
        self.write_forwarded(head);
        self.write_or_keep(head, &X_FORWARDED_PROTO, |head| head.text(self.facts.conn.scheme));
        self.write_forwarded_host(head);
    }

    fn write_forwarded_for(&self, head: &mut impl Sink) {
        let peer = &self.facts.conn.peer_text;
        let continued = self.via_trusted_proxy && self.identity.forwarded == ForwardedHeader::XForwardedFor;
        if continued && self.facts.headers.contains_key(&X_FORWARDED_FOR) {
            return self.write_joined(head, &X_FORWARDED_FOR, ", ", peer);
        }
        head.begin(&X_FORWARDED_FOR);
        if self.client != self.facts.conn.peer.ip() {
            // From `Forwarded`: a proxy that writes that one vouches for nothing in this one.
            head.text(&format!("{}, ", self.client));
        }
        head.text(peer);
        head.end();
    }

    /// Only if it is the header that is believed: a proxy that does not write it passes on whatever a client sent.
    fn write_forwarded(&self, head: &mut impl Sink) {
        if self.identity.forwarded != ForwardedHeader::Forwarded || self.edits.drops(&FORWARDED) {
            return;
        }
        let Facts { authority, conn, .. } = self.facts;
        let mut own = match conn.peer.ip() {
            IpAddr::V4(v4) => format!("for={v4}"),
            IpAddr::V6(v6) => format!("for=\"[{v6}]\""),
        };
        match (&*authority.host, authority.port) {
            ("", _) => {}
            (host, None) => own.push_str(&format!(";host=\"{host}\"")),
            (host, Some(port)) => own.push_str(&format!(";host=\"{host}:{port}\"")),
        }
        own.push_str(";proto=");
        own.push_str(conn.scheme);
        if self.via_trusted_proxy {
            self.write_joined(head, &FORWARDED, ", ", &own);
        } else {
            head.line(&FORWARDED, own.as_bytes());
        }
    }

    fn write_forwarded_host(&self, head: &mut impl Sink) {
        if self.facts.authority.host.is_empty() {
            // An HTTP/1.0 client that named no host: there is nothing to pass on.
            return;
        }
        self.write_or_keep(head, &X_FORWARDED_HOST, |head| {
            let authority = &self.facts.authority;
            head.text(&authority.host);
            if let Some(port) = authority.port {
                head.port(port);
            }
        });
    }

    /// The field a trusted proxy sent, or our own.
    fn write_or_keep<S: Sink>(&self, head: &mut S, name: &HeaderName, own: impl FnOnce(&mut S)) {
        if self.edits.drops(name) {
            return;
        }
        head.begin(name);
        let received = if self.via_trusted_proxy { self.facts.headers.get(name) } else { None };
        match received {
            Some(received) => head.push(received.as_bytes()),
            None => own(head),
        }
        head.end();
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
