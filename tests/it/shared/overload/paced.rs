//! Loads of so many requests a second, whatever becomes of them, and what was seen of each request.

use crate::harness::{DEADLINE, together};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Requests for a path of a gateway, on one connection.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) gateway: SocketAddr,
    pub(super) path: String,
    pub(super) per_second: f64,
}

/// A request: between these two times, in µs since 1970, it was decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) status: u16,
}

/// Runs all sources for a time. A source that can't keep up leaves requests out rather than making them all up later.
pub(super) fn paced(sources: &[Source], time: Duration) -> Vec<Vec<Seen>> {
    together(sources.len(), |i| run(&sources[i], time))
}

fn run(source: &Source, time: Duration) -> Vec<Seen> {
    let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", source.path);
    let mut stream = TcpStream::connect(source.gateway).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let (start, mut seen, mut due, mut last) = (Instant::now(), Vec::new(), 0.0, Duration::ZERO);
    while last < time {
        let now = start.elapsed();
        due = (due + (now - last).as_secs_f64() * source.per_second).min(source.per_second / 4.0);
        last = now;
        let batch = due as usize;
        if batch > 0 {
            due -= batch as f64;
            let sent = unix_micros();
            // Pipelined: a system call for each would cost as much as the gateways do.
            stream.write_all(request.repeat(batch).as_bytes()).unwrap();
            receive(&mut stream, batch, |status| seen.push(Seen { sent, received: unix_micros(), status }));
        }
        thread::sleep(TICK.saturating_sub(start.elapsed() - now));
    }
    seen
}

/// Reads so many responses of known length. The harness's client looks at everything, which takes longer than the gateway does.
fn receive(stream: &mut TcpStream, count: usize, mut status: impl FnMut(u16)) {
    let (mut text, mut received, mut buffer) = (String::new(), 0, [0; 8192]);
    while received < count {
        let n = stream.read(&mut buffer).expect("a response within the deadline");
        assert!(n > 0, "the gateway has closed the connection");
        text.push_str(std::str::from_utf8(&buffer[..n]).expect("responses are ASCII"));
        while let Some(head) = text.find("\r\n\r\n") {
            let length = text[..head].lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
            let end = head + 4 + length.parse::<usize>().unwrap();
            if text.len() < end {
                break;
            }
            status(text["HTTP/1.1 ".len()..][..3].parse().unwrap());
            received += 1;
            text.drain(..end);
        }
    }
}

fn unix_micros() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

const TICK: Duration = Duration::from_millis(10);
