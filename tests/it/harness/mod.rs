//! What the black-box tests stand on: the real binary, a scripted upstream and clients that send exact bytes.
//!
//! Everything is blocking `std`, one thread per connection: a test reads from top to bottom. Nothing here uses
//! the gateway's own code or its HTTP libraries, so an error in those cannot hide itself. Its TLS library is used at both ends; what
//! OpenSSL thinks of it is tested too.
//!
//! * [`Gateway`] starts `tollgate run` on free ports and ends it by process id.
//! * [`Origin`] is an upstream that keeps every byte it was sent, framed strictly.
//! * [`H2Origin`] is one that speaks HTTP/2, frame by frame.
//! * [`Dns`] is a name server that says what a test wants.
//! * [`Client`] speaks HTTP/1 and [`H2`] HTTP/2, byte by byte.
//! * [`RedisServer`] starts `redis-server`, or what `TOLLGATE_REDIS_SERVER` names, on a free port and ends it by process id.
//! * [`Skew`] gives a gateway a wrong clock.
//! * [`Table`] runs every row of a table and reports all that failed.
//!
//! No test sleeps to be right: it waits for a condition with [`until`].

#[path = "../../model/chance.rs"]
mod chance;
mod client;
mod dns;
mod fault_proxy;
mod gateway;
mod h2;
mod h2_origin;
pub(crate) mod hpack;
mod origin;
pub(crate) mod redis;
mod redis_cluster;
mod redis_sentinel;
mod skew;
mod table;
mod tls;

pub(crate) use chance::Random;
pub(crate) use client::{Client, Reply, Response, exchange, field, fields};
pub(crate) use dns::{Dns, Says};
pub(crate) use fault_proxy::{FaultProxy, Network};
pub(crate) use gateway::{Gateway, over_http2, run};
pub(crate) use h2::{H2, H2Reply, PREFACE, code, flag, get, kind, setting};
pub(crate) use h2_origin::{Call, H2Origin, H2Seen, Hello, Piece};
pub(crate) use hpack::encode as header_block;
pub(crate) use origin::{Ending, Exchange, Exchange as OriginExchange, Next, Origin, Seen, Unreachable};
pub(crate) use redis::{RedisClient, RedisServer};
pub(crate) use redis_cluster::Cluster;
pub(crate) use redis_sentinel::{MASTER, Sentinels};
pub(crate) use skew::Skew;
pub(crate) use table::{Sees, Table, fits, reached};
pub(crate) use tls::{Authority, Dial, Leaf, Serve, Wire, fingerprint};

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before a test calls it missing. Generous: the machine may be busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(8);

/// Waits until `condition` holds; panics with `what` when it does not within [`DEADLINE`].
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    assert!(happens(DEADLINE, &mut condition), "not within {DEADLINE:?}: {what}");
}

/// Whether `condition` comes true within `limit`.
pub(crate) fn happens(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(3));
    }
    true
}

/// A door that is closed until a test opens it; scripted upstreams wait behind it.
#[derive(Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn wait(&self) {
        let opened = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(opened, DEADLINE, |open| !*open).unwrap());
    }
}

/// Runs `job(0)`…`job(n - 1)` at the same moment on `n` threads and collects what they return.
pub(crate) fn together<T: Send>(n: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = std::sync::Barrier::new(n);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..n)
            .map(|i| {
                let (start, job) = (&start, &job);
                scope.spawn(move || {
                    start.wait();
                    job(i)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker of `together` panicked")).collect()
    })
}

/// The bytes of `text` with a request line's CRLFs: `\n` in a Rust literal becomes `\r\n` on the wire.
pub(crate) fn crlf(text: &str) -> Vec<u8> {
    text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes()
}

/// An API key as the configuration stores it.
pub(crate) fn hashed(key: &str) -> String {
    let digest = sha2::Digest::finalize(sha2::Digest::chain_update(<sha2::Sha256 as sha2::Digest>::new(), key));
    digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
