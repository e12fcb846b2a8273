//! What requests that an upstream wants at the same endpoint have in common.

use std::hash::Hasher;
use std::net::IpAddr;
use std::num::NonZeroU64;

use siphasher::sip::SipHasher13;

use super::forward::Way;
use crate::identity::{Identity, Network, Part};
use crate::snapshot::{Balance, HashBy};

/// The request's key, if its upstream balances by one and the request has it. The same in every process and after every restart, so that
/// gateways side by side send a client to the same endpoint.
pub(super) fn key(way: &Way<'_, '_>) -> Option<NonZeroU64> {
    let Balance::Hash { by, .. } = &way.snapshot.upstreams.get(usize::from(way.upstream.0))?.balance else { return None };
    let mut key = SipHasher13::new();
    match by {
        HashBy::Client => write_client(way.identity, &mut key),
        HashBy::Ip => write_network(way.identity.network, &mut key),
        HashBy::Header(name) => {
            let value = way.facts.headers.get(name)?.as_bytes().trim_ascii();
            if value.is_empty() {
                return None;
            }
            key.write(value);
        }
    }
    NonZeroU64::new(key.finish() | 1)
}

/// As limits with `per: client` know it. A tag before each, so that a user is never taken for a client of that name.
fn write_client(identity: &Identity<'_>, key: &mut SipHasher13) {
    match (identity.known_by, identity.client, identity.user) {
        (Part::ApiKey, Some((_, client)), _) => write_tagged(CLIENT, &client.id, key),
        (Part::User, _, Some(user)) => match identity.user_client {
            Some(client) => write_tagged(CLIENT, &client.id, key),
            None => write_tagged(USER, user, key),
        },
        _ => write_network(identity.network, key),
    }
}

fn write_tagged(tag: u8, name: &str, key: &mut SipHasher13) {
    key.write(&[tag]);
    key.write(name.as_bytes());
}

fn write_network(network: Network, key: &mut SipHasher13) {
    key.write(&[NETWORK, network.prefix]);
    match network.address {
        IpAddr::V4(v4) => key.write(&v4.octets()),
        IpAddr::V6(v6) => key.write(&v6.octets()),
    }
}

const CLIENT: u8 = 1;
const USER: u8 = 2;
const NETWORK: u8 = 3;
