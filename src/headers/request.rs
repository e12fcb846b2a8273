//! The head upstream gets, written in one pass: hop-by-hop and spoofable fields stay behind, the gateway's own go on top. What is
//! written is decided here, how it is said in HTTP/1.1 or HTTP/2 in `sink`.
//!
//! The order matters and is fixed here: nominated fields go first (so a client can't nominate away what the gateway
//! adds), then what an untrusted client must not say, then the operator's edits; framing, Host, forwarding fields and Via
//! are always the gateway's own words.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, MAX_FORWARDS, TE, TRANSFER_ENCODING, VIA};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};

use super::HeaderEdits;
use super::hop_by_hop::{Nominated, is_hop_by_hop};
use super::identity::Withheld;
use super::sink::{Fields, Sink, Text};
use super::upgrade::Offer;
use crate::request::{Facts, ForwardedHeader};

/// A cleaned request head for HTTP/1.1, ready to be sent: request line, fields, empty line.
#[derive(Debug, Clone)]
pub struct EndToEndHead {
    bytes: Bytes,
    trailers: AllowedTrailers,
}

/// A cleaned request head for HTTP/2, ready to be sent.
#[derive(Debug)]
pub struct EndToEndFields {
    /// Pseudo fields and fields.
    pub request: Request<()>,
    /// Which trailers may follow.
    pub trailers: AllowedTrailers,
}

/// Which trailers may follow a head: what a header must not say, a trailer must not say either.
#[derive(Debug, Clone)]
pub struct AllowedTrailers {
    /// Names that are withheld from this request; only filled where trailers can come.
    withheld: Rc<[HeaderName]>,
}

/// The target or the authority has no form in HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request has no form in HTTP/2")]
pub struct Unsayable;

/// How a request's body is delimited on the way to upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// The headers by which a trusted proxy names users and tiers, and in which keys come: nobody else may set the former, and no
/// look-alike of any (`x_user_id`) gets through.
#[derive(Debug, Clone, Default)]
pub struct IdentityHeaders {
    /// Believed from trusted proxies only.
    pub trusted_only: Vec<HeaderName>,
    /// Read from everybody.
    pub keys: Vec<HeaderName>,
    /// What a server may take for one of `keys` although it is spelt without a character that is folded.
    key_twins: Vec<HeaderName>,
    /// Set by the gateway alone.
    pub told: Vec<HeaderName>,
    /// Where trusted proxies name the addresses before them.
    pub forwarded: ForwardedHeader,
}

impl IdentityHeaders {
    /// The headers that a configuration names. `api_key` may be among `keys`; then `api-key`, which servers can't tell from it, is
    /// nobody's to send, unless it is there as well.
    #[must_use]
    pub fn new(trusted_only: Vec<HeaderName>, keys: Vec<HeaderName>, told: Vec<HeaderName>, forwarded: ForwardedHeader) -> Self {
        let twins = keys.iter().filter(|key| is_foldable(key.as_str())).map(|key| folded(key.as_str()));
        let twins = twins.filter_map(|twin| HeaderName::try_from(twin).ok());
        let key_twins = twins.filter(|twin| !keys.contains(twin)).collect();
        Self { trusted_only, keys, key_twins, told, forwarded }
    }
}

/// What goes into a head besides the client's own fields.
#[derive(Debug)]
pub struct Forwarding<'a> {
    /// The request.
    pub facts: &'a Facts<'a>,
    /// Path and query as upstream shall see them.
    pub target: &'a str,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the connection's peer is a trusted proxy, whose forwarding fields are continued rather than replaced.
    pub via_trusted_proxy: bool,
    /// Whom the request is from.
    pub client: IpAddr,
    /// The operator's edits.
    pub edits: &'a HeaderEdits,
    /// Headers with a meaning of their own.
    pub identity: &'a IdentityHeaders,
    /// Who the request is from, in some of [`IdentityHeaders::told`].
    pub told: &'a [(&'a HeaderName, Cow<'a, str>)],
    /// What the client has sent for the gateway alone.
    pub withheld: &'a Withheld<'a>,
    /// Whether the response is going to be read on its way, so that upstream must not compress it.
    pub plain_response: bool,
    /// The upstream's `host:port`, for clients that named no host.
    pub default_host: &'a str,
    /// What the connection may be upgraded to.
    pub offer: Option<&'a Offer>,
}

