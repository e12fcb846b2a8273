//! Whom we believe: the certificates of authorities.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::files::{FileFault, FileProblem, Held};

/// Authorities.
pub type Roots = Arc<RootCertStore>;

/// The certificates in a PEM text; all must be usable, and there must be one.
///
/// # Errors
/// [`FileProblem`].
pub fn parse_roots(pem: &[u8]) -> Result<Roots, FileProblem> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| FileProblem::NoCertificate)?;
        roots.add(certificate).map_err(FileProblem::Certificate)?;
    }
    if roots.is_empty() { Err(FileProblem::NoCertificate) } else { Ok(Arc::new(roots)) }
}

/// Mozilla's, as built in: they are there in an empty container too, and the same on every machine.
#[must_use]
pub fn public_roots() -> Roots {
    Arc::new(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
}

pub(super) fn load_roots(file: &Path) -> Result<Held<Roots>, FileFault> {
    Held::load(&[file], |contents| roots_of(file, contents))
}

pub(super) fn roots_of(file: &Path, contents: &[Vec<u8>]) -> Result<Roots, FileFault> {
    parse_roots(contents.first().map(Vec::as_slice).unwrap_or_default()).map_err(|problem| problem.in_file(file))
}
