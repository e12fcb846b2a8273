//! What is the same about all requests of a client: a hash that is equal in every process and after every restart, so that gateways side by
//! side agree on who goes where.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

use super::{Identity, Network, Part};

impl Identity<'_> {
    /// The client's hash.
    #[must_use]
    pub fn client_hash(&self) -> u64 {
        let mut hash = SipHasher13::new();
        self.write_client(&mut hash);
        hash.finish()
    }

    /// The client as limits with `per: client` know it. A tag before each, so that a user is never taken for a client of that name.
    pub fn write_client(&self, hash: &mut SipHasher13) {
        match (self.known_by, self.client, self.user) {
            (Part::ApiKey, Some((_, client)), _) => write_tagged(CLIENT, &client.id, hash),
            (Part::User, _, Some(user)) => match self.user_client {
                Some(client) => write_tagged(CLIENT, &client.id, hash),
                None => write_tagged(USER, user, hash),
            },
            _ => self.network.write(hash),
        }
    }
}

impl Network {
    /// The grouped address.
    pub fn write(self, hash: &mut SipHasher13) {
        hash.write(&[NETWORK, self.prefix]);
        match self.address {
            IpAddr::V4(v4) => hash.write(&v4.octets()),
            IpAddr::V6(v6) => hash.write(&v6.octets()),
        }
    }
}

fn write_tagged(tag: u8, name: &str, hash: &mut SipHasher13) {
    hash.write(&[tag]);
    hash.write(name.as_bytes());
}

const CLIENT: u8 = 1;
const USER: u8 = 2;
const NETWORK: u8 = 3;
