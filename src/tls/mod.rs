//! What both sides of the gateway need to speak TLS: [`ServerTls`] towards clients, [`ClientTls`] towards upstreams, made from files
//! and made anew when those change.
//!
//! Separate from `server` and `upstream`, because a configuration is compiled down to these two, and whoever follows files refreshes
//! them without compiling anything: certificates must be renewed also while `gateway.yaml` is broken. It knows nothing of sockets,
//! requests or the configuration's words. One provider of cryptography (aws-lc) serves all, TLS 1.2 and 1.3.

mod client;
mod files;
mod metrics;
mod pair;
mod resolver;
mod roots;
mod server;
mod sessions;

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};

pub use client::{ClientSettings, ClientTls, Identity, Verification};
pub use files::{FileFault, FileProblem, Held, read_small};
pub use metrics::{HandshakeFault, TlsMetrics};
pub use pair::{Pair, PairFiles};
pub use roots::{Roots, parse_roots, public_roots};
pub use server::{AskedFor, ClientCa, ServerFiles, ServerTls};
pub use sessions::SessionCache;

/// What became of files that have changed.
#[derive(Debug)]
pub struct Refreshed {
    /// The first of them: the certificate of a pair.
    pub file: PathBuf,
    /// Whether they are in force now; what was before stays in force otherwise.
    pub result: Result<(), FileFault>,
}

/// A certificate in use, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InUse {
    /// Where it came from.
    pub file: PathBuf,
    /// The last second it is valid in, since the Unix epoch.
    pub not_after: u64,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
