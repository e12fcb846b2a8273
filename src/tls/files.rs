//! Files with certificates and keys: read whole, compared by digest, replaced only by something that works.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct FileFault {
    /// Which one.
    pub file: PathBuf,
    /// What.
    pub problem: FileProblem,
}

/// What can be wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// It can't be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is no list of certificates.
    #[error("not a list of certificates in PEM form")]
    NoCertificate,
    /// It has no key.
    #[error("no private key in PEM form; one with a passphrase can't be read")]
    NoKey,
    /// A certificate can't be used.
    #[error("a certificate can't be used: {0}")]
    Certificate(rustls::Error),
    /// No certificate in it can vouch for others.
    #[error("these certificates can't be trusted: {0}")]
    Roots(rustls::server::VerifierBuilderError),
    /// The key can't be used.
    #[error("the private key can't be used: {0}")]
    Key(rustls::Error),
    /// Certificate and key don't belong together.
    #[error("the private key is not this certificate's")]
    Mismatch,
    /// It would take the place of one that is valid.
    #[error("the certificate has expired")]
    Expired,
    /// The system has no randomness for us.
    #[error("no randomness: {0}")]
    Randomness(rustls::Error),
}

impl FileProblem {
    pub(super) fn in_file(self, file: &Path) -> FileFault {
        FileFault { file: file.to_owned(), problem: self }
    }
}

/// What was made of files, and what those were when that was last tried.
#[derive(Debug)]
pub struct Held<T> {
    pub(super) value: T,
    pub(super) tried: Digest,
}

pub(super) type Digest = [u8; 32];

impl<T> Held<T> {
    /// Reads the files and makes something of their contents, in the same order.
    ///
    /// # Errors
    /// When one can't be read or used.
    pub fn load(files: &[&Path], make: impl FnOnce(&[Vec<u8>]) -> Result<T, FileFault>) -> Result<Self, FileFault> {
        let (tried, contents) = read_all(files);
        Ok(Self { value: make(&contents?)?, tried })
    }

    /// The same again. `None` if the contents are those of the last time; when they can't be used the value stays.
    pub(super) fn refresh(
        &mut self,
        files: &[&Path],
        make: impl FnOnce(&[Vec<u8>], &T) -> Result<T, FileFault>,
    ) -> Option<Result<(), FileFault>> {
        let (tried, contents) = read_all(files);
        if std::mem::replace(&mut self.tried, tried) == tried {
            return None;
        }
        let made = contents.and_then(|contents| make(&contents, &self.value));
        Some(made.map(|value| self.value = value))
    }
}

/// The digest is that of the contents, or of why there are none.
fn read_all(files: &[&Path]) -> (Digest, Result<Vec<Vec<u8>>, FileFault>) {
    let mut digest = Sha256::new();
    let mut contents = Vec::new();
    for file in files {
        match read_small(file) {
            Ok(bytes) => {
                digest.update((bytes.len() as u64).to_be_bytes());
                digest.update(&bytes);
                contents.push(bytes);
            }
            Err(error) => {
                digest.update(error.to_string());
                return (digest.finalize().into(), Err(FileProblem::Read(error).in_file(file)));
            }
        }
    }
    (digest.finalize().into(), Ok(contents))
}

/// A file's bytes, if it is a regular one of at most 1 MiB. Relative to the working directory, as every path in the configuration.
///
/// # Errors
/// The system's, or that it is not such a file.
pub fn read_small(file: &Path) -> io::Result<Vec<u8>> {
    // Asked before it is opened: opening a pipe would wait for somebody to write to it.
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    let size = File::open(file)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if size as u64 > MAX_FILE {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    Ok(bytes)
}

const MAX_FILE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_used_changes_nothing_and_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let number = |contents: &[Vec<u8>]| {
            let text = String::from_utf8_lossy(&contents[0]).into_owned();
            text.parse::<u32>().map_err(|_| FileProblem::NoCertificate.in_file(&file))
        };
        std::fs::write(&file, "1").unwrap();
        let mut held = Held::load(&[&file], number).unwrap();
        let mut refresh = || (held.refresh(&[&file], |contents, _| number(contents)).map(|made| made.is_ok()), held.value);
        assert_eq!(refresh(), (None, 1));
        std::fs::write(&file, "2").unwrap();
        assert_eq!(refresh(), (Some(true), 2));
        std::fs::write(&file, "x").unwrap();
        assert_eq!(refresh(), (Some(false), 2));
        assert_eq!(refresh(), (None, 2));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(refresh(), (Some(false), 2));
        assert_eq!(refresh(), (None, 2));
        std::fs::write(&file, "2").unwrap();
        assert_eq!(refresh(), (Some(true), 2));
    }
}
