//! Where a listener is: `ip:port`, `[v6]:port` or `unix:/path`.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// A listener's address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The absolute path of a socket file.
    Unix(Arc<Path>),
}

/// Why a text is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither form.
    #[error("is not an address; write ip:port or [v6]:port, such as 0.0.0.0:8080, or unix:/path")]
    Form,
    /// A path that depends on where the process was started, or none.
    #[error("is not the address of a unix socket; write an absolute path, such as unix:/run/tollgate.sock")]
    Path,
    /// A path the kernel has no room for.
    #[error("is too long; the path of a unix socket has at most 107 bytes")]
    TooLong,
}

impl Address {
    /// Whether only programs on this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// The TCP address, if it is one.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let Some(path) = text.strip_prefix("unix:") else {
            return text.parse().map(Self::Tcp).map_err(|_| AddressError::Form);
        };
        if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
            return Err(AddressError::Path);
        }
        if path.len() > MAX_PATH {
            return Err(AddressError::TooLong);
        }
        Ok(Self::Unix(Path::new(path).into()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `sun_path` has 108 bytes, the last of which is NUL.
const MAX_PATH: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed() {
        for text in ["127.0.0.1:80", "[::1]:8080", "unix:/run/a.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, error) in [
            ("", AddressError::Form),
            ("localhost", AddressError::Form),
            ("/run/a.sock", AddressError::Form),
            ("unix:", AddressError::Path),
            ("unix:a.sock", AddressError::Path),
            ("unix:@a", AddressError::Path),
            ("unix:/run/", AddressError::Path),
            ("unix:/a\0b", AddressError::Path),
            (&long, AddressError::TooLong),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }

    #[test]
    fn what_only_this_machine_reaches_is_local() {
        let is_local = |text: &str| text.parse::<Address>().unwrap().is_local();
        assert!(is_local("127.0.0.1:80") && is_local("[::1]:80") && is_local("unix:/a"));
        assert!(!is_local("0.0.0.0:80") && !is_local("10.0.0.1:80"));
    }
}
