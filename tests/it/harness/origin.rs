//! A scripted upstream: it keeps every byte it was sent and answers as a test tells it to.
//!
//! The script is a function called for each request head. It reads the body or not, sends bytes, waits, closes or
//! resets. Requests are framed strictly (CRLF only, one framing); anything else is recorded as [`Ending::Garbage`],
//! so a smuggled or malformed request cannot pass unnoticed.

use super::client::{field, find};
use super::tls::{Serve, Wire};
use super::until;
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub(crate) struct Origin {
    addr: SocketAddr,
    log: Arc<Log>,
}

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Which connection, counted from 0.
    pub(crate) connection: usize,
    /// Exactly what came over the wire.
    pub(crate) wire: Vec<u8>,
    /// `GET /x HTTP/1.1`.
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    /// Without chunk framing.
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) ending: Ending,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The body has not been read to its end (yet).
    Open,
    Complete,
    /// The connection ended first.
    Aborted,
    Garbage(String),
}

/// What happens to the connection after the script has returned.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Next {
    Keep,
    Close,
}

impl Origin {
    /// Answers every complete request with these bytes.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |call| call.answer(&answer))
    }

    /// `200` with the body `ok`.
    pub(crate) fn ok() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    }

    /// Answers every request with the request's own bytes.
    pub(crate) fn echo() -> Self {
        Self::new(|call| {
            if !call.body() {
                return Next::Close;
            }
            let wire = call.seen().wire;
            call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", wire.len()));
            call.send(wire);
            Next::Keep
        })
    }

    pub(crate) fn new(script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Self {
        Self::start("127.0.0.1:0".parse().unwrap(), None, script)
    }

    /// The same at an address of the test's choice.
    pub(crate) fn at(address: SocketAddr, script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Self {
        Self::start(address, None, script)
    }

    /// The same over TLS. Connections whose handshake fails are counted and nothing more.
    pub(crate) fn secure(serve: Serve, script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Self {
        Self::start("127.0.0.1:0".parse().unwrap(), Some(serve), script)
    }

    fn start(address: SocketAddr, serve: Option<Serve>, script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let addr = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let (script, theirs) = (Arc::new(script), Arc::clone(&log));
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                if theirs.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (script, log, serve) = (Arc::clone(&script), Arc::clone(&theirs), serve.clone());
                thread::spawn(move || Exchange::serve(connection, stream, serve, log, &*script));
            }
        });
        Self { addr, log }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Every request so far, in order of arrival.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.log.requests.lock().unwrap().clone()
    }

    /// The request lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }

    pub(crate) fn forget(&self) {
        self.log.requests.lock().unwrap().clear();
    }

    /// Waits for the `n`th request (from 1) and its end, whichever way it ended.
    pub(crate) fn wait(&self, n: usize) -> Seen {
        let ended = |seen: &Seen| seen.ending != Ending::Open;
        until(&format!("request {n} reaches the upstream and ends"), || self.seen().get(n - 1).is_some_and(ended));
        self.seen().swap_remove(n - 1)
    }

    /// Waits until `n` request heads have arrived.
    pub(crate) fn wait_heads(&self, n: usize) {
        until(&format!("{n} requests reach the upstream"), || self.seen().len() >= n);
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.log.connections.load(Ordering::SeqCst)
    }

    /// Connections that are open now.
    pub(crate) fn open(&self) -> usize {
        self.log.open.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    /// Wakes the accept loop so that it ends with the test.
    fn drop(&mut self) {
        self.log.stopped.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.addr));
    }
}

/// An address that accepts no connection while this lives: its accept queue is full, so the kernel drops attempts.
pub(crate) struct Unreachable {
    pub(crate) addr: SocketAddr,
    _held: (socket2::Socket, Vec<TcpStream>),
}

impl Unreachable {
    pub(crate) fn new() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.listen(0).unwrap();
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        let fillers = (0..2).map_while(|_| TcpStream::connect_timeout(&addr, Duration::from_millis(200)).ok()).collect();
        Self { addr, _held: (socket, fillers) }
    }
}

#[derive(Default)]
struct Log {
    requests: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    stopped: AtomicBool,
}

/// One request on one connection, in the hands of the script.
pub(crate) struct Exchange {
    pub(crate) stream: Wire,
    buffer: Vec<u8>,
    log: Arc<Log>,
    connection: usize,
    /// Requests begun on this connection, this one included.
    pub(crate) nth: usize,
    seen: Seen,
    body_read: bool,
}

