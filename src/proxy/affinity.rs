//! What requests that an upstream wants at the same endpoint have in common.

use std::hash::Hasher;
use std::num::NonZeroU64;

use siphasher::sip::SipHasher13;

use super::forward::Way;
use crate::snapshot::{Balance, HashBy};

/// The request's key, if its upstream balances by one and the request has it. The same in every process and after every restart, so that
/// gateways side by side send a client to the same endpoint.
pub(super) fn key(way: &Way<'_, '_>) -> Option<NonZeroU64> {
    let Balance::Hash { by, .. } = &way.snapshot.upstreams.get(usize::from(way.upstream.0))?.balance else { return None };
    let mut key = SipHasher13::new();
    match by {
        HashBy::Client => way.identity.write_client(&mut key),
        HashBy::Ip => way.identity.network.write(&mut key),
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
