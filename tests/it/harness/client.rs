//! An HTTP/1 client that sends exactly the bytes it is given and says exactly what came back.

use super::DEADLINE;
use super::tls::{Dial, Wire};
use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// What a connection did next.
#[derive(Debug)]
pub(crate) enum Reply {
    Response(Response),
    /// End of stream before any byte of a response.
    Closed,
    /// RST before any byte of a response.
    Reset,
    /// Nothing within the deadline.
    Silent,
    /// Bytes that are not an HTTP/1 response.
    Garbage(String),
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// In order, names as received.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// Statuses of the 1xx answers that came first.
    pub(crate) interim: Vec<u16>,
    /// The connection ended before the body did.
    pub(crate) cut: bool,
}

impl Reply {
    /// `"200"`, `"200 cut"`, `"closed"`, `"reset"`, `"silent"` or `"garbage"`: what tables compare.
    pub(crate) fn outcome(&self) -> String {
        match self {
            Self::Response(response) if response.cut => format!("{} cut", response.status),
            Self::Response(response) => response.status.to_string(),
            Self::Closed => "closed".into(),
            Self::Reset => "reset".into(),
            Self::Silent => "silent".into(),
            Self::Garbage(text) => format!("garbage {text:?}"),
        }
    }

    pub(crate) fn response(self) -> Response {
        match self {
            Self::Response(response) => response,
            other => panic!("expected a response, got {other:?}"),
        }
    }

    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Response(response) => response.status,
            other => panic!("expected a response, got {other:?}"),
        }
    }
}

impl Response {
    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in the body {:?}", self.text()))
    }
}

/// The first value of a field in a list of fields, whatever the case of its name.
pub(crate) fn field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Every value of a field, in order.
pub(crate) fn fields<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str()).collect()
}

/// Sends `request` on a connection of its own and reads one reply.
pub(crate) fn exchange(addr: SocketAddr, request: impl AsRef<[u8]>) -> Reply {
    Client::connect(addr).send(request).receive()
}

pub(crate) struct Client {
    stream: Wire,
    /// Received, not yet part of a reply.
    buffer: Vec<u8>,
}

