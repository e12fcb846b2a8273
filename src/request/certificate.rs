//! The certificate that a client has shown, and the forms in which upstream is told of it.

use std::cell::OnceCell;
use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{AttributeTypeAndValue, FromDer, GeneralName, X509Certificate, X509Name};

/// A client's certificate. It has been checked: some authority of the listener vouches for it.
#[derive(Debug)]
pub struct ClientCertificate {
    der: Box<[u8]>,
    fingerprint: [u8; 32],
    header: OnceCell<Box<str>>,
    details: OnceCell<Box<str>>,
}

impl ClientCertificate {
    /// From its DER form.
    #[must_use]
    pub fn new(der: &[u8]) -> Self {
        Self { der: der.into(), fingerprint: Sha256::digest(der).into(), header: OnceCell::new(), details: OnceCell::new() }
    }

    /// The SHA-256 digest of its DER form.
    #[must_use]
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// The last second it is valid in, since the Unix epoch.
    #[must_use]
    pub fn not_after(&self) -> Option<u64> {
        let (_, certificate) = X509Certificate::from_der(&self.der).ok()?;
        u64::try_from(certificate.validity().not_after.timestamp()).ok()
    }

    /// The value of `Client-Cert` (RFC 9440 section 2.2). Made once per connection.
    #[must_use]
    pub fn header(&self) -> &str {
        self.header.get_or_init(|| format!(":{}:", STANDARD.encode(&self.der)).into())
    }

    /// The value of `X-Forwarded-Client-Cert` as Envoy writes it: `Hash`, `Subject` (RFC 2253), `URI` and `DNS`. Made once per connection.
    #[must_use]
    pub fn details(&self) -> &str {
        self.details.get_or_init(|| self.describe().into())
    }

    fn describe(&self) -> String {
        let mut text = String::from("Hash=");
        for byte in self.fingerprint {
            let _ = write!(text, "{byte:02x}");
        }
        let Ok((_, certificate)) = X509Certificate::from_der(&self.der) else { return text };
        let _ = write!(text, ";Subject=\"{}\"", distinguished_name(certificate.subject()));
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|names| &names.value.general_names).into_iter().flatten();
        for kind in ["URI", "DNS"] {
            for name in names.clone() {
                match (kind, name) {
                    ("URI", GeneralName::URI(name)) | ("DNS", GeneralName::DNSName(name)) => {
                        let _ = write!(text, ";{kind}={}", quoted(name));
                    }
                    _ => {}
                }
            }
        }
        text
    }
}

/// In quotes if it has to be. What is not visible ASCII is in no name that a field may have; such a one is left out.
fn quoted(name: &str) -> String {
    if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return "\"\"".to_owned();
    }
    if name.contains([',', ';', '=', '"', '\\']) {
        return format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    }
    name.to_owned()
}

/// RFC 2253: the last first, everything but printable ASCII as hexadecimal digits.
fn distinguished_name(name: &X509Name<'_>) -> String {
    let relative: Vec<_> = name.iter().collect();
    let parts = relative.iter().rev().map(|relative| relative.iter().map(attribute).collect::<Vec<_>>().join("+"));
    parts.collect::<Vec<_>>().join(",")
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let oid = attribute.attr_type();
    let kind = oid2abbrev(oid, oid_registry()).map_or_else(|_| oid.to_id_string(), str::to_owned);
    match attribute.as_str() {
        Ok(value) => format!("{kind}={}", escaped(value)),
        Err(_) => {
            let bytes = attribute.as_slice();
            bytes.iter().fold(format!("{kind}=#"), |text, byte| format!("{text}{byte:02X}"))
        }
    }
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 8);
    let last = value.len().saturating_sub(1);
    for (i, byte) in value.bytes().enumerate() {
        let at_edge = (i == 0 && matches!(byte, b' ' | b'#')) || (i == last && byte == b' ');
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => text.push('\\'),
            _ if at_edge => text.push('\\'),
            b' '..=b'~' => {}
            _ => {
                let _ = write!(text, "\\{byte:02X}");
                continue;
            }
        }
        text.push(char::from(byte));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_can_not_leave_their_place() {
        for (value, expected) in [
            ("plain", "plain"),
            ("a,b+c", "a\\,b\\+c"),
            ("\" \\", "\\\" \\\\"),
            (" x ", "\\ x\\ "),
            ("#1", "\\#1"),
            ("Zoë\r\n", "Zo\\C3\\AB\\0D\\0A"),
            ("", ""),
        ] {
            assert_eq!(escaped(value), expected, "{value:?}");
        }
        for (name, expected) in [
            ("a.example", "a.example"),
            ("spiffe://a/b", "spiffe://a/b"),
            ("a;DNS=b", "\"a;DNS=b\""),
            ("a\"\\", "\"a\\\"\\\\\""),
            ("a b", "\"\""),
            ("a\r\nx: y", "\"\""),
        ] {
            assert_eq!(quoted(name), expected, "{name:?}");
        }
    }
}
