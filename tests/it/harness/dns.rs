//! A scripted name server over UDP and TCP: each name says what a test has told it to, and may change its mind.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a name says when it is asked.
#[derive(Debug, Clone)]
pub(crate) enum Says {
    /// These addresses, for so many seconds.
    Addresses(Vec<IpAddr>, u32),
    /// These services: priority, weight, port and host.
    Services(Vec<(u16, u16, u16, String)>, u32),
    /// That it is another name.
    Alias(String, u32),
    /// That it does not exist.
    NoName,
    /// That it has no such record.
    Empty,
    /// That the server can't say.
    ServFail,
    /// Nothing.
    Silence,
}

/// The server. Names it was not told of don't exist.
pub(crate) struct Dns {
    addr: SocketAddr,
    zone: Arc<Zone>,
}

#[derive(Default)]
struct Zone {
    names: Mutex<BTreeMap<String, Says>>,
    asked: Mutex<Vec<(String, u16, bool)>>,
    stopped: AtomicBool,
}

impl Dns {
    pub(crate) fn start() -> Self {
        // A port that is free in both worlds.
        let (udp, tcp) = (0..100)
            .find_map(|_| {
                let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
                let tcp = TcpListener::bind(udp.local_addr().unwrap()).ok()?;
                Some((udp, tcp))
            })
            .unwrap();
        let addr = udp.local_addr().unwrap();
        let zone = Arc::new(Zone::default());
        udp.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let theirs = Arc::clone(&zone);
        thread::spawn(move || theirs.serve_udp(&udp));
        let theirs = Arc::clone(&zone);
        thread::spawn(move || theirs.serve_tcp(&tcp));
        Self { addr, zone }
    }

    /// What a name says from now on.
    pub(crate) fn say(&self, name: &str, says: Says) {
        self.zone.names.lock().unwrap().insert(name.to_owned(), says);
    }

    /// Addresses that are good for no time at all, so that the gateway's lower bound decides.
    pub(crate) fn addresses(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.say(name, Says::Addresses(addresses, 0));
    }

    /// `dns:` for a gateway that asks this server, and often.
    pub(crate) fn settings(&self) -> String {
        format!("dns: {{ servers: '{}', min_ttl: 30ms, timeout: 400ms }}", self.addr)
    }

    /// How often a name was asked for.
    pub(crate) fn asked(&self, name: &str) -> usize {
        self.zone.asked.lock().unwrap().iter().filter(|(asked, ..)| asked == name).count()
    }

    /// Whether a question came over TCP.
    pub(crate) fn was_asked_over_tcp(&self) -> bool {
        self.zone.asked.lock().unwrap().iter().any(|(.., over_tcp)| *over_tcp)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.zone.stopped.store(true, Ordering::Relaxed);
        drop(std::net::TcpStream::connect(self.addr));
    }
}

impl Zone {
    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while !self.stopped.load(Ordering::Relaxed) {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            if let Some(mut answer) = self.answer(&buffer[..length], false) {
                if answer.len() > MOST_OVER_UDP {
                    answer = truncated(&buffer[..length]);
                }
                drop(socket.send_to(&answer, from));
            }
        }
    }

    fn serve_tcp(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let (Ok(mut stream), zone) = (stream, Arc::clone(&self)) else { continue };
            thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                    if stream.read_exact(&mut question).is_err() {
                        return;
                    }
                    if let Some(answer) = zone.answer(&question, true) {
                        let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                        drop(stream.write_all(&[&length[..], &answer].concat()));
                    }
                }
            });
        }
    }

    fn answer(&self, question: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
        let (name, kind, end) = asked(question)?;
        self.asked.lock().unwrap().push((name.clone(), kind, over_tcp));
        let says = self.names.lock().unwrap().get(&name).cloned().unwrap_or(Says::NoName);
        let (code, records) = match says {
            Says::Silence => return None,
            Says::NoName => (3, Vec::new()),
            Says::ServFail => (2, Vec::new()),
            Says::Empty => (0, Vec::new()),
            Says::Addresses(addresses, ttl) => {
                (0, addresses.iter().filter_map(|address| of_address(*address, kind, ttl)).collect())
            }
            Says::Services(services, ttl) if kind == SRV => {
                (0, services.iter().map(|service| of_service(service, ttl)).collect())
            }
            Says::Services(..) => (0, Vec::new()),
            Says::Alias(target, ttl) => {
                let mut records = vec![record(&[0xc0, 12], CNAME, ttl, &written(&target))];
                if let Some(Says::Addresses(addresses, ttl)) = self.names.lock().unwrap().get(&target) {
                    let at = |address: &IpAddr| {
                        let data = data_of(*address, kind)?;
                        Some(record(&written(&target), kind, *ttl, &data))
                    };
                    records.extend(addresses.iter().filter_map(at));
                }
                (0, records)
            }
        };
        let mut answer = head(question, code, u16::try_from(records.len()).unwrap());
        answer.extend(&question[12..end]);
        answer.extend(records.concat());
        Some(answer)
    }
}

/// Only the question, and the bit that says that there is more over TCP.
fn truncated(question: &[u8]) -> Vec<u8> {
    let (_, _, end) = asked(question).unwrap();
    let mut answer = head(question, 0, 0);
    answer[2] |= 2;
    answer.extend(&question[12..end]);
    answer
}

/// The name in lower case and the type that are asked for, and where the question ends.
fn asked(message: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    Some((labels.join("."), kind, at + 4))
}

fn head(question: &[u8], code: u8, answers: u16) -> Vec<u8> {
    let [high, low] = answers.to_be_bytes();
    vec![question[0], question[1], 0x81, 0x80 | code, 0, 1, high, low, 0, 0, 0, 0]
}

fn of_address(address: IpAddr, kind: u16, ttl: u32) -> Option<Vec<u8>> {
    Some(record(&[0xc0, 12], kind, ttl, &data_of(address, kind)?))
}

fn data_of(address: IpAddr, kind: u16) -> Option<Vec<u8>> {
    match (address, kind) {
        (IpAddr::V4(address), A) => Some(address.octets().to_vec()),
        (IpAddr::V6(address), AAAA) => Some(address.octets().to_vec()),
        _ => None,
    }
}

fn of_service((priority, weight, port, host): &(u16, u16, u16, String), ttl: u32) -> Vec<u8> {
    let numbers = [*priority, *weight, *port].map(u16::to_be_bytes).concat();
    record(&[0xc0, 12], SRV, ttl, &[numbers, written(host)].concat())
}

fn record(name: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    [name, &kind.to_be_bytes(), &[0, 1], &ttl.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

fn written(name: &str) -> Vec<u8> {
    let labels = name
        .split('.')
        .filter(|label| !label.is_empty())
        .flat_map(|label| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const MOST_OVER_UDP: usize = 512;
