//! TLS towards upstreams.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::files::{FileFault, Held};
use super::pair::{Pair, PairFiles};
use super::roots::{Roots, load_roots, public_roots, roots_of};
use super::{InUse, Refreshed, provider};

/// What we show an upstream and what it has to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Who vouches for upstreams; the public authorities otherwise.
    pub ca: Option<PathBuf>,
    /// What we show.
    pub client_cert: Option<PairFiles>,
    /// The name in the certificate, if it is not the URL's host.
    pub server_name: Option<ServerName<'static>>,
    /// Whether a certificate is looked at.
    pub verification: Verification,
    /// What may be spoken inside, best first.
    pub alpn: Vec<Vec<u8>>,
}

/// Whether an upstream's certificate is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verification {
    /// It must be valid, for the name, and vouched for.
    Full,
    /// It may be anybody's.
    None,
}

/// An upstream's side of TLS, as its files are now.
#[derive(Debug)]
pub struct ClientTls {
    settings: ClientSettings,
    state: Mutex<State>,
    current: ArcSwap<ClientConfig>,
}

#[derive(Debug)]
struct State {
    ca: Option<Held<Roots>>,
    client_cert: Option<Held<Pair>>,
}

/// Tells settings apart: a connection made with others must not be used.
pub type Identity = [u8; 32];

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn load(settings: ClientSettings) -> Result<Self, Vec<FileFault>> {
        let ca = settings.ca.as_deref().map(load_roots).transpose();
        let client_cert = settings.client_cert.as_ref().map(Pair::load).transpose();
        let state = match (ca, client_cert) {
            (Ok(ca), Ok(client_cert)) => State { ca, client_cert },
            (ca, client_cert) => return Err(ca.err().into_iter().chain(client_cert.err()).collect()),
        };
        let current = ArcSwap::from_pointee(settings.config(&state));
        Ok(Self { settings, state: Mutex::new(state), current })
    }

    /// What a connection made now goes by.
    #[must_use]
    pub fn current(&self) -> Arc<ClientConfig> {
        self.current.load_full()
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// The same for the same settings, and for no others.
    #[must_use]
    pub fn identity(&self) -> Identity {
        // The fields' `Debug` forms are unambiguous: texts are quoted.
        Sha256::digest(format!("{:?}", self.settings)).into()
    }

    /// Every file that matters.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let pair = self.settings.client_cert.iter().flat_map(PairFiles::both).map(std::path::Path::to_owned);
        self.settings.ca.iter().cloned().chain(pair).collect()
    }

    /// Reads the files again. What has changed and can be used is in force for the next connection. `now` is in seconds since the
    /// Unix epoch.
    pub fn refresh(&self, now: u64) -> Vec<Refreshed> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut refreshed = Vec::new();
        if let (Some(held), Some(file)) = (&mut state.ca, &self.settings.ca) {
            let result = held.refresh(&[file], |contents, _| roots_of(file, contents));
            refreshed.extend(result.map(|result| Refreshed { file: file.clone(), result }));
        }
        if let (Some(held), Some(files)) = (&mut state.client_cert, &self.settings.client_cert) {
            let result = held.refresh(&files.both(), |contents, before| Pair::again(files, contents, before, now));
            refreshed.extend(result.map(|result| Refreshed { file: files.cert.clone(), result }));
        }
        if refreshed.iter().any(|refreshed| refreshed.result.is_ok()) {
            self.current.store(Arc::new(self.settings.config(&state)));
        }
        refreshed
    }

    /// The certificate we show, if there is one.
    #[must_use]
    pub fn in_use(&self) -> Option<InUse> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let not_after = state.client_cert.as_ref()?.value.not_after;
        Some(InUse { file: self.settings.client_cert.as_ref()?.cert.clone(), not_after })
    }
}

impl ClientSettings {
    fn config(&self, state: &State) -> ClientConfig {
        let provider = provider();
        let versions = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = versions.expect("the provider has cipher suites for both versions of TLS");
        let builder = match self.verification {
            Verification::Full => {
                let roots = state.ca.as_ref().map_or_else(public_roots, |held| Arc::clone(&held.value));
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
                builder.with_webpki_verifier(verifier.expect("there are roots, and no lists of revoked certificates"))
            }
            Verification::None => builder.dangerous().with_custom_certificate_verifier(Arc::new(BelieveAnybody(provider))),
        };
        let mut config = match &state.client_cert {
            Some(held) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&held.value.key)))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.alpn);
        config
    }
}

/// For `insecure`: whoever answers is believed to be the upstream, if only it has the key of the certificate it shows.
#[derive(Debug)]
struct BelieveAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for BelieveAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