/// Why the next bytes are missing.
enum Missing {
    Closed,
    Reset,
    Silent,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self::over(socket2::Socket::new(socket2::Domain::for_address(addr), socket2::Type::STREAM, None).unwrap(), addr)
    }

    fn over(socket: socket2::Socket, addr: SocketAddr) -> Self {
        socket.connect(&addr.into()).unwrap_or_else(|error| panic!("connect {addr}: {error}"));
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self { stream: Wire::Plain(stream), buffer: Vec::new() }
    }

    /// Shakes hands. Nothing may have come before.
    pub(crate) fn secure(self, dial: &Dial) -> Result<Self, String> {
        Ok(Self { stream: dial.shake(self.stream.tcp().try_clone().unwrap())?, buffer: Vec::new() })
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.stream
    }

    pub(crate) fn into_wire(self) -> Wire {
        self.stream
    }

    /// A connection whose receive buffer is small, so that not reading is felt soon.
    pub(crate) fn connect_narrow(addr: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::for_address(addr), socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        Self::over(socket, addr)
    }

    /// From this local address: all of 127.0.0.0/8 is ours.
    pub(crate) fn connect_from(from: SocketAddr, addr: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&from.into()).unwrap();
        Self::over(socket, addr)
    }

    pub(crate) fn wait_at_most(&mut self, limit: Duration) {
        self.stream.tcp().set_read_timeout(Some(limit)).unwrap();
    }

    /// Writes; a peer that has gone away shows in what [`Self::receive`] says.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _gone = self.stream.write_all(bytes.as_ref());
        self
    }

    /// Writes and says whether the peer took it.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends a request and reads its reply.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Reply {
        self.send(request).receive()
    }

    /// `GET path` on this connection.
    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    /// Half-closes: no more request bytes.
    pub(crate) fn finish_sending(&mut self) -> &mut Self {
        let _gone = self.stream.tcp().shutdown(Shutdown::Write);
        self
    }

    /// Ends the connection with RST instead of FIN.
    pub(crate) fn reset(self) {
        SockRef::from(self.stream.tcp()).set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn receive(&mut self) -> Reply {
        self.receive_to("GET")
    }

    /// One reply to a request with this method; a reply to HEAD has no body.
    pub(crate) fn receive_to(&mut self, method: &str) -> Reply {
        let mut interim = Vec::new();
        loop {
            let head = match self.head() {
                Ok(head) => head,
                Err(reply) => return reply,
            };
            let Some(mut response) = parse_head(&head) else { return Reply::Garbage(String::from_utf8_lossy(&head).into()) };
            if response.status < 200 && response.status != 101 {
                interim.push(response.status);
                continue;
            }
            response.interim = interim;
            let bodiless = method == "HEAD" || matches!(response.status, 101 | 204 | 304);
            if !bodiless {
                response.cut = self.body(&mut response).is_none();
            }
            return Reply::Response(response);
        }
    }

    /// Whether the peer ends the connection within the deadline without sending anything more.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && matches!(self.fill(), Err(Missing::Closed | Missing::Reset))
    }

    /// Everything received and not yet read as a reply, after waiting for some more.
    pub(crate) fn grow(&mut self) -> &[u8] {
        let _ended = self.fill();
        &self.buffer
    }

    /// The same without waiting.
    pub(crate) fn grown(&self) -> &[u8] {
        &self.buffer
    }

    /// Through the blank line, or why not.
    fn head(&mut self) -> Result<Vec<u8>, Reply> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                return Ok(self.buffer.drain(..at + 4).collect());
            }
            match self.fill() {
                Ok(()) => {}
                Err(_) if !self.buffer.is_empty() => return Err(Reply::Garbage(String::from_utf8_lossy(&self.buffer).into())),
                Err(Missing::Closed) => return Err(Reply::Closed),
                Err(Missing::Reset) => return Err(Reply::Reset),
                Err(Missing::Silent) => return Err(Reply::Silent),
            }
        }
    }

    /// Fills in body and trailers; `None` when the connection ended first.
    fn body(&mut self, response: &mut Response) -> Option<()> {
        let chunked = response.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
        if chunked {
            loop {
                let line = self.line()?;
                let digits = line.split(';').next()?.trim();
                let size = usize::from_str_radix(digits, 16).ok()?;
                if size == 0 {
                    break;
                }
                self.take(size, &mut response.body)?;
                self.line()?.is_empty().then_some(())?;
            }
            loop {
                match self.line()?.split_once(':') {
                    Some((name, value)) => response.trailers.push((name.into(), value.trim().into())),
                    None => return Some(()),
                }
            }
        } else if let Some(length) = response.header("content-length").map(str::to_owned) {
            self.take(length.parse().ok()?, &mut response.body)
        } else {
            while self.fill().is_ok() {}
            response.body = std::mem::take(&mut self.buffer);
            Some(())
        }
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return Some(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            self.fill().ok()?;
        }
    }

    /// Moves `n` bytes into `to`, or as many as came before the end.
    fn take(&mut self, n: usize, to: &mut Vec<u8>) -> Option<()> {
        let end = to.len() + n;
        loop {
            let have = self.buffer.len().min(end - to.len());
            to.extend(self.buffer.drain(..have));
            if to.len() == end {
                return Some(());
            }
            self.fill().ok()?;
        }
    }

    fn fill(&mut self) -> Result<(), Missing> {
        let mut chunk = [0; 64 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Missing::Closed),
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(Missing::Silent),
            Err(_) => Err(Missing::Reset),
        }
    }
}

fn parse_head(head: &[u8]) -> Option<Response> {
    let text = String::from_utf8_lossy(head).into_owned();
    let mut lines = text.split("\r\n");
    let mut start = lines.next()?.splitn(3, ' ');
    start.next().filter(|version| version.starts_with("HTTP/1."))?;
    let status = start.next()?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(':')).map(|(n, v)| (n.to_owned(), v.trim().to_owned())).collect();
    Some(Response { status, headers, ..Response::default() })
}

pub(super) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
