//! Upgrades where one side or both speak TLS: how an end and a reset are said there, and which protocol is asked for.

use super::http2::{connect, echo};
use super::{End, KEY, Socket, accepting_secure, asking, close_code, frame, masked, silent, silent_secure, switching};
use crate::harness::{Authority, Dial, Exchange, Gateway, H2, H2Origin, Leaf, Next, Origin, Serve, Table, kind, until};

/// Who signs the certificates of a test's gateway and upstream.
pub(super) struct Pki {
    authority: Authority,
    ours: String,
    theirs: (String, String),
}

impl Pki {
    pub(super) fn new() -> Self {
        let authority = Authority::new("everybody");
        let leaf = Leaf::of(&["localhost", "127.0.0.1"]);
        Self { ours: authority.issue("gateway", &leaf), theirs: authority.sign(&leaf), authority }
    }

    /// An upstream that takes HTTP/2 where it can have it, and HTTP/1.1 otherwise.
    pub(super) fn serve(&self) -> Serve {
        Serve::showing(&self.theirs, None).preferring_http2()
    }

    pub(super) fn listener(&self) -> String {
        format!("listeners: [{{ name: public, address: '127.0.0.1:0', tls: {{ certificates: {} }} }}]", self.ours)
    }

    pub(super) fn upstream(&self, protocol: &str) -> String {
        let ca = self.authority.ca();
        format!(
            "upstreams: {{ origin: {{ endpoints: ['https://ORIGIN'], protocol: {protocol}, tls: {{ ca: '{}' }} }} }}",
            ca.display()
        )
    }

    fn dial(&self) -> Dial {
        self.authority.dial("localhost")
    }

    /// A client's connection.
    pub(super) fn socket(&self, gateway: &Gateway) -> Socket {
        Socket::secure(gateway.addr(), &self.dial())
    }
}

/// Which of the two sides speak TLS.
#[derive(Debug, Clone, Copy)]
struct Sides {
    client: bool,
    upstream: bool,
}

const ALL: [Sides; 4] = [
    Sides { client: false, upstream: false },
    Sides { client: true, upstream: false },
    Sides { client: false, upstream: true },
    Sides { client: true, upstream: true },
];

impl Sides {
    fn yaml(self, pki: &Pki, more: &str) -> String {
        let listener = if self.client { pki.listener() } else { String::new() };
        let upstream = if self.upstream { pki.upstream("auto") } else { String::new() };
        format!("{listener}\n{upstream}\n{more}")
    }

    fn connect(self, pki: &Pki, gateway: &Gateway) -> Socket {
        if self.client { pki.socket(gateway) } else { Socket::connect(gateway.addr()) }
    }

    /// An upstream that answers each upgrade with this, and goes on as `script` says.
    fn origin(self, pki: &Pki, answer: &'static str, script: impl Fn(Socket) + Send + Sync + 'static) -> Origin {
        let script = move |call: &mut Exchange| {
            call.body();
            call.send(answer);
            let (stream, ahead) = call.switch();
            script(Socket::over(stream, ahead));
            Next::Close
        };
        if self.upstream { Origin::secure(pki.serve(), script) } else { Origin::new(script) }
    }
}

#[test]
fn a_websocket_that_came_over_tls_is_told_to_upstream_as_one() {
    let pki = Pki::new();
    let (origin, noted) = silent();
    let gateway = Gateway::before(&origin, &pki.listener());
    let mut socket = pki.socket(&gateway).upgraded("/");
    socket.send(masked(0x81, b"hello")).finish();
    assert_eq!(noted.wait(1), (masked(0x81, b"hello"), End::Fin));
    assert_eq!(socket.rest(), (vec![], End::Fin), "the end is announced");
    let seen = origin.seen().swap_remove(0);
    assert_eq!((seen.all("x-forwarded-proto"), seen.all("upgrade")), (vec!["https"], vec!["websocket"]));
}

