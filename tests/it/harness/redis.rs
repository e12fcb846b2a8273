//! A Redis server of a test's own, and a client that speaks its protocol byte by byte.

use super::{DEADLINE, happens};
use redis::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A server on a free port, with nothing on disk but its log. Killed by its id when dropped.
pub(crate) struct RedisServer {
    child: Child,
    dir: TempDir,
    port: u16,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts one, and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more options, as on its command line.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        // Between finding a free port and listening on it somebody else may have taken it.
        (0..5).find_map(|_| Self::try_start(&options)).expect("the server did not start; is it installed?")
    }

    /// One attempt; for options that may be in somebody's way themselves.
    pub(crate) fn try_start_with(options: &[&str]) -> Option<Self> {
        Self::try_start(&options.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn try_start(options: &[String]) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = spawn(port, &dir, options);
        let mut server = Self { child, dir, port, options: options.to_vec() };
        server.answers().then_some(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Ends the process at once. The port stays this server's for [`RedisServer::restart`].
    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Starts it again on the same port, empty.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.port, &self.dir, &self.options);
        assert!(self.answers(), "the server did not come back on port {}", self.port);
    }

    /// Freezes the process: connections stay open and nothing answers.
    pub(crate) fn stop_process(&self) {
        self.signal("STOP");
    }

    pub(crate) fn cont_process(&self) {
        self.signal("CONT");
    }

    /// Sends one command on a connection of its own and returns the reply as text, one line per element.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        text(&self.client().ask(words))
    }

    /// The same of a server that may close the connection instead, as sentinels make them do.
    pub(crate) fn try_command(&self, words: &[&str]) -> Option<String> {
        let mut client = RedisClient::connect(self.port).ok()?;
        client.send(words).ok()?;
        client.try_reply().ok().map(|reply| text(&reply))
    }

    pub(crate) fn client(&self) -> RedisClient {
        RedisClient::connect(self.port).expect("the server takes connections")
    }

    fn answers(&mut self) -> bool {
        let port = self.port;
        let pongs = |port| {
            let Ok(mut client) = RedisClient::connect(port) else { return false };
            client.send(&["PING"]).is_ok() && client.try_reply().is_ok_and(|reply| text(&reply) == "PONG")
        };
        let child = &mut self.child;
        let answered = happens(DEADLINE, || child.try_wait().unwrap().is_some() || pongs(port));
        answered && child.try_wait().unwrap().is_none()
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What is started: `redis-server`, or what `TOLLGATE_REDIS_SERVER` names, so that the tests run against other servers and versions too.
/// As a sentinel it is told so on its command line.
pub(super) fn server_command() -> Command {
    Command::new(std::env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into()))
}

fn spawn(port: u16, dir: &TempDir, options: &[String]) -> Child {
    server_command()
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--dir", dir.path().to_str().unwrap(), "--logfile", "redis.log"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed (`make test` does that), or TOLLGATE_REDIS_SERVER names another")
}

/// A connection that sends what it is told and reads replies in order, so that a test can send many before it reads.
pub(crate) struct RedisClient {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl RedisClient {
    pub(crate) fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(Self { reader: BufReader::with_capacity(1 << 16, stream.try_clone()?), stream })
    }

    /// Sends one command and waits for its reply.
    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Value {
        self.send(words).unwrap();
        self.reply()
    }

    pub(crate) fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        put(&mut bytes, words);
        self.stream.write_all(&bytes)
    }

    /// Sends what [`put`] has collected.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn reply(&mut self) -> Value {
        self.try_reply().expect("a reply within the deadline")
    }

    fn try_reply(&mut self) -> std::io::Result<Value> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let Some((kind, rest)) = line.trim_end().split_at_checked(1) else {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        };
        Ok(match kind {
            "+" => Value::SimpleString(rest.to_owned()),
            ":" => Value::Int(rest.parse().unwrap()),
            "$" if rest == "-1" => Value::Nil,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.reader.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Value::BulkString(bytes)
            }
            "*" if rest == "-1" => Value::Nil,
            "*" => Value::Array((0..rest.parse::<usize>().unwrap()).map(|_| self.try_reply()).collect::<Result<_, _>>()?),
            // Errors are for a test to look at too.
            _ => Value::SimpleString(line.trim_end().to_owned()),
        })
    }
}

/// Appends one command to `bytes`.
pub(crate) fn put<W: AsRef<[u8]>>(bytes: &mut Vec<u8>, words: &[W]) {
    write!(bytes, "*{}\r\n", words.len()).unwrap();
    for word in words.iter().map(AsRef::as_ref) {
        write!(bytes, "${}\r\n", word.len()).unwrap();
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// A reply as text: one line per element, errors with the `-` they came with, nothing for nil.
pub(crate) fn text(reply: &Value) -> String {
    match reply {
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Array(elements) => elements.iter().fold(String::new(), |mut lines: String, element| {
            if !lines.is_empty() {
                lines.push('\n');
            }
            lines + &text(element)
        }),
        _ => String::new(),
    }
}
