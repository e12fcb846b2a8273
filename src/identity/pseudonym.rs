//! Addresses as the access log has them: enough to see that two requests are from one client, not enough to see from which.
//!
//! A short address has few bits, so a plain digest of it is found by trying all of them. Hence a keyed one: without the key nothing can
//! be tried.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;

use sha2::{Digest, Sha256};
use siphasher::sip::SipHasher24;

use super::{Grouping, Network};

/// Makes pseudonyms.
#[derive(Clone)]
pub struct Pseudonyms(SipHasher24);

/// What is told of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedAddress {
    /// The address with its last bits cleared.
    pub network: Network,
    /// The digest of what limits count, of 48 bits; `None` if that is told anyway.
    pub pseudonym: Option<u64>,
}

impl Default for Pseudonyms {
    /// With a key that nobody knows and that ends with the process.
    fn default() -> Self {
        // The standard library's own random seeds, without another crate for randomness.
        Self(SipHasher24::new_with_keys(RandomState::new().hash_one(1_u8), RandomState::new().hash_one(2_u8)))
    }
}

impl Pseudonyms {
    /// The same for everybody who has this secret.
    #[must_use]
    pub fn keyed(secret: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let key = digest.first_chunk::<16>().copied().unwrap_or_default();
        Self(SipHasher24::new_with_key(&key))
    }

    /// What is told of an address that is grouped in this way.
    #[must_use]
    pub fn logged(&self, address: IpAddr, grouping: Grouping) -> LoggedAddress {
        let counted = grouping.network_of(address);
        let Grouping { ipv4_prefix, ipv6_prefix } = grouping;
        let told = Grouping { ipv4_prefix: ipv4_prefix.min(TOLD.ipv4_prefix), ipv6_prefix: ipv6_prefix.min(TOLD.ipv6_prefix) };
        let network = told.network_of(address);
        LoggedAddress { network, pseudonym: (network != counted).then(|| self.of(counted)) }
    }

    fn of(&self, network: Network) -> u64 {
        let octets = match network.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        self.0.hash(&octets) >> 16
    }
}

impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pseudonyms(…)")
    }
}

/// Most that is told of an address: 256 neighbours of IPv4, and what one subscriber has of IPv6.
const TOLD: Grouping = Grouping { ipv4_prefix: 24, ipv6_prefix: 64 };

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pseudonyms: &Pseudonyms, address: &str, ipv4_prefix: u8, ipv6_prefix: u8) -> (String, bool) {
        let logged = pseudonyms.logged(address.parse().unwrap(), Grouping { ipv4_prefix, ipv6_prefix });
        (logged.network.to_string(), logged.pseudonym.is_some())
    }

    #[test]
    fn no_more_of_an_address_is_told_than_its_network() {
        let pseudonyms = Pseudonyms::default();
        for (address, ipv4_prefix, ipv6_prefix, network, has_pseudonym) in [
            ("203.0.113.77", 32, 64, "203.0.113.0/24", true),
            ("203.0.113.77", 28, 64, "203.0.113.0/24", true),
            ("203.0.113.77", 24, 64, "203.0.113.0/24", false),
            ("203.0.113.77", 16, 64, "203.0.0.0/16", false),
            ("2001:db8:1:2:3::4", 32, 64, "2001:db8:1:2::/64", false),
            ("2001:db8:1:2:3::4", 32, 128, "2001:db8:1:2::/64", true),
            ("2001:db8:1:2:3::4", 32, 48, "2001:db8:1::/48", false),
        ] {
            assert_eq!(
                told(&pseudonyms, address, ipv4_prefix, ipv6_prefix),
                (network.to_owned(), has_pseudonym),
                "{address} {ipv4_prefix} {ipv6_prefix}"
            );
        }
    }

    #[test]
    fn a_pseudonym_is_that_of_what_is_counted_and_of_the_key() {
        let of = |pseudonyms: &Pseudonyms, address: &str, ipv4_prefix| {
            pseudonyms.logged(address.parse().unwrap(), Grouping { ipv4_prefix, ipv6_prefix: 128 }).pseudonym.unwrap()
        };
        let keyed = Pseudonyms::keyed("a");
        assert_eq!(of(&keyed, "203.0.113.77", 32), of(&Pseudonyms::keyed("a"), "203.0.113.77", 32));
        assert_ne!(of(&keyed, "203.0.113.77", 32), of(&Pseudonyms::keyed("b"), "203.0.113.77", 32));
        assert_ne!(of(&keyed, "203.0.113.77", 32), of(&keyed, "203.0.113.78", 32));
        assert_eq!(of(&keyed, "203.0.113.77", 28), of(&keyed, "203.0.113.78", 28));
        assert_ne!(of(&Pseudonyms::default(), "203.0.113.77", 32), of(&Pseudonyms::default(), "203.0.113.77", 32));
        assert_ne!(of(&keyed, "2001:db8::1", 32), of(&keyed, "2001:db8::2", 32));
        assert!(of(&keyed, "203.0.113.77", 32) < 1 << 48);
    }
}
