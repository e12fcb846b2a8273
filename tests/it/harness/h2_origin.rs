//! A scripted HTTP/2 upstream that writes frames by hand, so that it can also do what no library would.
//!
//! The script is a function called for each stream, in a thread of its own: streams of one connection are answered side by side. What it
//! sends obeys the gateway's windows; what it is sent is recorded whether the script reads it or not, but grants no window until it does.

use super::h2::{flag, kind};
use super::{DEADLINE, field, hpack, until};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct H2Origin {
    addr: SocketAddr,
    log: Arc<Log>,
}

/// What a connection begins with.
#[derive(Clone, Copy)]
pub(crate) struct Hello {
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    pub(crate) streams: Option<u32>,
    /// The window of every stream, for bodies of requests.
    pub(crate) window: u32,
}

impl Default for Hello {
    fn default() -> Self {
        Self { streams: None, window: 65_535 }
    }
}

/// One request as it arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct H2Seen {
    /// Which connection, counted from 0.
    pub(crate) connection: usize,
    pub(crate) stream: u32,
    /// With pseudo fields.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// END_STREAM was seen.
    pub(crate) ended: bool,
    /// Error code of RST_STREAM.
    pub(crate) reset: Option<u32>,
}

impl H2Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }

    pub(crate) fn path(&self) -> &str {
        self.header(":path").unwrap_or_default()
    }
}

#[derive(Default)]
struct Log {
    seen: Mutex<Vec<H2Seen>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    /// Streams at once on one connection, at most.
    most: AtomicUsize,
    stopped: AtomicBool,
}

/// A piece of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Data(Vec<u8>),
    Trailers,
    End,
    Reset,
    /// The connection has ended, or nothing came for too long.
    Gone,
}

/// A connection as its streams share it.
struct Shared {
    writer: Mutex<TcpStream>,
    windows: Mutex<Windows>,
    moved: Condvar,
}

#[derive(Default)]
struct Windows {
    connection: i64,
    initial: i64,
    streams: HashMap<u32, i64>,
    closed: bool,
}

/// One stream, in the hands of the script.
pub(crate) struct Call {
    shared: Arc<Shared>,
    pieces: Receiver<Piece>,
    /// The request's head.
    pub(crate) seen: H2Seen,
    /// Streams begun on this connection, this one included.
    pub(crate) nth: usize,
    over: bool,
}

impl H2Origin {
    pub(crate) fn new(script: impl Fn(&mut Call) + Send + Sync + 'static) -> Self {
        Self::saying(Hello::default(), script)
    }

    /// `200` with the body `ok`.
    pub(crate) fn ok() -> Self {
        Self::new(|call| {
            call.body();
            call.headers(&[(":status", "200"), ("content-length", "2")], false);
            call.data(b"ok", true);
        })
    }

    pub(crate) fn saying(hello: Hello, script: impl Fn(&mut Call) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let (script, theirs) = (Arc::new(script), Arc::clone(&log));
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                if theirs.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (script, log) = (Arc::clone(&script), Arc::clone(&theirs));
                thread::spawn(move || {
                    log.connections.fetch_add(1, Ordering::SeqCst);
                    log.open.fetch_add(1, Ordering::SeqCst);
                    serve(connection, stream, hello, &log, &script);
                    log.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { addr, log }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Every request so far, in order of arrival.
    pub(crate) fn seen(&self) -> Vec<H2Seen> {
        self.log.seen.lock().unwrap().clone()
    }

    /// Waits until `n` heads have arrived.
    pub(crate) fn wait_heads(&self, n: usize) {
        until(&format!("{n} requests reach the upstream"), || self.seen().len() >= n);
    }

    /// Waits for the `n`th request (from 1) and its end, whichever way it ended.
    pub(crate) fn wait(&self, n: usize) -> H2Seen {
        let over = |seen: &H2Seen| seen.ended || seen.reset.is_some();
        until(&format!("request {n} reaches the upstream and ends"), || self.seen().get(n - 1).is_some_and(over));
        self.seen().swap_remove(n - 1)
    }

    /// Waits until the gateway resets the stream of the `n`th request (from 1); with which code.
    pub(crate) fn wait_reset(&self, n: usize) -> u32 {
        let reset = || self.seen().get(n - 1).and_then(|seen| seen.reset);
        until(&format!("the stream of request {n} is reset"), || reset().is_some());
        reset().unwrap()
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.log.connections.load(Ordering::SeqCst)
    }

    /// Connections that are open now.
    pub(crate) fn open(&self) -> usize {
        self.log.open.load(Ordering::SeqCst)
    }

    /// Streams at once on one connection, at most.
    pub(crate) fn most_streams(&self) -> usize {
        self.log.most.load(Ordering::SeqCst)
    }
}

impl Drop for H2Origin {
    /// Wakes the accept loop so that it ends with the test.
    fn drop(&mut self) {
        self.log.stopped.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.addr));
    }
}

fn serve(
    connection: usize,
    stream: TcpStream,
    hello: Hello,
    log: &Arc<Log>,
    script: &Arc<impl Fn(&mut Call) + Send + Sync + 'static>,
) {
    stream.set_nodelay(true).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let windows = Windows { connection: 65_535, initial: 65_535, ..Windows::default() };
    let shared = Arc::new(Shared { writer: Mutex::new(stream), windows: Mutex::new(windows), moved: Condvar::new() });
    let mut preface = [0; 24];
    if reader.read_exact(&mut preface).is_err() || &preface != b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
        return;
    }
    // No dynamic table; see `hpack`.
    let mut settings = setting(1, 0);
    settings.extend(setting(4, hello.window));
    settings.extend(hello.streams.map(|streams| setting(3, streams)).unwrap_or_default());
    shared.frame(kind::SETTINGS, 0, 0, &settings);
    shared.frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    let mut streams = Streams { connection, shared: Arc::clone(&shared), log: Arc::clone(log), senders: HashMap::new(), nth: 0 };
    let mut block = Vec::new();
    while let Some((kind, flags, stream, payload)) = read_frame(&mut reader) {
        match kind {
            kind::SETTINGS if flags & flag::ACK == 0 => {
                shared.apply(&payload);
                shared.frame(kind::SETTINGS, flag::ACK, 0, &[]);
            }
            kind::PING if flags & flag::ACK == 0 => drop(shared.frame(kind::PING, flag::ACK, 0, &payload)),
            kind::WINDOW_UPDATE => shared.grow(stream, i64::from(u32::from_be_bytes(payload[..4].try_into().unwrap()))),
            kind::HEADERS | kind::CONTINUATION => {
                block.extend(payload);
                if flags & flag::END_HEADERS != 0 {
                    let ends = flags & flag::END_STREAM != 0;
                    streams.headers(stream, hpack::decode(&std::mem::take(&mut block)), ends, script);
                }
            }
            kind::DATA => streams.data(stream, payload, flags & flag::END_STREAM != 0),
            kind::RST_STREAM => streams.reset(stream, u32::from_be_bytes(payload[..4].try_into().unwrap())),
            _ => {}
        }
    }
    shared.windows.lock().unwrap().closed = true;
    shared.moved.notify_all();
}

