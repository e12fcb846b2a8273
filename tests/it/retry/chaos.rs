//! Five endpoints under steady load, and always something wrong with one of them.
//!
//! `TOLLGATE_CHAOS_SECONDS=60` makes it a minute, in which everything happens to each endpoint; otherwise each fault happens once.

use super::{errors, retries, withheld};
use crate::harness::{Client, Gateway, Reply, until};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Well,
    /// The process is gone: connections end, and new ones are refused.
    Killed,
    /// It takes connections and requests and says nothing.
    Frozen,
    /// Longer than a try may take.
    Slow,
    /// Every answer is a 500.
    Failing,
    /// Every request is answered with a RST.
    Resetting,
}

const FAULTS: [Mode; 5] = [Mode::Killed, Mode::Frozen, Mode::Slow, Mode::Failing, Mode::Resetting];
const CLIENTS: usize = 8;
/// One request in so many is a POST, which nobody may send twice.
const POST_EVERY: usize = 50;

/// An endpoint that things happen to.
struct Victim {
    addr: SocketAddr,
    state: Arc<State>,
    /// Keeps the port while nobody listens on it: connections to it are refused.
    _reserved: Socket,
}

struct State {
    mode: Mutex<Mode>,
    connections: Mutex<Vec<TcpStream>>,
    /// Requests other than health checks.
    requests: AtomicUsize,
    over: AtomicBool,
}

impl Victim {
    fn new() -> Self {
        let reserved = bound("127.0.0.1:0".parse().unwrap());
        let addr = reserved.local_addr().unwrap().as_socket().unwrap();
        let state = Arc::new(State {
            mode: Mutex::new(Mode::Well),
            connections: Mutex::default(),
            requests: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&state);
        thread::spawn(move || theirs.run(addr));
        Self { addr, state, _reserved: reserved }
    }

    fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    fn become_so(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
        if mode == Mode::Killed {
            self.state.hang_up();
        }
        if mode == Mode::Well {
            until("it takes connections again", || TcpStream::connect(self.addr).is_ok());
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        self.state.hang_up();
    }
}

fn bound(addr: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&addr.into()).unwrap();
    socket
}

impl State {
    fn is(&self, mode: Mode) -> bool {
        *self.mode.lock().unwrap() == mode && !self.over.load(Ordering::SeqCst)
    }

    fn hang_up(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            drop(connection.shutdown(Shutdown::Both));
        }
    }

    fn run(self: Arc<Self>, addr: SocketAddr) {
        while !self.over.load(Ordering::SeqCst) {
            let socket = bound(addr);
            socket.listen(1024).unwrap();
            socket.set_nonblocking(true).unwrap();
            let listener = TcpListener::from(socket);
            while !self.is(Mode::Killed) && !self.over.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                stream.set_nodelay(true).unwrap();
                self.connections.lock().unwrap().push(stream.try_clone().unwrap());
                let state = Arc::clone(&self);
                thread::spawn(move || state.serve(stream));
            }
            drop(listener);
            self.hang_up();
            while self.is(Mode::Killed) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        while let Some(target) = read_request(&mut stream) {
            if target != "/healthz" {
                self.requests.fetch_add(1, Ordering::SeqCst);
            }
            let mode = *self.mode.lock().unwrap();
            let status = match mode {
                Mode::Killed => return,
                Mode::Frozen => {
                    while self.is(Mode::Frozen) {
                        thread::sleep(Duration::from_millis(5));
                    }
                    return;
                }
                Mode::Slow => {
                    thread::sleep(Duration::from_secs(2));
                    200
                }
                Mode::Resetting => {
                    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                    // The other handle goes first: the last one to close says how.
                    self.connections.lock().unwrap().retain(|other| other.peer_addr().ok() != stream.peer_addr().ok());
                    return;
                }
                Mode::Failing => 500,
                Mode::Well => 200,
            };
            if stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok").as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// The target of the next request, whose body is read too.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let end = loop {
        if let Some(at) = text.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        let mut chunk = [0; 4096];
        let n = stream.read(&mut chunk).ok().filter(|n| *n > 0)?;
        text.extend_from_slice(&chunk[..n]);
    };
    let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
    let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.split("\r\n").next()?.parse().ok()).unwrap_or(0);
    let mut missing = vec![0; (end + length).saturating_sub(text.len())];
    stream.read_exact(&mut missing).ok()?;
    head.split(' ').nth(1).map(str::to_owned)
}

