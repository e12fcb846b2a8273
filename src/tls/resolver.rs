//! Which certificate a client is shown: the one for the name it asks for, else the first.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::pair::Pair;

/// Certificates by name. Several may be for one name, with keys of different kinds: the first that the client can check is shown.
#[derive(Debug)]
pub(super) struct ByName {
    exact: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    /// By what stands behind `*.`.
    wildcard: HashMap<Box<str>, Vec<Arc<CertifiedKey>>>,
    all: Vec<Arc<CertifiedKey>>,
}

impl ByName {
    pub(super) fn new<'p>(pairs: impl Iterator<Item = &'p Pair>) -> Self {
        let mut by_name = Self { exact: HashMap::new(), wildcard: HashMap::new(), all: Vec::new() };
        for pair in pairs {
            for name in &pair.names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(suffix) => (&mut by_name.wildcard, suffix),
                    None => (&mut by_name.exact, &**name),
                };
                map.entry(name.into()).or_default().push(Arc::clone(&pair.key));
            }
            by_name.all.push(Arc::clone(&pair.key));
        }
        by_name
    }

    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let name = name.map(str::to_ascii_lowercase);
        let named = name.as_deref().and_then(|name| {
            // A wildcard is for one label (RFC 9525 section 6.3).
            let wildcard = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(name).or_else(wildcard)
        });
        let usable = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        named.and_then(|keys| keys.iter().find(usable)).or_else(|| self.all.iter().find(usable)).cloned()
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes())
    }
}