/// The streams of a connection, as its reading thread knows them.
struct Streams {
    connection: usize,
    shared: Arc<Shared>,
    log: Arc<Log>,
    senders: HashMap<u32, Sender<Piece>>,
    nth: usize,
}

impl Streams {
    fn headers(
        &mut self,
        stream: u32,
        headers: Vec<(String, String)>,
        ends: bool,
        script: &Arc<impl Fn(&mut Call) + Send + Sync + 'static>,
    ) {
        if self.senders.contains_key(&stream) {
            self.note(stream, |seen| seen.trailers.clone_from(&headers));
            self.send(stream, Piece::Trailers);
            return self.end(stream);
        }
        self.nth += 1;
        let seen = H2Seen { connection: self.connection, stream, headers, ..H2Seen::default() };
        self.log.seen.lock().unwrap().push(seen.clone());
        let (sender, pieces) = channel();
        self.senders.insert(stream, sender);
        {
            let mut windows = self.shared.windows.lock().unwrap();
            let initial = windows.initial;
            windows.streams.insert(stream, initial);
            self.log.most.fetch_max(windows.streams.len(), Ordering::SeqCst);
        }
        let (shared, script) = (Arc::clone(&self.shared), Arc::clone(script));
        let mut call = Call { shared, pieces, seen, nth: self.nth, over: false };
        thread::spawn(move || {
            script(&mut call);
            call.forget();
        });
        if ends {
            self.end(stream);
        }
    }

    fn data(&mut self, stream: u32, bytes: Vec<u8>, ends: bool) {
        self.note(stream, |seen| seen.body.extend_from_slice(&bytes));
        if !bytes.is_empty() {
            self.send(stream, Piece::Data(bytes));
        }
        if ends {
            self.end(stream);
        }
    }

    fn end(&mut self, stream: u32) {
        self.note(stream, |seen| seen.ended = true);
        self.send(stream, Piece::End);
    }

    fn reset(&mut self, stream: u32, code: u32) {
        self.note(stream, |seen| seen.reset = Some(code));
        self.shared.windows.lock().unwrap().streams.remove(&stream);
        self.shared.moved.notify_all();
        self.send(stream, Piece::Reset);
    }

    fn send(&self, stream: u32, piece: Piece) {
        if let Some(sender) = self.senders.get(&stream) {
            let _over = sender.send(piece);
        }
    }

    fn note(&self, stream: u32, change: impl FnOnce(&mut H2Seen)) {
        let mut seen = self.log.seen.lock().unwrap();
        if let Some(seen) = seen.iter_mut().find(|seen| (seen.connection, seen.stream) == (self.connection, stream)) {
            change(seen);
        }
    }
}

impl Shared {
    fn frame(&self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        self.writer.lock().unwrap().write_all(&bytes).is_ok()
    }

