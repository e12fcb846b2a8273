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
const LOOK_ALIKE_TARGETS: &[&str] = &[
    "authorization",
    "cookie",
    "remote-user",
    "remote-addr",
    "sec-websocket-key",
    "sec-websocket-accept",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
    "sec-websocket-version",
];

/// Our name in Via; [`Forwarding::write_own`] has it with each version.
const PSEUDONYM: &str = "tollgate";
/// Gateways in a row are fine; ten are a circle.
const MAX_HOPS: usize = 10;

#[cfg(test)]
mod tests;
