//! Connections that become something else: WebSockets and other upgrades, byte by byte at both ends.

mod drain;
mod echo;
mod handshake;
mod http2;
mod life;
mod limits;
mod mistakes;
mod tls;

pub(crate) use http2::connect;

use crate::harness::{DEADLINE, Dial, Exchange, Next, Origin, Serve, Wire, until};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The key of RFC 6455 section 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Fin,
    /// Over TLS, a FIN that no `close_notify` came before.
    Cut,
    Reset,
    /// Not within the deadline.
    Silent,
}

/// Bytes to the end of a connection, and how that came.
type Heard = (Vec<u8>, End);

/// A connection of which every byte is the test's.
struct Socket {
    stream: Wire,
    ahead: Vec<u8>,
}

impl Socket {
    fn over(stream: Wire, ahead: Vec<u8>) -> Self {
        stream.tcp().set_nodelay(true).unwrap();
        stream.tcp().set_read_timeout(Some(DEADLINE)).unwrap();
        stream.tcp().set_write_timeout(Some(DEADLINE)).unwrap();
        Self { stream, ahead }
    }

    fn connect(addr: SocketAddr) -> Self {
        Self::over(Wire::Plain(TcpStream::connect(addr).unwrap()), Vec::new())
    }

    /// Over TLS.
    fn secure(addr: SocketAddr, dial: &Dial) -> Self {
        Self::over(dial.shake(TcpStream::connect(addr).unwrap()).unwrap(), Vec::new())
    }

    /// A WebSocket that upstream has accepted.
    fn websocket(addr: SocketAddr, path: &str) -> Self {
        Self::connect(addr).upgraded(path)
    }

    /// The same on a connection that is there.
    fn upgraded(mut self, path: &str) -> Self {
        self.send(asking(path, ""));
        let head = self.head();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        self
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _gone = self.stream.write_all(bytes.as_ref());
        self
    }

    /// Exactly this many bytes.
    fn read(&mut self, n: usize) -> Vec<u8> {
        while self.ahead.len() < n {
            let ended = self.fill();
            assert!(ended.is_none(), "{ended:?} after {} of {n} bytes: {:?}", self.ahead.len(), self.text());
        }
        self.ahead.drain(..n).collect()
    }

    /// Through the empty line, in lower case.
    fn head(&mut self) -> String {
        let end = |bytes: &[u8]| bytes.windows(4).position(|window| window == b"\r\n\r\n");
        loop {
            if let Some(at) = end(&self.ahead) {
                let head: Vec<u8> = self.ahead.drain(..at + 4).collect();
                return String::from_utf8(head).unwrap().replace("HTTP/1.1 101 Switching Protocols", "HTTP/1.1 101 ");
            }
            let ended = self.fill();
            assert!(ended.is_none(), "{ended:?} within a head: {:?}", self.text());
        }
    }

