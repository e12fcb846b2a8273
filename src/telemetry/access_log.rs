//! One line per request, off the hot path.
//!
//! A worker writes its lines into a buffer of its own and hands full buffers to one writer thread through a bounded queue. When
//! the writer can't keep up (a slow disk, a stopped pipe), whole buffers are dropped and their lines counted: requests never wait.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::SystemTime;

use super::metrics::{Counter, Lane};

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A JSON object.
    Json,
    /// Words.
    Text,
}

/// What a line says. Keys, tokens, queries and whole headers are not among it.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// When the request's head was read.
    pub time: SystemTime,
    /// The method.
    pub method: &'a str,
    /// The path's normal form, without the query, which may carry a key.
    pub path: &'a str,
    /// The host.
    pub host: &'a str,
    /// The protocol.
    pub protocol: &'static str,
    /// The status sent.
    pub status: u16,
    /// What a gRPC call came to.
    pub grpc_status: Option<u16>,
    /// Microseconds to the last byte.
    pub duration_us: u64,
    /// The client's address, or as much of it as is told.
    pub address: IpAddr,
    /// The length of the prefix that is told.
    pub prefix: u8,
    /// What stands for the rest of the address: 48 bits.
    pub client_hash: Option<u64>,
    /// The known client.
    pub client: Option<&'a str>,
    /// The beginning of the digest of the key that it presented.
    pub key: Option<&'a str>,
    /// The tier.
    pub tier: &'a str,
    /// The route.
    pub route: Option<&'a str>,
    /// The upstream, if several share the route.
    pub upstream: Option<&'a str>,
    /// The limit that refused.
    pub limited_by: Option<&'a str>,
    /// A shadow limit that would have refused.
    pub shadow: Option<&'a str>,
    /// Microseconds that the request waited for its place.
    pub delayed_us: u64,
    /// How often upstream was asked.
    pub tries: u32,
    /// What the connection became.
    pub upgraded: Option<Upgraded<'a>>,
    /// Whether the client left before the end.
    pub aborted: bool,
    /// Whether the upstream failed within the response.
    pub broken_off: bool,
}

/// What is said of a connection that became something else.
#[derive(Debug, Clone, Copy)]
pub struct Upgraded<'a> {
    /// The protocol: one of the route's.
    pub protocol: &'a str,
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client.
    pub sent: u64,
    /// Why it is over.
    pub ended: &'static str,
}

/// A worker's end.
#[derive(Debug)]
pub struct Sink {
    queue: SyncSender<Batch>,
    buffer: RefCell<Batch>,
    clock: RefCell<(u64, String)>,
    dropped: Counter,
    lane: Lane,
}

#[derive(Debug, Default)]
struct Batch {
    text: Vec<u8>,
    lines: u64,
}

/// The writer's end of the queue.
#[derive(Debug)]
pub struct Writer {
    batches: Receiver<Batch>,
}

/// A queue of batches: workers put in through [`Queue::sink`], the [`Writer`] takes out.
#[derive(Debug, Clone)]
pub struct Queue(SyncSender<Batch>);

/// A new queue.
#[must_use]
pub fn queue() -> (Queue, Writer) {
    let (sender, batches) = sync_channel(QUEUED_BATCHES);
    (Queue(sender), Writer { batches })
}

impl Queue {
    /// A worker's end; `dropped` counts what the writer could not take.
    #[must_use]
    pub fn sink(&self, dropped: Counter, lane: Lane) -> Sink {
        Sink { queue: self.0.clone(), buffer: RefCell::default(), clock: RefCell::new((u64::MAX, String::new())), dropped, lane }
    }
}

impl Sink {
    /// Adds a line; hands the buffer over when it is full.
    pub fn log(&self, format: Format, line: &Line<'_>) {
        let mut batch = self.buffer.borrow_mut();
        let mut clock = self.clock.borrow_mut();
        let since = line.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if clock.0 != since.as_secs() {
            *clock = (since.as_secs(), second_text(since.as_secs()));
        }
        match format {
            Format::Json => write_json(&mut batch.text, &clock.1, since.subsec_millis(), line),
            Format::Text => write_text(&mut batch.text, &clock.1, since.subsec_millis(), line),
        }
        batch.lines += 1;
        if batch.text.len() >= BATCH_BYTES {
            self.hand_over(&mut batch);
        }
    }

    /// Hands over what there is. Called by a worker's tick, so that a quiet log is not a late one.
    pub fn flush(&self) {
        let mut batch = self.buffer.borrow_mut();
        if batch.lines > 0 {
            self.hand_over(&mut batch);
        }
    }