/// Its records and alerts look otherwise on the wire.
#[test]
fn over_tls_1_2_bytes_and_ends_and_resets_are_the_same() {
    let pki = Pki::new();
    let (origin, noted) = silent_secure(pki.serve().tls12());
    let gateway = Gateway::before(&origin, &format!("{}\n{}", pki.listener(), pki.upstream("auto")));
    let connect = || Socket::secure(gateway.addr(), &pki.dial().tls12()).upgraded("/");
    let large = masked(0x82, &vec![5; 70_000]);
    let mut socket = connect();
    socket.send(masked(0x81, b"hello")).send(&large).finish();
    assert_eq!(noted.wait(1), ([masked(0x81, b"hello"), large].concat(), End::Fin));
    assert_eq!(socket.rest(), (vec![], End::Fin), "the end is announced");
    let mut socket = connect();
    socket.send(masked(0x81, b"a"));
    until("it has passed", || gateway.metric("tollgate_upgraded_connections", &[]) == 1.0);
    socket.reset();
    assert_eq!(noted.wait(2).1, End::Reset);

    let origin = accepting_secure(pki.serve().tls12(), |_, mut socket| {
        socket.send(frame(0x82, &vec![7; 70_000], None)).send(frame(0x88, b"\x03\xe8", None)).finish();
        socket.rest();
    });
    let gateway = Gateway::before(&origin, &format!("{}\n{}", pki.listener(), pki.upstream("auto")));
    let mut socket = Socket::secure(gateway.addr(), &pki.dial().tls12()).upgraded("/");
    let (bytes, end) = socket.rest();
    assert!(bytes.starts_with(&frame(0x82, &vec![7; 70_000], None)) && bytes.len() == 70_010 + 4, "{}", bytes.len());
    assert_eq!(end, End::Fin);
}

/// Upstream, which is a gateway too, would rather have HTTP/2, in which there is no upgrade.
#[test]
fn an_upgrade_asks_for_http1_and_what_is_none_for_http2() {
    let pki = Pki::new();
    let (origin, noted) = silent();
    let upstream = Gateway::before(&origin, &format!("{}\naccess_log: {{ format: json, to: stdout }}", pki.listener()));
    let gateway = Gateway::start(&pki.upstream("auto").replace("ORIGIN", &upstream.addr().to_string()));
    let heard = |path: &str, protocol: &str| {
        let line = |line: &str| line.contains(&format!("\"{path}\"")) && line.contains(&format!("\"protocol\":\"{protocol}\""));
        until(&format!("{path} is logged as {protocol}"), || upstream.access_log().lines().any(line));
    };
    for nth in [1, 2] {
        assert_eq!(gateway.get("/plain").status, 200);
        heard("/plain", "HTTP/2");
        let mut socket = Socket::websocket(gateway.addr(), "/ws");
        socket.send(masked(0x81, b"hello")).finish();
        assert_eq!(noted.wait(nth), (masked(0x81, b"hello"), End::Fin));
        assert_eq!(socket.rest(), (vec![], End::Fin));
        heard("/ws", "HTTP/1.1");
    }
    assert!(!upstream.access_log().lines().any(|line| line.contains("/plain") && line.contains("HTTP/1.1")));
}

#[test]
fn an_upstream_that_only_speaks_http2_over_tls_cannot_be_asked() {
    let pki = Pki::new();
    let (origin, _) = silent();
    let only = pki.listener().replace("tls:", "protocols: [http2], tls:");
    let upstream = Gateway::before(&origin, &only);
    let gateway = Gateway::start(&pki.upstream("auto").replace("ORIGIN", &upstream.addr().to_string()));
    let mut socket = Socket::connect(gateway.addr());
    assert!(socket.send(asking("/", "")).head().starts_with("HTTP/1.1 502 "));
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[("upstream", "origin"), ("kind", "tls")]), 1.0);
    assert_eq!(gateway.get("/").status, 200, "what is no upgrade goes on in HTTP/2");
}