    /// All that still comes, and how it ends.
    fn rest(&mut self) -> Heard {
        loop {
            if let Some(end) = self.fill() {
                return (std::mem::take(&mut self.ahead), end);
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.ahead[..self.ahead.len().min(300)]).into_owned()
    }

    fn finish(&mut self) -> &mut Self {
        self.stream.finish();
        self
    }

    fn reset(mut self) {
        self.stream.forget_manners();
        socket2::SockRef::from(self.stream.tcp()).set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn fill(&mut self) -> Option<End> {
        let mut chunk = vec![0; 64 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => Some(End::Fin),
            Ok(n) => {
                self.ahead.extend_from_slice(&chunk[..n]);
                None
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Some(End::Silent),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Some(End::Cut),
            Err(_) => Some(End::Reset),
        }
    }
}

/// A handshake with these fields on top.
fn asking(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{more}\r\n"
    )
}

pub(crate) fn accept(key: &str) -> String {
    let mut hash = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(hash.finish())
}

/// The right answer to a handshake with this key.
fn switching(key: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        accept(key)
    )
}

/// An upstream that accepts every WebSocket and leaves the rest to `script`, which is told the target.
fn accepting(script: impl Fn(&str, Socket) + Send + Sync + 'static) -> Origin {
    Origin::new(accept_all(script))
}

/// The same over TLS.
fn accepting_secure(serve: Serve, script: impl Fn(&str, Socket) + Send + Sync + 'static) -> Origin {
    Origin::secure(serve, accept_all(script))
}

fn accept_all(script: impl Fn(&str, Socket) + Send + Sync + 'static) -> impl Fn(&mut Exchange) -> Next + Send + Sync + 'static {
    move |call| {
        if !call.body() {
            return Next::Close;
        }
        let seen = call.seen();
        let Some(key) = seen.header("sec-websocket-key").filter(|_| seen.header("upgrade").is_some()) else {
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain");
            return Next::Keep;
        };
        call.send(switching(key));
        let target = call.target().to_owned();
        let (stream, ahead) = call.switch();
        script(&target, Socket::over(stream, ahead));
        Next::Close
    }
}

/// An upstream that notes all it is sent over each WebSocket, and says nothing until the client has ended.
fn silent() -> (Origin, Noted) {
    let noted = Noted::default();
    (accepting(noted.clone().taking()), noted)
}

/// The same over TLS.
fn silent_secure(serve: Serve) -> (Origin, Noted) {
    let noted = Noted::default();
    (accepting_secure(serve, noted.clone().taking()), noted)
}

/// What came over WebSockets that have ended, and how they did.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<Heard>>>);

impl Noted {
    fn taking(self) -> impl Fn(&str, Socket) + Send + Sync + 'static {
        move |_, mut socket| {
            let mut all = Vec::new();
            // An idle client is no reason to leave.
            let end = loop {
                match socket.rest() {
                    (more, End::Silent) => all.extend(more),
                    (more, end) => {
                        all.extend(more);
                        break end;
                    }
                }
            };
            self.0.lock().unwrap().push((all, end));
        }
    }

    /// The `n`th that ended, from 1.
    fn wait(&self, n: usize) -> Heard {
        until(&format!("{n} connections end at the upstream"), || self.0.lock().unwrap().len() >= n);
        self.0.lock().unwrap()[n - 1].clone()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A frame; `mask` is a client's.
fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(masked | u8::try_from(length).unwrap()),
        length @ 126..=0xffff => {
            bytes.push(masked | 126);
            bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            bytes.push(masked | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    match mask {
        Some(mask) => {
            bytes.extend(mask);
            bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        }
        None => bytes.extend(payload),
    }
    bytes
}

/// A client's frame.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, Some([0x1d, 0xf0, 0x0d, 0x99]))
}

/// The first frame in `bytes`, unmasked: first byte, payload, length of the whole. None if it is not whole.
fn first_frame(bytes: &[u8]) -> Option<(u8, Vec<u8>, usize)> {
    let [first, second, rest @ ..] = bytes else { return None };
    let (length, extended) = match second & 0x7f {
        126 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), 2),
        127 => (usize::try_from(u64::from_be_bytes(*rest.first_chunk()?)).ok()?, 8),
        length => (usize::from(length), 0),
    };
    let rest = &rest[extended..];
    let (mask, rest) = if second & 0x80 == 0 { ([0; 4], rest) } else { (*rest.first_chunk()?, &rest[4..]) };
    let payload = rest.get(..length)?;
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    Some((*first, payload, bytes.len() - rest.len() + length))
}

/// The code of a Close frame that is all of `bytes`, whoever sent it.
fn close_code(bytes: &[u8]) -> Option<u16> {
    let (first, payload, length) = first_frame(bytes)?;
    (first == 0x88 && length == bytes.len()).then_some(())?;
    payload.first_chunk().map(|code| u16::from_be_bytes(*code))
}