    fn hand_over(&self, batch: &mut Batch) {
        let full = std::mem::replace(batch, Batch { text: Vec::with_capacity(BATCH_BYTES + 1024), lines: 0 });
        if let Err(TrySendError::Full(lost) | TrySendError::Disconnected(lost)) = self.queue.try_send(full) {
            self.dropped.add(self.lane, lost.lines);
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Writer {
    /// Writes until every [`Sink`] and [`Queue`] is gone. For a thread of its own.
    pub fn run(self, mut output: Output) {
        for batch in self.batches {
            if output.follow().is_err() || output.file.write_all(&batch.text).and_then(|()| output.file.flush()).is_err() {
                output.failed.add(output.lane, batch.lines);
            }
        }
    }
}

/// Where lines go.
pub struct Output {
    file: Box<dyn Write + Send>,
    /// The file's path and identity; none for the standard streams.
    identity: Option<(PathBuf, u64, u64)>,
    failed: Counter,
    lane: Lane,
}

impl Output {
    /// Opens what `access_log.to` names; `failed` counts lines that could not be written.
    ///
    /// # Errors
    /// When a file can't be opened for appending.
    pub fn open(to: &str, failed: Counter, lane: Lane) -> io::Result<Self> {
        let (file, identity): (Box<dyn Write + Send>, _) = match to {
            "stdout" => (Box::new(io::stdout()), None),
            "stderr" => (Box::new(io::stderr()), None),
            path => {
                let (file, identity) = append(path.into())?;
                (Box::new(file), Some(identity))
            }
        };
        Ok(Self { file, identity, failed, lane })
    }

    /// Opens the file anew if it was moved or removed, as log rotation does it. One look per batch.
    fn follow(&mut self) -> io::Result<()> {
        let Some((path, device, inode)) = &self.identity else { return Ok(()) };
        let still = std::fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (*device, *inode));
        if !still {
            let (file, identity) = append(path.clone())?;
            self.file = Box::new(file);
            self.identity = Some(identity);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("identity", &self.identity).finish_non_exhaustive()
    }
}

fn append(path: PathBuf) -> io::Result<(File, (PathBuf, u64, u64))> {
    let file = OpenOptions::new().create(true).append(true).open(&path)?;
    let meta = file.metadata()?;
    Ok((file, (path, meta.dev(), meta.ino())))
}

fn second_text(unix: u64) -> String {
    let seconds = i64::try_from(unix).unwrap_or_default();
    let Ok(timestamp) = jiff::Timestamp::from_second(seconds) else { return String::new() };
    let text = timestamp.to_string();
    text.trim_end_matches('Z').to_owned()
}

fn write_json(out: &mut Vec<u8>, second: &str, millis: u32, line: &Line<'_>) {
    let _ = write!(out, "{{\"time\":\"{second}.{millis:03}Z\",\"method\":\"");
    json_text(out, line.method);
    out.extend_from_slice(b"\",\"path\":\"");
    json_text(out, line.path);
    out.extend_from_slice(b"\",\"host\":\"");
    json_text(out, line.host);
    let _ = write!(
        out,
        "\",\"protocol\":\"{}\",\"status\":{},\"duration_us\":{},\"address\":\"{}/{}\",\"tier\":\"",
        line.protocol, line.status, line.duration_us, line.address, line.prefix
    );
    json_text(out, line.tier);
    out.push(b'"');
    let optional = [
        ("client", line.client),
        ("key", line.key),
        ("route", line.route),
        ("upstream", line.upstream),
        ("limited_by", line.limited_by),
        ("shadow", line.shadow),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            let _ = write!(out, ",\"{name}\":\"");
            json_text(out, value);
            out.push(b'"');
        }
    }
    if let Some(code) = line.grpc_status {
        let _ = write!(out, ",\"grpc_status\":{code}");
    }
    if let Some(hash) = line.client_hash {
        let _ = write!(out, ",\"client_hash\":\"{hash:012x}\"");
    }
    if line.delayed_us > 0 {
        let _ = write!(out, ",\"delayed_us\":{}", line.delayed_us);
    }
    if line.tries > 1 {
        let _ = write!(out, ",\"tries\":{}", line.tries);
    }
    if let Some(Upgraded { protocol, received, sent, ended }) = line.upgraded {
        out.extend_from_slice(b",\"upgraded\":\"");
        json_text(out, protocol);
        let _ = write!(out, "\",\"received_bytes\":{received},\"sent_bytes\":{sent},\"ended\":\"{ended}\"");
    }
    if line.broken_off {
        out.extend_from_slice(b",\"broken_off\":true");
    }
    out.extend_from_slice(if line.aborted { b",\"aborted\":true}\n" } else { b"}\n" });
}

fn write_text(out: &mut Vec<u8>, second: &str, millis: u32, line: &Line<'_>) {
    let _ = write!(out, "{second}.{millis:03}Z {}/{} {} \"", line.address, line.prefix, line.client.unwrap_or("-"));
    json_text(out, line.method);
    out.push(b' ');
    json_text(out, line.path);
    let _ = write!(
        out,
        " {}\" {} {}us route={} tier={} limited_by={}{}{}",
        line.protocol,
        line.status,
        line.duration_us,
        line.route.unwrap_or("-"),
        line.tier,
        line.limited_by.unwrap_or("-"),
        if line.aborted { " aborted" } else { "" },
        if line.broken_off { " broken_off" } else { "" }
    );
    if let Some(code) = line.grpc_status {
        let _ = write!(out, " grpc_status={code}");
    }
    if line.delayed_us > 0 {
        let _ = write!(out, " delayed={}us", line.delayed_us);
    }
    if line.tries > 1 {
        let _ = write!(out, " tries={}", line.tries);
    }
    if let Some(upstream) = line.upstream {
        out.extend_from_slice(b" upstream=");
        json_text(out, upstream);
    }
    if let Some(Upgraded { protocol, received, sent, ended }) = line.upgraded {
        out.extend_from_slice(b" upgraded=");
        json_text(out, protocol);
        let _ = write!(out, " received={received} sent={sent} ended={ended}");
    }
    if let Some(key) = line.key {
        let _ = write!(out, " key={key}");
    }
    if let Some(hash) = line.client_hash {
        let _ = write!(out, " client_hash={hash:012x}");
    }
    out.push(b'\n');
}

/// Escapes what would end the string or the line, or steer a terminal; cuts what is long.
fn json_text(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if text.len() <= MAX_TEXT && text.bytes().all(plain) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut length = 0;
    for c in text.chars() {
        length += c.len_utf8();
        if length > MAX_TEXT {
            out.extend_from_slice("…".as_bytes());
            return;
        }
        let _ = match c {
            '"' => write!(out, "\\\""),
            '\\' => write!(out, "\\\\"),
            // C0, DEL and C1: an escape sequence must not reach a terminal that shows the log.
            c if c.is_control() => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "{c}"),
        };
    }
}

/// Big enough that handing over costs little per line.
const BATCH_BYTES: usize = 16 << 10;
/// With [`BATCH_BYTES`] this bounds what waits for the writer to about 4 MiB.
const QUEUED_BATCHES: usize = 256;
/// A longer path tells nothing more and would let clients fill the disk.
const MAX_TEXT: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{LOG_DROPPED, Registry};

