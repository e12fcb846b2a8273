//! A certificate with its chain and its key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::InconsistentKeys;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, CertificateError};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::files::{FileFault, FileProblem, Held};
use super::provider;

/// Where a certificate and its key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairFiles {
    /// The certificate, and behind it those that vouch for it.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// A certificate that can be shown.
#[derive(Debug)]
pub struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    /// The DNS names it is for, in lower case.
    pub(super) names: Vec<Box<str>>,
    /// The last second it is valid in, since the Unix epoch.
    pub(super) not_after: u64,
}

impl Pair {
    /// Reads a pair.
    ///
    /// # Errors
    /// When a file can't be read, or the two can't be used together.
    pub fn load(files: &PairFiles) -> Result<Held<Self>, FileFault> {
        Held::load(&files.both(), |contents| Self::parse(files, contents))
    }

    pub(super) fn parse(files: &PairFiles, contents: &[Vec<u8>]) -> Result<Self, FileFault> {
        let (cert, key) = match contents {
            [cert, key] => (cert.as_slice(), key.as_slice()),
            _ => (&[][..], &[][..]),
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(cert).collect::<Result<_, _>>().unwrap_or_default();
        let Some(leaf) = chain.first() else { return Err(FileProblem::NoCertificate.in_file(&files.cert)) };
        let Some((names, not_after)) = names_and_end(leaf) else {
            let error = rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
            return Err(FileProblem::Certificate(error).in_file(&files.cert));
        };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| FileProblem::NoKey.in_file(&files.key))?;
        let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => FileProblem::Mismatch.in_file(&files.key),
            rustls::Error::InvalidCertificate(_) => FileProblem::Certificate(error).in_file(&files.cert),
            _ => FileProblem::Key(error).in_file(&files.key),
        })?;
        Ok(Self { key: Arc::new(certified), names, not_after })
    }

    /// Reads it anew after the files have changed. One that has expired does not take the place of one that has not.
    pub(super) fn again(files: &PairFiles, contents: &[Vec<u8>], before: &Self, now: u64) -> Result<Self, FileFault> {
        let pair = Self::parse(files, contents)?;
        if pair.not_after < now && before.not_after >= now {
            return Err(FileProblem::Expired.in_file(&files.cert));
        }
        Ok(pair)
    }
}

impl PairFiles {
    pub(super) fn both(&self) -> [&Path; 2] {
        [&self.cert, &self.key]
    }
}

fn names_and_end(leaf: &CertificateDer<'_>) -> Option<(Vec<Box<str>>, u64)> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let names = certificate.subject_alternative_name().ok()?.map(|names| &names.value.general_names);
    let names = names.into_iter().flatten().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase().into()),
        _ => None,
    });
    let not_after = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    Some((names.collect(), not_after))
}