impl Exchange {
    /// Target of the request: `/x`.
    pub(crate) fn target(&self) -> &str {
        self.seen.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn method(&self) -> &str {
        self.seen.line.split(' ').next().unwrap_or_default()
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// Reads the body to its end and sends `answer`.
    pub(crate) fn answer(&mut self, answer: &[u8]) -> Next {
        if !self.body() {
            return Next::Close;
        }
        self.send(answer);
        Next::Keep
    }

    /// Writes; false once the gateway has gone away.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Reads nothing and writes nothing until the gateway ends the connection.
    pub(crate) fn stall(&mut self) -> Next {
        let ended = loop {
            match self.fill() {
                Ok(true) => {}
                other => break other,
            }
        };
        drop(ended);
        if !self.body_read {
            self.ended(Ending::Aborted);
        }
        Next::Close
    }

    /// The connection itself, for a script that speaks something else from here on, and what has been read from it already. The request
    /// must have been read to its end.
    pub(crate) fn switch(&mut self) -> (Wire, Vec<u8>) {
        assert!(self.body_read);
        let left = Wire::Plain(self.stream.tcp().try_clone().unwrap());
        (std::mem::replace(&mut self.stream, left), std::mem::take(&mut self.buffer))
    }

    /// Ends the connection with RST.
    pub(crate) fn reset(&mut self) -> Next {
        SockRef::from(self.stream.tcp()).set_linger(Some(Duration::ZERO)).unwrap();
        Next::Close
    }

    /// Reads the body to its end; false when the connection ended first or the framing is broken.
    pub(crate) fn body(&mut self) -> bool {
        if self.body_read {
            return true;
        }
        self.body_read = true;
        let ending = match self.read_body() {
            Ok(()) => Ending::Complete,
            Err(ending) => ending,
        };
        self.ended(ending.clone());
        ending == Ending::Complete
    }

    /// Ends the connection now, over TLS without saying so.
    pub(crate) fn cut(&mut self) -> Next {
        self.stream.forget_manners();
        Next::Close
    }

    fn serve(connection: usize, stream: TcpStream, serve: Option<Serve>, log: Arc<Log>, script: &dyn Fn(&mut Self) -> Next) {
        stream.set_nodelay(true).unwrap();
        log.connections.fetch_add(1, Ordering::SeqCst);
        let stream = match serve {
            None => Wire::Plain(stream),
            Some(serve) => match serve.shake(stream) {
                Ok(wire) => wire,
                Err(_) => return,
            },
        };
        log.open.fetch_add(1, Ordering::SeqCst);
        let seen = Seen::at(connection);
        let counted = Arc::clone(&log);
        let mut call = Self { stream, buffer: Vec::new(), log, connection, nth: 0, seen, body_read: true };
        while call.head() {
            if script(&mut call) == Next::Close || !call.body() {
                break;
            }
        }
        drop(call);
        counted.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Reads the next head and enters it in the log; false at the end of the connection.
    fn head(&mut self) -> bool {
        let at = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            if !matches!(self.fill(), Ok(true)) {
                return false;
            }
        };
        self.nth += 1;
        self.seen = Seen::at(self.connection);
        self.body_read = false;
        let head: Vec<u8> = self.buffer.drain(..at).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        self.seen.line = lines.next().unwrap_or_default().to_owned();
        self.seen.headers = lines.map(split_field).collect();
        self.seen.wire = head;
        self.log.requests.lock().unwrap().push(self.seen.clone());
        true
    }

    fn read_body(&mut self) -> Result<(), Ending> {
        let garbage = |why: &str| Err(Ending::Garbage(why.to_owned()));
        let codings = super::fields(&self.seen.headers, "transfer-encoding").join("|");
        let lengths = super::fields(&self.seen.headers, "content-length").join("|");
        if self.seen.wire.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r') {
            return garbage("bare LF in the head");
        }
        match (codings.as_str(), lengths.as_str()) {
            ("", "") => Ok(()),
            ("", length) => match length.parse() {
                Ok(length) => self.take(length),
                Err(_) => garbage("content-length"),
            },
            ("chunked", "") => self.chunks(),
            _ => garbage("transfer-encoding"),
        }
    }

    fn chunks(&mut self) -> Result<(), Ending> {
        loop {
            let line = self.line()?;
            let strict = !line.is_empty() && line.bytes().all(|b| b.is_ascii_hexdigit());
            let size = usize::from_str_radix(&line, 16).ok().filter(|_| strict);
            match size.ok_or_else(|| Ending::Garbage(format!("chunk size {line:?}")))? {
                0 => break,
                size => self.take(size)?,
            }
            if !self.line()?.is_empty() {
                return Err(Ending::Garbage("no CRLF behind a chunk".into()));
            }
        }
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(());
            }
            self.seen.trailers.push(split_field(&line));
        }
    }

    /// Moves `n` bytes of body from the wire to the record.
    fn take(&mut self, mut n: usize) -> Result<(), Ending> {
        while n > 0 {
            if self.buffer.is_empty() && !matches!(self.fill(), Ok(true)) {
                return Err(Ending::Aborted);
            }
            let now: Vec<u8> = self.buffer.drain(..n.min(self.buffer.len())).collect();
            n -= now.len();
            self.seen.wire.extend_from_slice(&now);
            self.seen.body.extend_from_slice(&now);
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String, Ending> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                self.seen.wire.extend_from_slice(&line);
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if !matches!(self.fill(), Ok(true)) {
                return Err(Ending::Aborted);
            }
        }
    }

    fn fill(&mut self) -> std::io::Result<bool> {
        let mut chunk = [0; 64 << 10];
        let n = self.stream.read(&mut chunk)?;
        self.buffer.extend_from_slice(&chunk[..n]);
        Ok(n > 0)
    }

    /// Records how the request ended, in the log entry of the same connection that is still open.
    fn ended(&mut self, ending: Ending) {
        self.seen.ending = ending;
        let mut requests = self.log.requests.lock().unwrap();
        let open = |seen: &&mut Seen| seen.connection == self.connection && seen.ending == Ending::Open;
        if let Some(entry) = requests.iter_mut().rfind(open) {
            *entry = self.seen.clone();
        }
    }
}

impl Seen {
    fn at(connection: usize) -> Self {
        let (wire, line, body) = (Vec::new(), String::new(), Vec::new());
        Self { connection, wire, line, headers: Vec::new(), body, trailers: Vec::new(), ending: Ending::Open }
    }

    pub(crate) fn complete(&self) -> bool {
        self.ending == Ending::Complete
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }

    /// Every value of a header, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        super::fields(&self.headers, name)
    }
}

fn split_field(line: &str) -> (String, String) {
    line.split_once(':').map_or_else(|| (line.to_owned(), String::new()), |(n, v)| (n.to_owned(), v.trim().to_owned()))
}
