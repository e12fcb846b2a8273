//! TLS towards clients.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

use super::files::{Digest, FileFault, FileProblem, Held};
use super::pair::{Pair, PairFiles};
use super::resolver::ByName;
use super::roots::parse_roots;
use super::sessions::{SessionCache, Sessions};
use super::{InUse, Refreshed, provider};

/// What a listener shows and asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// The listener's name.
    pub listener: Box<str>,
    /// Certificates, the default first.
    pub certificates: Vec<PairFiles>,
    /// Who vouches for clients, if they are asked.
    pub client_ca: Option<ClientCa>,
    /// What is spoken inside, best first.
    pub alpn: Vec<Vec<u8>>,
}

/// Who vouches for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCa {
    /// Authorities, in PEM form.
    pub file: PathBuf,
    /// What of clients without a certificate.
    pub asked: AskedFor,
}

/// Whether clients must have a certificate. A bad one is refused either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedFor {
    /// They may.
    Optional,
    /// They must.
    Required,
}

/// Checks the certificates of clients.
pub(super) type Verifier = Arc<dyn ClientCertVerifier>;

/// A listener's side of TLS, as its files are now.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    sessions: SessionCache,
    state: Mutex<State>,
    current: ArcSwap<ServerConfig>,
}

#[derive(Debug)]
struct State {
    pairs: Vec<Held<Pair>>,
    client_ca: Option<Held<Verifier>>,
    sessions: Arc<Sessions>,
}

impl ClientCa {
    /// Reads the authorities.
    ///
    /// # Errors
    /// When the file can't be read or used.
    pub fn load(&self) -> Result<Held<Verifier>, FileFault> {
        Held::load(&[&self.file], |contents| self.verifier(contents))
    }

    fn verifier(&self, contents: &[Vec<u8>]) -> Result<Verifier, FileFault> {
        let pem = contents.first().map(Vec::as_slice).unwrap_or_default();
        let roots = parse_roots(pem).map_err(|problem| problem.in_file(&self.file))?;
        let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let builder = match self.asked {
            AskedFor::Optional => builder.allow_unauthenticated(),
            AskedFor::Required => builder,
        };
        builder.build().map_err(|error| FileProblem::Roots(error).in_file(&self.file))
    }
}

impl ServerTls {
    /// From what has been read of the files, in their order.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn new(
        files: ServerFiles,
        pairs: Vec<Held<Pair>>,
        client_ca: Option<Held<Verifier>>,
        sessions: SessionCache,
    ) -> Result<Self, FileProblem> {
        let own = sessions.sessions(files.session_name(client_ca.as_ref())).map_err(FileProblem::Randomness)?;
        let state = State { pairs, client_ca, sessions: own };
        let current = ArcSwap::from_pointee(files.config(&state));
        Ok(Self { files, sessions, state: Mutex::new(state), current })
    }

    /// What a handshake begun now goes by.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Every file that matters.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let pairs = self.files.certificates.iter().flat_map(PairFiles::both).map(Path::to_owned);
        pairs.chain(self.files.client_ca.iter().map(|ca| ca.file.clone())).collect()
    }

    /// Reads the files again. What has changed and can be used is in force for the next handshake; connections go on. `now` is in
    /// seconds since the Unix epoch.
    pub fn refresh(&self, now: u64) -> Vec<Refreshed> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut refreshed = Vec::new();
        for (held, files) in state.pairs.iter_mut().zip(&self.files.certificates) {
            let result = held.refresh(&files.both(), |contents, before| Pair::again(files, contents, before, now));
            refreshed.extend(result.map(|result| Refreshed { file: files.cert.clone(), result }));
        }
        if let Some(ca) = &self.files.client_ca {
            refreshed.extend(self.refresh_ca(&mut state, ca).map(|result| Refreshed { file: ca.file.clone(), result }));
        }
        if refreshed.iter().any(|refreshed| refreshed.result.is_ok()) {
            self.current.store(Arc::new(self.files.config(&state)));
        }
        refreshed
    }

    fn refresh_ca(&self, state: &mut State, ca: &ClientCa) -> Option<Result<(), FileFault>> {
        let held = state.client_ca.as_mut()?;
        let result = held.refresh(&[&ca.file], |contents, _| ca.verifier(contents))?;
        Some(result.and_then(|()| {
            // Whom only the old authorities vouched for shall not come back by a session.
            let name = self.files.session_name(state.client_ca.as_ref());
            let problem = |error| FileProblem::Randomness(error).in_file(&ca.file);
            state.sessions = self.sessions.sessions(name).map_err(problem)?;
            Ok(())
        }))
    }

    /// The certificates in use.
    #[must_use]
    pub fn in_use(&self) -> Vec<InUse> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = state.pairs.iter().zip(&self.files.certificates);
        pairs.map(|(held, files)| InUse { file: files.cert.clone(), not_after: held.value.not_after }).collect()
    }
}

impl ServerFiles {
    fn config(&self, state: &State) -> ServerConfig {
        let versions = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = versions.expect("the provider has cipher suites for both versions of TLS");
        let builder = match &state.client_ca {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(&verifier.value)),
            None => builder.with_no_client_auth(),
        };
        let resolver = ByName::new(state.pairs.iter().map(|held| &held.value));
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols.clone_from(&self.alpn);
        config.ticketer = Arc::clone(&state.sessions.tickets);
        config.session_storage = Arc::clone(&state.sessions.by_id);
        config
    }

    /// Sessions are shared with later configurations of the same listener that ask clients for the same.
    fn session_name(&self, ca: Option<&Held<Verifier>>) -> Digest {
        let mut digest = Sha256::new();
        digest.update(self.listener.as_bytes());
        if let (Some(held), Some(ClientCa { asked, .. })) = (ca, &self.client_ca) {
            digest.update([match asked {
                AskedFor::Optional => 1,
                AskedFor::Required => 2,
            }]);
            digest.update(held.tried);
        }
        digest.finalize().into()
    }
}