    fn line(path: &str) -> Line<'_> {
        Line {
            time: SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_042),
            method: "GET",
            path,
            host: "example.com",
            protocol: "HTTP/1.1",
            status: 429,
            grpc_status: None,
            duration_us: 12,
            address: "203.0.113.0".parse().unwrap(),
            prefix: 24,
            client_hash: Some(0xa1),
            client: Some("acme"),
            key: Some("5e884898da28"),
            tier: "pro",
            route: None,
            limited_by: Some("plan"),
            upstream: None,
            shadow: None,
            delayed_us: 0,
            tries: 1,
            upgraded: None,
            aborted: false,
            broken_off: false,
        }
    }

    #[test]
    fn a_line_is_json_whatever_the_client_sends() {
        let nasty = "/a\"b\\c\u{1b}[31m\r\nx\u{9b}é";
        let mut out = Vec::new();
        write_json(&mut out, &second_text(1_700_000_000), 42, &line(nasty));
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        assert!(!text.contains('\u{1b}') && !text.contains('\u{9b}'));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["path"], nasty);
        assert_eq!(value["time"], "2023-11-14T22:13:20.042Z");
        assert_eq!(value["limited_by"], "plan");
        assert_eq!(value["key"], "5e884898da28");
        assert_eq!((&value["address"], &value["client_hash"]), (&"203.0.113.0/24".into(), &"0000000000a1".into()));
    }

    #[test]
    fn what_the_writer_cannot_take_is_dropped_and_counted() {
        let registry = Registry::new(1);
        let dropped = registry.counter(LOG_DROPPED, &[]);
        let (queue, writer) = queue();
        let sink = queue.sink(dropped.clone(), registry.lane(0));
        let long = "/".repeat(1000);
        let lines = 2 * QUEUED_BATCHES * BATCH_BYTES / 1000;
        for _ in 0..lines {
            sink.log(Format::Json, &line(&long));
        }
        assert!(dropped.total() > 0);
        drop((writer, sink, queue));
    }

    #[test]
    fn the_writer_writes_follows_rotation_and_ends() {
        let registry = Registry::new(1);
        let lane = registry.lane(0);
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
        let mut output = Output::open(path.to_str().unwrap(), registry.counter(LOG_DROPPED, &[]), lane).unwrap();
        for _ in 0..2 {
            output.follow().unwrap();
            let mut text = Vec::new();
            write_text(&mut text, &second_text(1_700_000_000), 42, &line("/x"));
            output.file.write_all(&text).unwrap();
            std::fs::rename(&path, &moved).unwrap();
        }
        let (queue, writer) = queue();
        let sink = queue.sink(registry.counter(LOG_DROPPED, &[]), lane);
        sink.log(Format::Text, &line("/y"));
        drop((sink, queue));
        writer.run(output);
        let read = |path| std::fs::read_to_string(path).unwrap();
        let expected = "2023-11-14T22:13:20.042Z 203.0.113.0/24 acme \"GET /x HTTP/1.1\" 429 12us route=- tier=pro limited_by=plan key=5e884898da28 client_hash=0000000000a1\n";
        assert_eq!(read(&moved), expected);
        assert_eq!(read(&path), expected.replace("/x", "/y"));
    }
}