#[test]
fn an_upgrade_uses_a_connection_that_rests_and_leaves_one_if_it_is_refused() {
    let pki = Pki::new();
    let origin = Origin::secure(pki.serve(), |call| {
        call.body();
        if call.target() == "/no" {
            call.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
            return Next::Keep;
        }
        call.send(switching(KEY));
        let (stream, ahead) = call.switch();
        Socket::over(stream, ahead).rest();
        Next::Close
    });
    let gateway = Gateway::before(&origin, &pki.upstream("auto"));
    for _ in 0..3 {
        let mut socket = Socket::connect(gateway.addr());
        socket.send(asking("/no", ""));
        assert!(socket.head().starts_with("HTTP/1.1 403 "));
        assert_eq!(socket.read(2), b"no");
    }
    drop(Socket::websocket(gateway.addr(), "/"));
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_stream_over_tls_becomes_a_websocket_upstream() {
    let pki = Pki::new();
    let origin = echo();
    let gateway = Gateway::before(&origin, &pki.listener());
    let mut client = H2::connect_secure(gateway.addr(), &pki.dial().alpn(&["h2"])).unwrap();
    client.frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 20).to_be_bytes());
    let mut fields = connect("/");
    fields[2].1 = "https";
    let stream = client.open(&fields, false);
    let head = client.receive_head(stream);
    assert_eq!((head.status(), head.ended), (200, false));
    for size in [3, 200, 70_000] {
        let back = frame(0x82, &vec![5; size], None);
        client.data(stream, &masked(0x82, &vec![5; size]), false);
        let before = client.receive_at_least(stream, 0).body.len();
        let body = client.receive_at_least(stream, before + back.len()).body;
        assert!(body[before..] == back, "{size} bytes: {} came back", body.len() - before);
    }
    client.data(stream, &masked(0x81, b"reset"), false);
    assert_eq!(client.receive(stream).reset, Some(8), "CANCEL");
    let seen = origin.seen().swap_remove(0);
    assert_eq!((seen.line.as_str(), seen.all("x-forwarded-proto")), ("GET / HTTP/1.1", vec!["https"]));
    // The connection goes on.
    let stream = client.open(&fields, false);
    client.receive_head(stream);
    client.data(stream, b"", true);
    assert!(client.receive(stream).ended);
}

/// Without a word: whoever reads what came before must not take it for all.
#[test]
fn a_reset_is_a_reset_on_the_other_side_whichever_speaks_tls() {
    let pki = Pki::new();
    for sides in ALL {
        let (origin, noted) = if sides.upstream { silent_secure(pki.serve()) } else { silent() };
        let gateway = Gateway::before(&origin, &sides.yaml(&pki, "access_log: { format: text, to: stdout }"));
        let mut socket = sides.connect(&pki, &gateway).upgraded("/");
        socket.send(masked(0x81, b"a"));
        until("it has passed", || gateway.metric("tollgate_upgraded_connections", &[]) == 1.0);
        socket.reset();
        assert_eq!(noted.wait(1).1, End::Reset, "{sides:?}: the client resets");
        until("it is logged", || gateway.access_log().contains("ended=client"));

        let origin = sides.origin(&pki, SWITCHING_TO_X, Socket::reset);
        let gateway = Gateway::before(&origin, &sides.yaml(&pki, X));
        let mut socket = sides.connect(&pki, &gateway);
        socket.send(ASKING_FOR_X);
        assert!(socket.head().starts_with("HTTP/1.1 101 "));
        assert_eq!(socket.rest(), (vec![], End::Reset), "{sides:?}: upstream resets");
    }
}

/// Over TLS anybody in between can end a connection, but nobody can announce that.
#[test]
fn an_end_that_nobody_announced_is_one_for_frames_and_none_for_what_nobody_knows() {
    let pki = Pki::new();
    let log = "access_log: { format: text, to: stdout }";
    let cut = |socket: &mut Socket| {
        socket.stream.forget_manners();
        let _gone = socket.stream.tcp().shutdown(std::net::Shutdown::Write);
    };
    let mut table = Table::new("ends without close_notify");
    let mut row = |name: String, found: (End, bool), expected: (End, bool)| {
        table.row(&name, if found == expected { String::new() } else { format!("{found:?}") });
    };
    for sides in ALL {
        let is_cut = |by_tls: bool| if by_tls { (End::Reset, true) } else { (End::Fin, false) };
        let (origin, noted) = if sides.upstream { silent_secure(pki.serve()) } else { silent() };
        let gateway = Gateway::before(&origin, &sides.yaml(&pki, log));
        let mut socket = sides.connect(&pki, &gateway).upgraded("/");
        cut(socket.send(masked(0x81, b"a")));
        let (bytes, end) = noted.wait(1);
        assert_eq!(bytes, masked(0x81, b"a"));
        until("it is logged", || gateway.access_log().contains("ended="));
        let broken = !gateway.access_log().contains("ended=closed");
        row(format!("{sides:?}: a client's WebSocket"), (end, broken), (End::Fin, false));

        let origin = sides.origin(&pki, SWITCHING_TO_X, |mut socket| _ = socket.rest());
        let gateway = Gateway::before(&origin, &sides.yaml(&pki, &format!("{X}\n{log}")));
        let mut socket = sides.connect(&pki, &gateway);
        socket.send(ASKING_FOR_X);
        socket.head();
        cut(&mut socket);
        until("it is logged", || gateway.access_log().contains("ended="));
        let broken = gateway.access_log().contains("ended=client");
        let end = socket.rest().1;
        row(format!("{sides:?}: a client's something"), (end, broken), (if sides.client { end } else { End::Fin }, sides.client));

        let origin = sides.origin(&pki, SWITCHING_TO_X, move |mut socket| cut(&mut socket));
        let gateway = Gateway::before(&origin, &sides.yaml(&pki, &format!("{X}\n{log}")));
        let mut socket = sides.connect(&pki, &gateway);
        socket.send(ASKING_FOR_X);
        socket.head();
        let end = socket.rest().1;
        socket.finish();
        until("it is logged", || gateway.access_log().contains("ended="));
        let broken = gateway.access_log().contains("ended=upstream");
        row(format!("{sides:?}: upstream's something"), (end, broken), is_cut(sides.upstream));
    }
}

