//! The server behind the proxies: raw HTTP/1.1 with keep-alive, two fixed answers, as cheap as can be.
//!
//! It is written by hand because it shares a core with the load generator: whatever it costs lowers the load that the proxies
//! see. It counts the requests it answers, which proves that a pass-path run went through to the origin and that a
//! denied request did not. It knows nothing of HTTP beyond "a request ends with an empty line": the load sends no bodies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Size of the answer under [`LARGE_PATH`].
pub(crate) const LARGE_BODY: usize = 256 * 1024;
pub(crate) const LARGE_PATH: &str = "/large";
/// Any path but [`LARGE_PATH`] gets the small answer.
pub(crate) const SMALL_PATH: &str = "/small";

/// A running origin on a thread of its own, until the process ends.
pub(crate) struct Origin {
    address: SocketAddr,
    served: Arc<AtomicU64>,
}

impl Origin {
    pub(crate) fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("origin: bind")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let served = Arc::new(AtomicU64::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answers = Arc::new(Answers::new(Arc::clone(&served)));
        std::thread::Builder::new().name("origin".into()).spawn(move || runtime.block_on(accept(listener, answers)))?;
        Ok(Self { address, served })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests answered so far.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

struct Answers {
    small: Vec<u8>,
    large: Vec<u8>,
    served: Arc<AtomicU64>,
}

impl Answers {
    fn new(served: Arc<AtomicU64>) -> Self {
        let small = br#"{"id":"0193e4a2-7c1f","status":"ok","items":[1,2,3,4,5],"message":"answered by the benchmark origin"}"#;
        Self { small: answer(small), large: answer(&vec![b'x'; LARGE_BODY]), served }
    }

    fn to(&self, head: &[u8]) -> &[u8] {
        self.served.fetch_add(1, Ordering::Relaxed);
        if head.strip_prefix(b"GET ").is_some_and(|target| target.starts_with(LARGE_PATH.as_bytes())) {
            &self.large
        } else {
            &self.small
        }
    }
}

fn answer(body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

async fn accept(listener: std::net::TcpListener, answers: Arc<Answers>) {
    let listener = TcpListener::from_std(listener).expect("the runtime is entered and has its IO driver enabled");
    loop {
        match listener.accept().await {
            Ok((conn, _)) => {
                tokio::spawn(serve(conn, Arc::clone(&answers)));
            }
            // Out of file descriptors, most likely; the load generator reports what that did to the run.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Answers requests on one connection until the peer closes it; errors mean that it did.
async fn serve(mut conn: TcpStream, answers: Arc<Answers>) {
    let _ = conn.set_nodelay(true);
    let mut unread = Vec::with_capacity(4096);
    while let Ok(1..) = conn.read_buf(&mut unread).await {
        while let Some(end) = unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            if conn.write_all(answers.to(&unread)).await.is_err() {
                return;
            }
            unread.drain(..end + 4);
        }
    }
}