    fn apply(&self, settings: &[u8]) {
        let mut windows = self.windows.lock().unwrap();
        for setting in settings.chunks_exact(6).filter(|setting| setting[..2] == [0, 4]) {
            windows.initial = i64::from(u32::from_be_bytes(setting[2..].try_into().unwrap()));
        }
    }

    fn grow(&self, stream: u32, by: i64) {
        let mut windows = self.windows.lock().unwrap();
        match stream {
            0 => windows.connection += by,
            _ => {
                if let Some(window) = windows.streams.get_mut(&stream) {
                    *window += by;
                }
            }
        }
        self.moved.notify_all();
    }

    /// Takes up to `wanted` bytes of window; `None` once the stream is no more, or stands still for too long.
    fn take(&self, stream: u32, wanted: usize) -> Option<usize> {
        let room = |windows: &Windows| windows.streams.get(&stream).map_or(0, |window| (*window).min(windows.connection));
        let waits = |windows: &mut Windows| !windows.closed && windows.streams.contains_key(&stream) && room(windows) <= 0;
        let windows = self.windows.lock().unwrap();
        let (mut windows, _) = self.moved.wait_timeout_while(windows, DEADLINE, waits).unwrap();
        let taken = usize::try_from(room(&windows)).ok().filter(|room| *room > 0 && !windows.closed)?.min(wanted).min(16 << 10);
        let by = i64::try_from(taken).unwrap();
        windows.connection -= by;
        if let Some(window) = windows.streams.get_mut(&stream) {
            *window -= by;
        }
        Some(taken)
    }
}

impl Call {
    /// The next piece of the request.
    pub(crate) fn next(&mut self) -> Piece {
        if self.over {
            return Piece::End;
        }
        let piece = self.pieces.recv_timeout(DEADLINE).unwrap_or(Piece::Gone);
        if let Piece::Data(bytes) = &piece {
            let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
            self.shared.frame(kind::WINDOW_UPDATE, 0, 0, &length);
            self.shared.frame(kind::WINDOW_UPDATE, 0, self.seen.stream, &length);
        }
        self.over = matches!(piece, Piece::End | Piece::Reset | Piece::Gone);
        piece
    }

    /// Reads the body to its end; nothing if it has none.
    pub(crate) fn body(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            match self.next() {
                Piece::Data(bytes) => body.extend(bytes),
                Piece::Trailers => {}
                Piece::End => return Some(body),
                Piece::Reset | Piece::Gone => return None,
            }
        }
    }

    /// Waits until the gateway resets the stream.
    pub(crate) fn await_reset(&mut self) {
        while !matches!(self.next(), Piece::Reset | Piece::Gone) {
            self.over = false;
        }
    }

    pub(crate) fn headers(&self, fields: &[(&str, &str)], ends: bool) -> bool {
        if ends {
            self.forget();
        }
        let flags = flag::END_HEADERS | if ends { flag::END_STREAM } else { 0 };
        self.frame(kind::HEADERS, flags, &hpack::encode(fields))
    }

    /// A head that takes CONTINUATION frames.
    pub(crate) fn long_headers(&self, fields: &[(&str, &str)]) {
        let block = hpack::encode(fields);
        let mut parts = block.chunks(16 << 10).peekable();
        let mut next = kind::HEADERS;
        while let Some(part) = parts.next() {
            let flags = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
            self.frame(next, flags, part);
            next = kind::CONTINUATION;
        }
    }

    /// Sends as far as the gateway's windows go; false once it wants no more.
    pub(crate) fn data(&self, mut bytes: &[u8], ends: bool) -> bool {
        while !bytes.is_empty() {
            let Some(taken) = self.shared.take(self.seen.stream, bytes.len()) else { return false };
            let (piece, rest) = bytes.split_at(taken);
            bytes = rest;
            if ends && rest.is_empty() {
                self.forget();
            }
            if !self.frame(kind::DATA, u8::from(ends && rest.is_empty()), piece) {
                return false;
            }
        }
        true
    }

    pub(crate) fn trailers(&self, fields: &[(&str, &str)]) -> bool {
        self.headers(fields, true)
    }

    /// The stream makes room for another one: said before the peer can know.
    fn forget(&self) {
        self.shared.windows.lock().unwrap().streams.remove(&self.seen.stream);
    }

    pub(crate) fn reset(&self, code: u32) -> bool {
        self.forget();
        self.frame(kind::RST_STREAM, 0, &code.to_be_bytes())
    }

    pub(crate) fn goaway(&self, last: u32, code: u32) -> bool {
        self.shared.frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
    }

    /// A frame of this stream.
    pub(crate) fn frame(&self, kind: u8, flags: u8, payload: &[u8]) -> bool {
        self.shared.frame(kind, flags, self.seen.stream, payload)
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        let _closed = self.shared.writer.lock().unwrap().shutdown(Shutdown::Both);
    }
}

fn read_frame(reader: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    reader.read_exact(&mut head).ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    reader.read_exact(&mut payload).ok()?;
    Some((head[3], head[4], u32::from_be_bytes([head[5] & 127, head[6], head[7], head[8]]), payload))
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    [id.to_be_bytes().to_vec(), value.to_be_bytes().to_vec()].concat()
}