#[test]
fn an_upstream_that_leaves_without_a_word_has_ended_its_websocket() {
    let pki = Pki::new();
    let origin = accepting_secure(pki.serve(), |_, mut socket| {
        socket.send(frame(0x88, b"\x03\xe8", None));
        socket.stream.forget_manners();
    });
    let gateway = Gateway::before(&origin, &pki.upstream("auto"));
    let (bytes, end) = Socket::websocket(gateway.addr(), "/").rest();
    assert_eq!((close_code(&bytes), end), (Some(1000), End::Fin));
}

#[test]
fn a_drain_closes_websockets_and_says_so_over_tls() {
    let pki = Pki::new();
    let (origin, noted) = silent_secure(pki.serve());
    let yaml = format!("{}\n{}\nshutdown: {{ delay: 0s, drain: 20s }}", pki.listener(), pki.upstream("auto"));
    let mut gateway = Gateway::before(&origin, &yaml);
    let mut first = pki.socket(&gateway).upgraded("/");
    let mut second = H2::connect_secure(gateway.addr(), &pki.dial().alpn(&["h2"])).unwrap();
    let mut fields = connect("/");
    fields[2].1 = "https";
    let stream = second.open(&fields, false);
    assert_eq!(second.receive_head(stream).status(), 200);
    gateway.signal("TERM");
    let (bytes, end) = first.rest();
    assert_eq!((close_code(&bytes), end), (Some(1001), End::Fin));
    let reply = second.receive(stream);
    assert_eq!((close_code(&reply.body), reply.ended), (Some(1001), true));
    first.send(masked(0x88, b"\x03\xe9")).finish();
    second.data(stream, &masked(0x88, b"\x03\xe9"), true);
    for nth in [1, 2] {
        let (bytes, end) = noted.wait(nth);
        assert_eq!((close_code(&bytes), end), (Some(1001), End::Fin));
    }
    assert!(second.is_closed() && second.announced());
    until("the process has ended", || gateway.exit_code().is_some());
    assert_eq!(gateway.exit_code(), Some(0));
}

/// HTTP/2 has no upgrade, so a route to such an upstream is one without.
#[test]
fn with_an_upstream_that_only_speaks_http2_there_are_no_upgrades() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "");
    let mut socket = Socket::connect(gateway.addr());
    socket.send(asking("/ws", ""));
    let head = socket.head();
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.to_ascii_lowercase().contains("upgrade"), "{head}");
    let seen = origin.wait(1);
    assert_eq!((seen.path(), seen.header("upgrade"), seen.header("connection")), ("/ws", None, None));
    let mut client = H2::connect(gateway.addr());
    assert_eq!(client.ask(&connect("/ws"), None).outcome(), "501");
    assert_eq!(origin.seen().len(), 1);
}

const X: &str = "routes: [{ name: all, upstream: origin, upgrade: [x] }]";
const ASKING_FOR_X: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
const SWITCHING_TO_X: &str = "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
