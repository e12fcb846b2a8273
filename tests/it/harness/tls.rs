//! TLS for tests: authorities that sign what a test needs, clients and servers that check or show it.

use super::DEADLINE;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType, date_time_ymd,
};
use sha2::Digest;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned, SupportedProtocolVersion, version,
};

/// Who signs certificates. Its files are in a directory that goes away with it.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

/// What a certificate is for.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) names: Vec<String>,
    pub(crate) common_name: String,
    pub(crate) uris: Vec<String>,
    /// Seconds since the Unix epoch.
    pub(crate) not_after: u64,
}

impl Leaf {
    /// For these DNS names and addresses, for long.
    pub(crate) fn of(names: &[&str]) -> Self {
        let common_name = names.first().copied().unwrap_or("nobody").to_owned();
        Self { names: names.iter().map(ToString::to_string).collect(), common_name, uris: Vec::new(), not_after: 4_000_000_000 }
    }

    pub(crate) fn until(self, not_after: u64) -> Self {
        Self { not_after, ..self }
    }
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("ca.crt"), issuer.as_ref().pem()).unwrap();
        Self { issuer, dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The file with its own certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// A certificate and its key, in PEM form.
    pub(crate) fn sign(&self, leaf: &Leaf) -> (String, String) {
        let mut params = CertificateParams::new(leaf.names.clone()).unwrap();
        params.distinguished_name.push(DnType::CommonName, leaf.common_name.as_str());
        params.subject_alt_names.extend(leaf.uris.iter().map(|uri| SanType::URI(uri.as_str().try_into().unwrap())));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(leaf.not_after);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Signs and writes `NAME.crt` and `NAME.key`; returns `{ cert: …, key: … }` for a configuration.
    pub(crate) fn issue(&self, name: &str, leaf: &Leaf) -> String {
        let (cert, key) = self.sign(leaf);
        let (cert_file, key_file) = self.files(name);
        // Each whole, as careful people do it.
        for (file, text) in [(&cert_file, cert), (&key_file, key)] {
            let new = file.with_extension("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, file).unwrap();
        }
        format!("{{ cert: '{}', key: '{}' }}", cert_file.display(), key_file.display())
    }

    pub(crate) fn files(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.dir.path().join(format!("{name}.crt")), self.dir.path().join(format!("{name}.key")))
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.as_ref().der().clone()).unwrap();
        Arc::new(roots)
    }

    /// A client that believes this authority and asks for `name`; an address is no name that is sent.
    pub(crate) fn dial(&self, name: &str) -> Dial {
        Dial::new(name, Some(self.roots()))
    }
}

/// How a client shakes hands.
#[derive(Clone)]
pub(crate) struct Dial {
    name: ServerName<'static>,
    roots: Option<Arc<RootCertStore>>,
    show: Option<(String, String)>,
    alpn: Vec<Vec<u8>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    /// Made once, so that sessions are remembered.
    config: Arc<Mutex<Option<Arc<ClientConfig>>>>,
}

impl Dial {
    /// Believes whoever answers.
    pub(crate) fn anybody(name: &str) -> Self {
        Self::new(name, None)
    }

    fn new(name: &str, roots: Option<Arc<RootCertStore>>) -> Self {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let versions = vec![&version::TLS13, &version::TLS12];
        Self { name, roots, show: None, alpn: Vec::new(), versions, config: Arc::default() }
    }

    pub(crate) fn alpn(mut self, protocols: &[&str]) -> Self {
        self.alpn = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        self.anew()
    }

    pub(crate) fn tls12(mut self) -> Self {
        self.versions = vec![&version::TLS12];
        self.anew()
    }

    /// Shows this certificate, in PEM form.
    pub(crate) fn showing(mut self, pair: &(String, String)) -> Self {
        self.show = Some(pair.clone());
        self.anew()
    }

    /// The same without a memory.
    pub(crate) fn anew(self) -> Self {
        Self { config: Arc::default(), ..self }
    }

    fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(self.config.lock().unwrap().get_or_insert_with(|| Arc::new(self.build())))
    }

    fn build(&self) -> ClientConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&self.versions).unwrap();
        let builder = match &self.roots {
            Some(roots) => builder
                .with_webpki_verifier(WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider).build().unwrap()),
            None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody)),
        };
        let mut config = match &self.show {
            Some(pair) => {
                let (chain, key) = parsed(pair);
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.alpn);
        config
    }

    pub(crate) fn shake(&self, mut stream: TcpStream) -> Result<Wire, String> {
        let mut connection = ClientConnection::new(self.config(), self.name.clone()).map_err(|error| error.to_string())?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).map_err(|error| error.to_string())?;
        }
        Ok(Wire::Client(Box::new(StreamOwned::new(connection, stream))))
    }
}