impl EndToEndHead {
    /// Writes the head.
    #[must_use]
    pub fn new(forwarding: &Forwarding<'_>) -> Self {
        let mut head = Text(Vec::with_capacity(768));
        for piece in [forwarding.facts.method.as_str(), " ", forwarding.target, " HTTP/1.1\r\n"] {
            head.text(piece);
        }
        forwarding.write(&mut head);
        head.text("\r\n");
        Self { bytes: head.0.into(), trailers: forwarding.trailers() }
    }

    /// The bytes. Shared, so that a second attempt costs nothing.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Whether a trailer of this name may follow.
    #[must_use]
    pub fn allows_trailer(&self, name: &HeaderName) -> bool {
        self.trailers.allow(name)
    }
}

impl EndToEndFields {
    /// Puts the head together; `scheme` is what the connection to upstream is.
    ///
    /// # Errors
    /// [`Unsayable`] when target or authority have no form in HTTP/2.
    pub fn new(forwarding: &Forwarding<'_>, scheme: &Scheme) -> Result<Self, Unsayable> {
        let mut fields = Fields::new();
        forwarding.write(&mut fields);
        let target = PathAndQuery::try_from(forwarding.target).map_err(|_| Unsayable)?;
        let uri = Uri::builder().scheme(scheme.clone()).authority(fields.authority.as_bytes()).path_and_query(target);
        let mut request = Request::new(());
        *request.method_mut() = forwarding.facts.method.clone();
        *request.uri_mut() = uri.build().map_err(|_| Unsayable)?;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = fields.headers;
        Ok(Self { request, trailers: forwarding.trailers() })
    }
}

impl AllowedTrailers {
    /// Whether a trailer of this name may follow.
    #[must_use]
    pub fn allow(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        let own = is_hop_by_hop(text) || is_rewritten(text) || is_forwarding(text);
        !(own || is_look_alike(text, self.withheld.iter()) || self.withheld.contains(name))
    }
}