/// As somebody would write it who wants to sleep at night.
fn config(victims: &[Victim]) -> String {
    let addrs: Vec<_> = victims.iter().map(|victim| victim.addr).collect();
    let keys = "timeouts: { connect: 1s, response: 5s }, panic_below: 50%, \
                health: { path: /healthz, interval: 500ms, timeout: 500ms, unhealthy_after: 2, healthy_after: 1 }, \
                outlier: { consecutive_failures: 3, status: [500, 502, 503, 504], eject_for: 500ms, max_eject_for: 1s, max_ejected: 50% }, \
                retry: { attempts: 2, on: [connect, reset, 500, 502, 503, 504], per_try: 500ms, budget: 20%, backoff: 10ms..100ms }";
    format!("workers: 2\n{}", super::upstream(&addrs, keys))
}

#[derive(Debug, Default)]
struct Outcomes {
    requests: usize,
    /// What went wrong with requests that may be sent twice, and with those that may not.
    idempotent: Vec<String>,
    others: Vec<String>,
}

/// Asks again and again, at a steady pace, until it is over.
fn load(gateway: &Gateway, over: &AtomicBool) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut client = Client::connect(gateway.addr());
    while !over.load(Ordering::SeqCst) {
        outcomes.requests += 1;
        let is_post = outcomes.requests % POST_EVERY == 0;
        let began = Instant::now();
        let reply =
            if is_post { client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi") } else { client.get("/") };
        if !matches!(&reply, Reply::Response(response) if response.status == 200 && !response.cut) {
            let problems = if is_post { &mut outcomes.others } else { &mut outcomes.idempotent };
            problems.push(reply.outcome());
            client = Client::connect(gateway.addr());
        }
        thread::sleep(Duration::from_millis(20).saturating_sub(began.elapsed()));
    }
    outcomes
}

#[test]
fn clients_notice_next_to_nothing_of_what_happens_to_endpoints() {
    let minute = std::env::var("TOLLGATE_CHAOS_SECONDS").ok().map(|seconds| seconds.parse::<u64>().unwrap());
    let (rounds, whole) = minute.map_or((1, Duration::from_secs(10)), |seconds| (FAULTS.len(), Duration::from_secs(seconds)));
    let victims: Vec<_> = FAULTS.iter().map(|_| Victim::new()).collect();
    let gateway = Gateway::start(&config(&victims));
    let over = AtomicBool::new(false);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| load(&gateway, &over))).collect();
        let each = whole / u32::try_from(rounds * FAULTS.len()).unwrap();
        for round in 0..rounds {
            for (place, fault) in FAULTS.iter().enumerate() {
                let victim = &victims[(place + round) % victims.len()];
                victim.become_so(*fault);
                thread::sleep(each * 2 / 3);
                victim.become_so(Mode::Well);
                thread::sleep(each / 3);
            }
        }
        over.store(true, Ordering::SeqCst);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let requests: usize = outcomes.iter().map(|outcomes| outcomes.requests).sum();
    let offered: usize = victims.iter().map(Victim::requests).sum();
    let idempotent: Vec<_> = outcomes.iter().flat_map(|outcomes| &outcomes.idempotent).collect();
    let others: Vec<_> = outcomes.iter().flat_map(|outcomes| &outcomes.others).collect();
    let made: Vec<_> =
        ["connect", "closed", "reset", "timeout", "status"].map(|reason| (reason, retries(&gateway, reason))).into();
    let not_made = ["budget", "attempts"].map(|reason| (reason, withheld(&gateway, reason)));
    let ejections = gateway.metric("tollgate_endpoint_ejections_total", &[]);
    let summary = format!(
        "{requests} requests came to {offered}; failures: {idempotent:?}, POST: {others:?}; retries: {made:?}, not made: {not_made:?}, {ejections} ejections, timeouts: {}",
        errors(&gateway, "timeout")
    );
    eprintln!("{summary}");
    assert!(idempotent.is_empty(), "{summary}");
    // One in a thousand; in a short run one for each fault, which meets who is on his way.
    assert!(others.len() <= (requests / 1000).max(FAULTS.len()), "{summary}");
    assert!(offered * 10 <= requests * 12, "{summary}");
    // Else nothing has happened.
    assert!(requests > 500 && ejections >= 3.0 && made.iter().filter(|(_, count)| *count > 0.0).count() >= 3, "{summary}");
}
