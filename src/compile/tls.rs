//! TLS: files are read here for the first time, so that a mistake in one is told like any other.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Compiler;
use crate::config::diagnostic::{Path, Problem};
use crate::config::{self, ClientCertificateMode, KeyPair};
use crate::snapshot::{ListenerTls, UpstreamProtocol};
use crate::tls::{
    AskedFor, ClientCa, ClientSettings, ClientTls, FileFault, Pair, PairFiles, ServerFiles, ServerTls, TlsMetrics, Verification,
};

impl Compiler<'_> {
    pub(super) fn listener_tls(
        &mut self,
        listener: &config::Listener,
        tls: &config::ListenerTls,
        path: &Path,
    ) -> Option<ListenerTls> {
        let at = path.key("certificates");
        if tls.certificates.0.is_empty() {
            self.problem(&at, "at least one certificate is needed");
        }
        if tls.max_handshakes == 0 {
            self.problem(&path.key("max_handshakes"), "must be at least 1");
        }
        let (mut certificates, mut pairs) = (Vec::new(), Vec::new());
        for (i, written) in tls.certificates.0.iter().enumerate() {
            let files = pair_files(written);
            match Pair::load(&files) {
                Ok(pair) => pairs.push(pair),
                Err(fault) => self.pair_fault(&fault, &files, &at.index(i)),
            }
            if certificates.contains(&files) {
                self.problem(&at.index(i), "this certificate is there already");
            }
            certificates.push(files);
        }
        let client_ca = tls.client_certificates.as_ref().map(client_ca);
        let verifier = client_ca.as_ref().map(ClientCa::load).transpose();
        let verifier = verifier.map_err(|fault| self.problem(&path.key("client_certificates").key("ca"), fault.to_string()));
        if pairs.len() != certificates.len() || pairs.is_empty() {
            return None;
        }
        let alpn = listener.protocols.0.iter().map(|protocol| match protocol {
            config::Protocol::Http1 => b"http/1.1".to_vec(),
            config::Protocol::Http2 => b"h2".to_vec(),
        });
        let mut alpn: Vec<_> = alpn.collect();
        // Whatever the order in the file: a client that can speak both is better served by HTTP/2.
        alpn.sort_by_key(|protocol| protocol != b"h2");
        let files = ServerFiles { listener: listener.name.as_str().into(), certificates, client_ca, alpn };
        let server = ServerTls::new(files, pairs, verifier.ok()?, self.ground.sessions.clone());
        Some(ListenerTls {
            server: server.map(Arc::new).map_err(|problem| self.problem(path, problem.to_string())).ok()?,
            handshakes: Semaphore::new(usize::try_from(tls.max_handshakes).unwrap_or(MAX_PERMITS).min(MAX_PERMITS)),
            metrics: TlsMetrics::new(&self.ground.registry, &listener.name),
        })
    }

    /// How an upstream is spoken to over TLS, and the name that its certificate must be for instead of the URL's host.
    pub(super) fn upstream_tls(
        &mut self,
        tls: &config::UpstreamTls,
        protocol: UpstreamProtocol,
        path: &Path,
    ) -> Option<Arc<ClientTls>> {
        self.client_tls(tls, offered(protocol), path)
    }

    /// Our side of TLS, where these protocols may be spoken inside.
    pub(super) fn client_tls(&mut self, tls: &config::UpstreamTls, alpn: Vec<Vec<u8>>, path: &Path) -> Option<Arc<ClientTls>> {
        let at = path.key("server_name");
        let server_name = tls.server_name.as_ref().map(|name| self.server_name(name, &at));
        let settings = ClientSettings {
            ca: tls.ca.as_ref().map(PathBuf::from),
            client_cert: tls.client_cert.as_ref().map(pair_files),
            server_name: server_name.flatten(),
            verification: if tls.insecure { Verification::None } else { Verification::Full },
            alpn,
        };
        let files = settings.client_cert.clone();
        match ClientTls::load(settings) {
            Ok(tls) => Some(Arc::new(tls)),
            Err(faults) => {
                for fault in &faults {
                    match &files {
                        Some(files) if files.cert == fault.file || files.key == fault.file => {
                            self.pair_fault(fault, files, &path.key("client_cert"));
                        }
                        _ => self.problem(&path.key("ca"), fault.to_string()),
                    }
                }
                None
            }
        }
    }

    pub(super) fn server_name(&mut self, name: &str, path: &Path) -> Option<ServerName<'static>> {
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        match ServerName::try_from(bare.to_owned()) {
            Ok(name) => Some(name),
            Err(_) => {
                self.problem(path, format!("no certificate can be for `{name}`"));
                None
            }
        }
    }

    /// What is about clients' certificates means nothing while nobody asks for one.
    pub(super) fn certificates_are_asked_for(&mut self, path: &Path) {
        let asks = |listener: &config::Listener| listener.tls.as_ref().is_some_and(|tls| tls.client_certificates.is_some());
        if (self.is_incomplete)("listeners") || self.config.listeners.iter().any(asks) {
            return;
        }
        let problem = Problem::new(path.clone(), "no listener asks clients for a certificate");
        self.problems.push(problem.hint("add `tls.client_certificates` to one"));
    }

    fn pair_fault(&mut self, fault: &FileFault, files: &PairFiles, path: &Path) {
        let key = if fault.file == files.key && files.key != files.cert { "key" } else { "cert" };
        self.problem(&path.key(key), fault.to_string());
    }
}

/// What we can speak to upstreams over TLS, best first.
fn offered(protocol: UpstreamProtocol) -> Vec<Vec<u8>> {
    let (http1, http2) = (b"http/1.1".to_vec(), b"h2".to_vec());
    match protocol {
        UpstreamProtocol::Http1 => vec![http1],
        UpstreamProtocol::Http2 => vec![http2],
        UpstreamProtocol::Auto => vec![http2, http1],
    }
}

fn pair_files(written: &KeyPair) -> PairFiles {
    PairFiles { cert: PathBuf::from(&written.cert), key: PathBuf::from(&written.key) }
}

fn client_ca(written: &config::ClientCertificates) -> ClientCa {
    ClientCa {
        file: PathBuf::from(&written.ca),
        asked: match written.mode {
            ClientCertificateMode::Optional => AskedFor::Optional,
            ClientCertificateMode::Required => AskedFor::Required,
        },
    }
}

/// As many as a semaphore can have, and more than there can be.
const MAX_PERMITS: usize = Semaphore::MAX_PERMITS;