impl Forwarding<'_> {
    /// All fields, in the words of HTTP/1.1.
    fn write(&self, head: &mut impl Sink) {
        self.write_host(head);
        self.write_end_to_end(head);
        self.write_own(head);
        for (name, value) in self.edits.set.iter().chain(&self.edits.add) {
            head.line(name, value.as_bytes());
        }
    }

    fn write_host(&self, head: &mut impl Sink) {
        let authority = &self.facts.authority;
        head.begin(&HOST);
        match (&*authority.host, authority.port) {
            ("", _) => head.text(self.default_host),
            (host, None) => head.text(host),
            (host, Some(port)) => {
                head.text(host);
                head.port(port);
            }
        }
        head.end();
    }

    fn write_end_to_end(&self, head: &mut impl Sink) {
        let nominated = Nominated::of(self.facts.headers);
        for (name, value) in self.facts.headers {
            let text = name.as_str();
            let dropped = is_hop_by_hop(text)
                || is_rewritten(text)
                || (!nominated.is_empty() && nominated.contains(text) && !self.identity.keys.contains(name))
                || (!self.via_trusted_proxy && (is_forwarding(text) || self.identity.trusted_only.contains(name)))
                || is_look_alike(text, self.reserved())
                || self.identity.key_twins.contains(name)
                || self.edits.drops(name)
                || self.offer.is_some_and(|offer| offer.replaces(text))
                || self.identity.told.contains(name)
                || self.withheld.headers.contains(&name)
                || (self.plain_response && name == ACCEPT_ENCODING)
                || (name == MAX_FORWARDS && self.facts.method == Method::OPTIONS)
                || (name == COOKIE && self.joins_cookies());
            if !dropped {
                head.pass(name, value);
            }
        }
        if self.joins_cookies() && !self.edits.drops(&COOKIE) {
            self.write_cookies(head);
        }
    }

    fn write_own(&self, head: &mut impl Sink) {
        match self.framing {
            Framing::None => {}
            Framing::Length(length) => head.line(&CONTENT_LENGTH, itoa::Buffer::new().format(length).as_bytes()),
            Framing::Chunked => head.line(&TRANSFER_ENCODING, b"chunked"),
        }
        self.write_forwarding(head);
        self.write_told(head);
        let hop = match self.facts.version {
            Version::HTTP_2 => "2 tollgate",
            Version::HTTP_10 => "1.0 tollgate",
            _ => "1.1 tollgate",
        };
        self.write_joined(head, &VIA, ", ", hop);
        if let Some(offer) = self.offer {
            offer.write(head);
        } else if accepts_trailers(self.facts) {
            head.line(&TE, b"trailers");
            head.line(&CONNECTION, b"te");
        }
        if let Some(left) = self.max_forwards() {
            head.line(&MAX_FORWARDS, itoa::Buffer::new().format(left).as_bytes());
        }
    }

    /// All received lines of a name as one list, with `last` behind them.
    pub(super) fn write_joined(&self, head: &mut impl Sink, name: &HeaderName, separator: &str, last: &str) {
        let lines = self.facts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let mut parts = lines.chain([last.as_bytes()]).filter(|part| !part.is_empty());
        let Some(first) = parts.next() else { return };
        head.begin(name);
        head.push(first);
        for part in parts {
            head.text(separator);
            head.push(part);
        }
        head.end();
    }

    /// Names with a meaning of their own here: identity, and what the operator edits.
    fn reserved(&self) -> impl Iterator<Item = &HeaderName> + Clone {
        let edited = self.edits.set.iter().chain(&self.edits.add).map(|(name, _)| name);
        let IdentityHeaders { trusted_only, keys, told, .. } = self.identity;
        trusted_only.iter().chain(keys).chain(told).chain(edited).chain(&self.edits.remove)
    }

    fn trailers(&self) -> AllowedTrailers {
        // In HTTP/2 trailers may follow a body of known length as well.
        if self.framing == Framing::None || (self.framing != Framing::Chunked && self.facts.version != Version::HTTP_2) {
            return AllowedTrailers { withheld: Rc::new([]) };
        }
        let nominated = Nominated::of(self.facts.headers);
        let nominated = nominated.names().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok());
        AllowedTrailers { withheld: self.reserved().chain(&self.identity.key_twins).cloned().chain(nominated).collect() }
    }

    /// RFC 9110 §7.6.2: only for OPTIONS (TRACE is refused), one less than received; 0 is answered before.
    fn max_forwards(&self) -> Option<u64> {
        let received = self.facts.single(&MAX_FORWARDS).filter(|_| self.facts.method == Method::OPTIONS)?;
        received.parse::<u64>().ok()?.checked_sub(1)
    }
}

/// Written anew, whatever was received.
fn is_rewritten(name: &str) -> bool {
    REWRITTEN.contains(&name)
}

/// What only a trusted proxy may say about where a request came from.
fn is_forwarding(name: &str) -> bool {
    name.starts_with("x-forwarded-") || FORWARDING.contains(&name)
}

/// `x_user_id`, `x.user.id` or `x~user~id`: servers fold such names onto `x-user-id`, some every byte that is no letter or digit.
fn is_look_alike<'n>(name: &str, reserved: impl Iterator<Item = &'n HeaderName> + Clone) -> bool {
    if !is_foldable(name) || reserved.clone().any(|reserved| reserved.as_str() == name) {
        return false;
    }
    let folded = folded(name);
    is_forwarding(&folded)
        || is_rewritten(&folded)
        || is_hop_by_hop(&folded)
        || LOOK_ALIKE_TARGETS.contains(&folded.as_str())
        || reserved.into_iter().any(|reserved| folds_to(reserved.as_str(), &folded))
}

/// Whether a name has other characters than letters, digits and `-`, so that it is another name to servers that fold them.
#[must_use]
pub fn is_foldable(name: &str) -> bool {
    !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn folded(name: &str) -> String {
    name.bytes().map(|byte| char::from(fold(byte))).collect()
}

fn folds_to(name: &str, folded: &str) -> bool {
    name.bytes().map(fold).eq(folded.bytes())
}

fn fold(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte } else { b'-' }
}