/// How a server shakes hands.
#[derive(Clone)]
pub(crate) struct Serve(Arc<ServerConfig>);

impl Serve {
    /// Shows this certificate; asks for one that `clients` signed, if that is somebody.
    pub(crate) fn showing(pair: &(String, String), clients: Option<&Authority>) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            Some(clients) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(clients.roots(), provider).build().unwrap(),
            ),
            None => builder.with_no_client_auth(),
        };
        let (chain, key) = parsed(pair);
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(Arc::new(config))
    }

    /// Agrees to HTTP/2 where it is offered, whoever speaks then.
    pub(crate) fn preferring_http2(self) -> Self {
        let mut config = Arc::unwrap_or_clone(self.0);
        config.alpn_protocols.insert(0, b"h2".to_vec());
        Self(Arc::new(config))
    }

    /// Speaks no newer version.
    pub(crate) fn tls12(self) -> Self {
        let before = Arc::unwrap_or_clone(self.0);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS12]).unwrap();
        let mut config = builder.with_no_client_auth().with_cert_resolver(before.cert_resolver);
        config.alpn_protocols = before.alpn_protocols;
        Self(Arc::new(config))
    }

    pub(super) fn shake(self, mut stream: TcpStream) -> Result<Wire, String> {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut connection = ServerConnection::new(self.0).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).map_err(|error| error.to_string())?;
        }
        stream.set_read_timeout(None).unwrap();
        Ok(Wire::Server(Box::new(StreamOwned::new(connection, stream)), Manners::Good))
    }
}

fn parsed((cert, key): &(String, String)) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).map(Result::unwrap).collect();
    (chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
}

/// The SHA-256 digest of a certificate in PEM form, in hexadecimal digits.
pub(crate) fn fingerprint(cert: &str) -> String {
    let der = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    sha2::Sha256::digest(&der).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// A connection in clear text or over TLS. Over TLS a read at an end that nobody announced is an error.
pub(crate) enum Wire {
    Plain(TcpStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>, Manners),
}

/// Whether the end of a connection is announced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    Good,
    Bad,
}

impl Wire {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Client(stream) => &stream.sock,
            Self::Server(stream, _) => &stream.sock,
        }
    }

    /// Everything up to the end, and whether that came with a word.
    pub(crate) fn drain(&mut self) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        let ended = self.read_to_end(&mut all);
        (all, ended.is_ok())
    }

    /// Sends a record that is no data: new keys.
    pub(crate) fn change_keys(&mut self) {
        let Self::Server(stream, _) = self else { panic!("no server of TLS") };
        stream.conn.refresh_traffic_keys().unwrap();
        stream.conn.write_tls(&mut stream.sock).unwrap();
    }

    /// Half-closes: nothing more will be sent, and over TLS that is said.
    pub(crate) fn finish(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Client(stream) => stream.conn.send_close_notify(),
            Self::Server(stream, _) => stream.conn.send_close_notify(),
        }
        let _gone = self.flush().and_then(|()| self.tcp().shutdown(Shutdown::Write));
    }

    pub(crate) fn forget_manners(&mut self) {
        if let Self::Server(_, manners) = self {
            *manners = Manners::Bad;
        }
    }

    /// The certificate the server showed, in DER form.
    pub(crate) fn shown(&self) -> Vec<u8> {
        let Self::Client(stream) = self else { panic!("no client of TLS") };
        stream.conn.peer_certificates().unwrap()[0].to_vec()
    }

    /// What was agreed by ALPN.
    pub(crate) fn agreed(&self) -> Option<String> {
        let protocol = match self {
            Self::Plain(_) => panic!("no TLS"),
            Self::Client(stream) => stream.conn.alpn_protocol(),
            Self::Server(stream, _) => stream.conn.alpn_protocol(),
        };
        protocol.map(|protocol| String::from_utf8_lossy(protocol).into_owned())
    }

    pub(crate) fn resumed(&self) -> bool {
        let Self::Client(stream) = self else { panic!("no client of TLS") };
        stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Self::Server(stream, Manners::Good) = self {
            stream.conn.send_close_notify();
            let _gone = stream.conn.complete_io(&mut stream.sock);
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Client(stream) => stream.read(buffer),
            Self::Server(stream, _) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Client(stream) => stream.write(bytes),
            Self::Server(stream, _) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Client(stream) => stream.flush(),
            Self::Server(stream, _) => stream.flush(),
        }
    }
}

/// Believes whoever answers: tests look at what was shown themselves.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
