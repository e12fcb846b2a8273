//! Upgrades (RFC 9110 §7.8): which protocol a request may switch to, how that is said to upstream, and whether a 101 means just that.
//!
//! `Upgrade` and `Connection` are never passed on; an [`Offer`] writes its own, for one protocol that the route allows. Whatever else a
//! client offers stays behind, and the request is an ordinary one then.

use aws_lc_rs::{digest, rand};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderMap, HeaderValue, Method};

use super::hop_by_hop::Nominated;
use super::sink::Sink;
use crate::request::Facts;

/// A protocol that upstream may switch to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    protocol: Box<str>,
    handshake: Handshake,
}

/// What else the answer must prove.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Handshake {
    /// Nothing.
    Other,
    /// The client's key; without exactly one no answer is right.
    WebSocket { accept: Option<Box<str>> },
    /// A key of our own: an extended CONNECT has none (RFC 8441 section 5).
    Connect { key: Box<str>, accept: Box<str> },
}

impl Offer {
    /// What a request without a body asks for in its `Upgrade`, if it is among `allowed`, which are in lower case. The client's
    /// first choice of those it may have.
    #[must_use]
    pub fn of_upgrade(facts: &Facts<'_>, allowed: &[Box<str>]) -> Option<Self> {
        if !Nominated::of(facts.headers).contains("upgrade") {
            return None;
        }
        let offered = facts.headers.get_all(UPGRADE).iter().filter_map(|line| line.to_str().ok());
        let mut offered = offered.flat_map(|line| line.split(',')).map(str::trim);
        let may = |protocol: &&str| {
            let is_allowed = allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(protocol));
            // RFC 6455 section 4.1: a handshake is a GET.
            is_allowed && (!is_websocket(protocol) || facts.method == Method::GET)
        };
        let protocol = offered.find(may)?;
        let handshake = if is_websocket(protocol) {
            let mut keys = facts.headers.get_all(SEC_WEBSOCKET_KEY).iter();
            let key = keys.next().filter(|_| keys.next().is_none());
            Handshake::WebSocket { accept: key.map(|key| accept(key.as_bytes().trim_ascii())) }
        } else {
            Handshake::Other
        };
        Some(Self { protocol: protocol.into(), handshake })
    }

    /// A WebSocket for a request that came as an extended CONNECT; `None` if there is no randomness for its key.
    #[must_use]
    pub fn of_connect() -> Option<Self> {
        let mut key = [0; 16];
        rand::fill(&mut key).ok()?;
        let key: Box<str> = BASE64_STANDARD.encode(key).into();
        let accept = accept(key.as_bytes());
        Some(Self { protocol: WEBSOCKET.into(), handshake: Handshake::Connect { key, accept } })
    }

    /// The protocol, as the client wrote it.
    #[must_use]
    pub fn protocol(&self) -> &str {
        &self.protocol
    }

    /// Whether it is a WebSocket.
    #[must_use]
    pub fn is_websocket(&self) -> bool {
        self.handshake != Handshake::Other
    }

    /// Whether the head of a 101 takes the offer, and nothing else.
    #[must_use]
    pub fn is_taken(&self, headers: &HeaderMap) -> bool {
        let only = |name| {
            let mut values = headers.get_all(name).iter();
            values.next().filter(|_| values.next().is_none()).map(|value| value.as_bytes().trim_ascii())
        };
        let same_protocol = only(UPGRADE).is_some_and(|protocol| protocol.eq_ignore_ascii_case(self.protocol.as_bytes()));
        let accept = match &self.handshake {
            Handshake::Other => return same_protocol,
            Handshake::WebSocket { accept } => accept.as_deref(),
            Handshake::Connect { accept, .. } => Some(&**accept),
        };
        same_protocol && accept.is_some_and(|accept| only(SEC_WEBSOCKET_ACCEPT) == Some(accept.as_bytes()))
    }

    /// Makes the fields of a 101 those for our client.
    pub fn answer(&self, headers: &mut HeaderMap) {
        if let Handshake::Connect { .. } = self.handshake {
            headers.remove(UPGRADE);
            headers.remove(SEC_WEBSOCKET_ACCEPT);
            return;
        }
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        // It was a header's value when it came, and upstream's is the same but for its case.
        if let Ok(protocol) = HeaderValue::from_str(&self.protocol) {
            headers.insert(UPGRADE, protocol);
        }
    }

    /// Whether a received field of this (lower-case) name is not passed on because the offer has its own.
    pub(super) fn replaces(&self, name: &str) -> bool {
        let is_connect = matches!(self.handshake, Handshake::Connect { .. });
        is_connect && (name == SEC_WEBSOCKET_KEY.as_str() || name == SEC_WEBSOCKET_ACCEPT.as_str())
    }

    pub(super) fn write(&self, head: &mut impl Sink) {
        head.line(&CONNECTION, b"upgrade");
        head.line(&UPGRADE, self.protocol.as_bytes());
        if let Handshake::Connect { key, .. } = &self.handshake {
            head.line(&SEC_WEBSOCKET_KEY, key.as_bytes());
        }
    }
}