fn accepts_trailers(facts: &Facts<'_>) -> bool {
    facts
        .headers
        .get_all(TE)
        .iter()
        .any(|line| line.as_bytes().split(|b| *b == b',').any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers")))
}

/// Whether the request has come through this gateway so often that it must be going in circles (RFC 9110 §7.6.3).
#[must_use]
pub fn looped(facts: &Facts<'_>) -> bool {
    let lines = facts.headers.get_all(VIA).iter().filter_map(|line| line.to_str().ok());
    let hops = lines.flat_map(|line| line.split(',')).filter(|hop| hop.trim().ends_with(PSEUDONYM)).count();
    hops >= MAX_HOPS
}

/// Received copies are dropped because [`Forwarding::write_own`] and [`Forwarding::write_host`] write their own. `expect` goes
/// because the gateway itself asks the client for the body once upstream has the head.
const REWRITTEN: &[&str] =
    &["host", "content-length", "via", "expect", "forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
/// Besides everything that starts with `x-forwarded-`.
const FORWARDING: &[&str] = &[
    "x-real-ip",
    "x-client-ip",
    "x-original-url",
    "x-rewrite-url",
    "true-client-ip",
    "cf-connecting-ip",
    "client-cert",
    "client-cert-chain",
];
/// More names that servers act on and that must not arrive under another spelling.
const LOOK_ALIKE_TARGETS: &[&str] = &["authorization", "cookie", "remote-user", "remote-addr"];

/// Our name in Via; [`Forwarding::write_own`] has it with each version.
const PSEUDONYM: &str = "tollgate";
/// Gateways in a row are fine; ten are a circle.
const MAX_HOPS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{ConnInfo, PathRules};
    use proptest::prelude::*;

    fn head(request: http::request::Builder, via_trusted_proxy: bool) -> String {
        head_with(request, via_trusted_proxy, ForwardedHeader::XForwardedFor, "203.0.113.9")
    }

    fn head_with(request: http::request::Builder, via_trusted_proxy: bool, forwarded: ForwardedHeader, client: &str) -> String {
        heads_with(request, via_trusted_proxy, forwarded, client, Framing::None).0
    }

    fn heads_with(
        request: http::request::Builder,
        via_trusted_proxy: bool,
        forwarded: ForwardedHeader,
        client: &str,
        framing: Framing,
    ) -> (String, EndToEndFields) {
        let (bytes, fields) = both(request, via_trusted_proxy, forwarded, client, framing);
        (String::from_utf8(bytes).unwrap(), fields)
    }

    fn bytes_with(request: http::request::Builder, framing: Framing) -> Vec<u8> {
        both(request, false, ForwardedHeader::XForwardedFor, "203.0.113.9", framing).0
    }

    fn both(
        request: http::request::Builder,
        via_trusted_proxy: bool,
        forwarded: ForwardedHeader,
        client: &str,
        framing: Framing,
    ) -> (Vec<u8>, EndToEndFields) {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let conn = ConnInfo::new("203.0.113.9:5000".parse().unwrap(), "http");
        let rules = PathRules { distinct_trailing_slash: false, allow_encoded_slash: false };
        let facts = Facts::read(&parts, &conn, &rules).unwrap();
        let identity = IdentityHeaders::new(
            vec![HeaderName::from_static("x-user-id")],
            vec![HeaderName::from_static("x-api-key"), HeaderName::from_static("other_key")],
            vec![HeaderName::from_static("x-client-id"), HeaderName::from_static("x-client-tier")],
            forwarded,
        );
        let edits = HeaderEdits {
            remove: vec![HeaderName::from_static("x-gone")],
            set: vec![(HeaderName::from_static("x-env"), HeaderValue::from_static("prod"))],
            add: vec![],
        };
        let forwarding = Forwarding {
            facts: &facts,
            target: "/a?b",
            framing,
            via_trusted_proxy,
            client: client.parse().unwrap(),
            edits: &edits,
            identity: &identity,
            told: &[],
            withheld: &Withheld::default(),
            plain_response: false,
            default_host: "up:1",
            offer: None,
        };
        (EndToEndHead::new(&forwarding).bytes().to_vec(), EndToEndFields::new(&forwarding, &Scheme::HTTP).unwrap())
    }

    /// Both forms say the same: every line but those of the connection is a field, `Host` is the authority.
    #[test]
    fn http2_says_what_http1_says() {
        let requests = [
            get()
                .header("accept", "*/*")
                .header("cookie", "a=1")
                .header("cookie", "b=2")
                .header("connection", "x-hop")
                .header("x-hop", "1"),
            get()
                .header("te", "trailers")
                .header("x-forwarded-for", "198.51.100.1")
                .header("via", "2 edge")
                .header("x-user-id", "u"),
            http::Request::post("http://example.com/a?b")
                .version(Version::HTTP_2)
                .header("cookie", "a=1")
                .header("cookie", "b=2"),
        ];
        for request in requests {
            for framing in [Framing::None, Framing::Length(7), Framing::Chunked] {
                let request = {
                    let copy = request.headers_ref().unwrap().iter();
                    let new = http::Request::builder().method(request.method_ref().unwrap()).uri(request.uri_ref().unwrap());
                    copy.fold(new.version(*request.version_ref().unwrap()), |new, (name, value)| new.header(name, value))
                };
                let (text, fields) = heads_with(request, true, ForwardedHeader::XForwardedFor, "198.51.100.1", framing);
                let mut lines: Vec<&str> = text.trim_end().split("\r\n").skip(1).collect();
                lines.retain(|line| !line.starts_with("transfer-encoding: ") && !line.starts_with("connection: "));
                let EndToEndFields { request, .. } = fields;
                let host = format!("host: {}", request.uri().authority().unwrap());
                let said = request.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
                let mut said: Vec<String> = std::iter::once(host).chain(said).collect();
                lines.sort_unstable();
                said.sort_unstable();
                assert_eq!(said, lines);
                assert_eq!(
                    (request.uri().path_and_query().unwrap().as_str(), request.uri().scheme_str()),
                    ("/a?b", Some("http"))
                );
            }
        }
    }

    #[test]
    fn blanks_around_an_operators_value_are_not_said_in_http2() {
        let mut fields = Fields::new();
        fields.line(&VIA, b" a b ");
        assert_eq!(fields.headers[VIA], "a b");
    }

    fn get() -> http::request::Builder {
        http::Request::get("/a?b").header("host", "Example.com:80")
    }

    #[test]
    fn a_plain_request_gets_our_own_fields() {
        assert_eq!(
            head(get().header("accept", "*/*"), false),
            "GET /a?b HTTP/1.1\r\nhost: example.com\r\naccept: */*\r\nx-forwarded-for: 203.0.113.9\r\n\
             x-forwarded-proto: http\r\nx-forwarded-host: example.com\r\nvia: 1.1 tollgate\r\nx-env: prod\r\n\r\n"
        );
    }

    #[test]
    fn nothing_of_this_gets_through_from_an_untrusted_client() {
        let names = FORWARDING.iter().chain(&[
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-port",
            "x-forwarded-user",
            "connection",
            "keep-alive",
            "proxy-connection",
            "te",
            "upgrade",
            "http2-settings",
            "x-user-id",
            "x_user_id",
            "x.user.id",
            "x_api_key",
            "x_forwarded_for",
            "content_length",
            "transfer_encoding",
            "remote_user",
            "x-gone",
            "x-env",
            "x_env",
            "x-client-id",
            "x_client_tier",
            "x.client.id",
            "x-api~key",
            "other-key",
            "other.key",
        ]);
        for name in names {
            let sent = head(get().header(*name, "EVIL"), false);
            assert!(!sent.contains("EVIL"), "{name}: {sent}");
        }
    }

    #[test]
    fn every_byte_that_a_server_may_fold_is_folded() {
        for byte in "!#$%&'*+.^_`|~".chars() {
            for name in ["x-client-id", "x-user-id", "x-forwarded-for", "x-env", "remote-user", "x-api-key"] {
                let name = name.replace('-', &byte.to_string());
                let sent = head(get().header(&name, "EVIL"), false);
                assert!(!sent.contains("EVIL"), "{name}: {sent}");
            }
        }
        let sent = head(get().header("other_key", "k").header("x_custom", "v").header("x~y", "v"), false);
        for line in ["\r\nother_key: k\r\n", "\r\nx_custom: v\r\n", "\r\nx~y: v\r\n"] {
            assert!(sent.contains(line), "{line}: {sent}");
        }
    }

    #[test]
    fn a_trusted_proxy_is_continued() {
        let request = get()
            .header("x-forwarded-for", "198.51.100.1")
            .header("x-forwarded-for", "10.0.0.1")
            .header("x-forwarded-proto", "https")
            .header("x-user-id", "u1")
            .header("via", "2 edge");
        let sent = head(request, true);
        for line in [
            "\r\nx-forwarded-for: 198.51.100.1, 10.0.0.1, 203.0.113.9\r\n",
            "\r\nx-forwarded-proto: https\r\n",
            "\r\nx-user-id: u1\r\n",
            "\r\nvia: 2 edge, 1.1 tollgate\r\n",
        ] {
            assert!(sent.contains(line), "{line}: {sent}");
        }
        assert_eq!(sent.matches("x-forwarded-for").count(), 1);
    }

    #[test]
    fn only_the_header_that_is_believed_is_continued() {
        let both = || get().header("forwarded", "for=198.51.100.1, for=10.0.0.1").header("x-forwarded-for", "198.51.100.2");
        let sent = head_with(both(), true, ForwardedHeader::XForwardedFor, "198.51.100.2");
        assert!(
            sent.contains("\r\nx-forwarded-for: 198.51.100.2, 203.0.113.9\r\n") && !sent.contains("forwarded: for"),
            "{sent}"
        );
        let sent = head_with(both(), true, ForwardedHeader::Forwarded, "198.51.100.1");
        let own = "for=203.0.113.9;host=\"example.com\";proto=http";
        assert!(sent.contains(&format!("\r\nforwarded: for=198.51.100.1, for=10.0.0.1, {own}\r\n")), "{sent}");
        assert!(sent.contains("\r\nx-forwarded-for: 198.51.100.1, 203.0.113.9\r\n"), "{sent}");
        let sent = head_with(both(), false, ForwardedHeader::Forwarded, "203.0.113.9");
        assert!(sent.contains(&format!("\r\nforwarded: {own}\r\n")), "{sent}");
        assert!(sent.contains("\r\nx-forwarded-for: 203.0.113.9\r\n"), "{sent}");
    }

    #[test]
    fn nominated_fields_stay_behind_but_not_ours() {
        let request = get()
            .header("connection", "x-hop, X-Api-Key, x-forwarded-for, via, close")
            .header("x-hop", "EVIL")
            .header("x-api-key", "k");
        let sent = head(request, false);
        assert!(!sent.contains("EVIL") && !sent.contains("connection"));
        assert!(sent.contains("x-api-key: k\r\n") && sent.contains("via: 1.1 tollgate") && sent.contains("x-forwarded-for: "));
    }

    #[test]
    fn cookie_crumbs_are_joined_for_http1() {
        let request =
            http::Request::get("http://example.com/").version(Version::HTTP_2).header("cookie", "a=1").header("cookie", "b=2");
        assert!(head(request, false).contains("\r\ncookie: a=1; b=2\r\n"));
    }

    #[test]
    fn trailers_are_offered_only_when_asked_for() {
        assert!(head(get().header("te", "gzip;q=1, Trailers"), false).contains("te: trailers\r\nconnection: te\r\n"));
    }

    /// Fields as clients send them, as attackers do, and anything.
    fn some_fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
        #[rustfmt::skip]
        let names: &[&str] = &[
            "accept", "Connection", "connection", "TE", "Upgrade", "Keep-Alive", "Proxy-Connection", "http2-settings", "Expect", "Via",
            "X-Forwarded-For", "x-forwarded-proto", "x-forwarded-anything", "Forwarded", "X-Real-IP", "x-user-id", "x-client-id", "X-API-Key",
            "x-gone", "x-env", "cookie", "content-type", "x-hop", "x-original-url",
        ];
        let name = prop_oneof![4 => proptest::sample::select(names).prop_map(str::to_owned), 1 => "[a-z]{1,6}"];
        let values: &[&str] = &[
            "",
            "1",
            "close",
            "x-hop, accept",
            "X-Forwarded-For,host",
            "te",
            "trailers",
            "100-continue",
            "a, b;c=\"d\"",
            "keep-alive, x-api-key",
        ];
        let value = prop_oneof![
            3 => proptest::sample::select(values).prop_map(|value| value.as_bytes().to_vec()),
            1 => proptest::collection::vec(prop_oneof![0x20_u8..0x7f, 0x80_u8..=0xff, Just(b'\t')], 0..12),
        ];
        proptest::collection::vec((name, value), 0..8)
    }

    /// What must go through, said in another way than the code does: name by name, in lower case, in order.
    fn expected(fields: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
        let lower: Vec<(String, &[u8])> = fields.iter().map(|(name, value)| (name.to_lowercase(), value.trim_ascii())).collect();
        let connection = lower.iter().filter(|(name, _)| name == "connection");
        let nominated: Vec<String> = connection
            .flat_map(|(_, value)| {
                String::from_utf8_lossy(value).to_lowercase().split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>()
            })
            .collect();
        #[rustfmt::skip]
        let never = [
            "connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "http2-settings", "host", "content-length", "via",
            "expect", "forwarded", "x-real-ip", "x-original-url", "x-user-id", "x-client-id", "x-client-tier", "x-gone", "x-env",
        ];
        let stays = |name: &str| {
            let options = ["close", "keep-alive", ""];
            let is_nominated = nominated.iter().any(|word| word == name) && !options.contains(&name) && name != "x-api-key";
            !never.contains(&name) && !name.starts_with("x-forwarded-") && !is_nominated
        };
        let mut passed: Vec<(String, Vec<u8>)> =
            lower.iter().filter(|(name, _)| stays(name)).map(|(name, value)| (name.clone(), value.to_vec())).collect();
        passed.sort_by(|a, b| a.0.cmp(&b.0));
        passed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// From bytes to bytes: a head that the parser takes and [`Facts`] lets through says upstream what it said here, less what ends here,
        /// and is one well-formed head with one Host and one framing.
        #[test]
        fn a_head_that_is_accepted_means_the_same_upstream(fields in some_fields(), framing in 0_u8..3) {
            let lines: Vec<u8> = fields.iter().flat_map(|(name, value)| [name.as_bytes(), b": ", value, b"\r\n"].concat()).collect();
            let raw = [b"POST /a?b HTTP/1.1\r\nHost: example.com\r\n", &*lines, b"\r\n"].concat();
            let mut room = [httparse::EMPTY_HEADER; 16];
            let mut parsed = httparse::Request::new(&mut room);
            prop_assume!(parsed.parse(&raw).is_ok_and(|status| status.is_complete()));
            let request = parsed.headers.iter().fold(http::Request::post("/a?b"), |request, field| request.header(field.name, field.value));
            prop_assume!(request.headers_ref().unwrap().get_all("expect").iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue")));
            let framing = [Framing::None, Framing::Length(3), Framing::Chunked][usize::from(framing)];
            let text = bytes_with(request, framing);

            let head = text.strip_suffix(b"\r\n\r\n").expect("an empty line at the end");
            prop_assert!(memchr::memmem::find(head, b"\r\n\r\n").is_none(), "two heads");
            let mut passed = Vec::new();
            let (mut hosts, mut framings) = (0, 0);
            for line in head.split(|byte| *byte == b'\n').skip(1) {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                prop_assert!(!line.contains(&b'\r') && !line.contains(&0));
                let colon = line.iter().position(|byte| *byte == b':').expect("a field");
                let (name, value) = (String::from_utf8(line[..colon].to_vec()).unwrap(), line[colon + 1..].trim_ascii());
                match name.as_str() {
                    "host" => hosts += 1,
                    "content-length" | "transfer-encoding" => framings += 1,
                    "connection" | "te" => prop_assert!(value == b"te" || value == b"trailers"),
                    "via" | "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" | "x-env" => {}
                    _ => passed.push((name, value.to_vec())),
                }
            }
            passed.sort_by(|a, b| a.0.cmp(&b.0));
            prop_assert_eq!((hosts, framings), (1, i32::from(framing != Framing::None)));
            prop_assert_eq!(passed, expected(&fields), "{:?}", String::from_utf8_lossy(&raw));
        }
    }
}