fn is_websocket(protocol: &str) -> bool {
    protocol.eq_ignore_ascii_case(WEBSOCKET)
}

/// RFC 6455 section 4.2.2.
fn accept(key: &[u8]) -> Box<str> {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(GUID);
    BASE64_STANDARD.encode(hash.finish()).into()
}

const WEBSOCKET: &str = "websocket";
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{ConnInfo, PathRules};

    fn offer(request: http::request::Builder, allowed: &[&str]) -> Option<Offer> {
        let (parts, ()) = request.header("host", "a").body(()).unwrap().into_parts();
        let conn = ConnInfo::new("203.0.113.9:5000".parse().unwrap(), "http");
        let rules = PathRules { distinct_trailing_slash: false, allow_encoded_slash: false };
        let allowed: Vec<Box<str>> = allowed.iter().map(|word| (*word).into()).collect();
        Offer::of_upgrade(&Facts::read(&parts, &conn, &rules).unwrap(), &allowed)
    }

    fn get(connection: &str, upgrade: &str) -> http::request::Builder {
        http::Request::get("/").header("connection", connection).header("upgrade", upgrade)
    }

    #[test]
    fn the_clients_first_choice_of_what_is_allowed_is_offered() {
        for (connection, upgrade, allowed, expected) in [
            ("upgrade", "websocket", &["websocket"][..], Some("websocket")),
            ("keep-alive, Upgrade", "WebSocket", &["websocket"], Some("WebSocket")),
            ("Upgrade", "foo, websocket", &["websocket"], Some("websocket")),
            ("Upgrade", "b/2, a/1", &["a/1", "b/2"], Some("b/2")),
            ("Upgrade", "websocket", &[], None),
            ("Upgrade", "foo", &["websocket"], None),
            ("Upgrade", "websocket/13", &["websocket"], None),
            ("Upgrade", "a", &["a/1"], None),
            ("Upgrade", "", &["websocket"], None),
            ("keep-alive", "websocket", &["websocket"], None),
            ("upgrades", "websocket", &["websocket"], None),
        ] {
            let offer = offer(get(connection, upgrade), allowed);
            assert_eq!(offer.as_ref().map(Offer::protocol), expected, "{connection} {upgrade}");
        }
        let post = http::Request::post("/").header("connection", "upgrade").header("upgrade", "websocket, a");
        assert_eq!(offer(post, &["websocket", "a"]).unwrap().protocol(), "a");
    }

    #[test]
    fn only_the_right_answer_is_taken() {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let asked = || get("upgrade", "websocket").header("sec-websocket-key", key);
        let one = offer(asked(), &["websocket"]).unwrap();
        let two = offer(asked().header("sec-websocket-key", key), &["websocket"]).unwrap();
        let right = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        let taken = |offer: &Offer, fields: &[(&'static str, &'static str)]| {
            let fields =
                fields.iter().map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
            let mut headers = HeaderMap::new();
            fields.for_each(|(name, value)| _ = headers.append(name, value));
            offer.is_taken(&headers)
        };
        assert!(taken(&one, &[("upgrade", "WEBSOCKET"), ("sec-websocket-accept", right)]));
        assert!(!taken(&two, &[("upgrade", "websocket"), ("sec-websocket-accept", right)]));
        for wrong in [
            &[("upgrade", "websocket")][..],
            &[("sec-websocket-accept", right)],
            &[("upgrade", "websocket"), ("sec-websocket-accept", "S3pPLMBiTxaQ9kYGzzhZRbK+xOo=")],
            &[("upgrade", "foo"), ("sec-websocket-accept", right)],
            &[("upgrade", "websocket, foo"), ("sec-websocket-accept", right)],
            &[("upgrade", "websocket"), ("upgrade", "websocket"), ("sec-websocket-accept", right)],
            &[("upgrade", "websocket"), ("sec-websocket-accept", right), ("sec-websocket-accept", right)],
        ] {
            assert!(!taken(&one, wrong), "{wrong:?}");
        }
        let other = offer(get("upgrade", "a/1"), &["a/1"]).unwrap();
        assert!(taken(&other, &[("upgrade", "a/1")]) && !taken(&other, &[("upgrade", "a")]) && !taken(&other, &[]));
    }

    #[test]
    fn a_connect_has_a_key_of_its_own_each_time() {
        let (one, two) = (Offer::of_connect().unwrap(), Offer::of_connect().unwrap());
        assert_ne!(one, two);
        let Handshake::Connect { key, accept: expected } = &one.handshake else { panic!("{one:?}") };
        assert_eq!((BASE64_STANDARD.decode(&**key).unwrap().len(), accept(key.as_bytes())), (16, expected.clone()));
        assert!(one.replaces("sec-websocket-key") && !one.replaces("sec-websocket-version"));
    }
}
