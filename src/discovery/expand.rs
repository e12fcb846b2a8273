//! From what is listed, and what is known of names, to endpoints.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::names::{Found, Names};
use crate::snapshot::{Endpoint, List, Origin, Place, Query, Source};
use crate::socket::Address;

/// What has to be asked for these.
pub fn queries<'o>(origins: impl IntoIterator<Item = &'o Origin>) -> BTreeSet<Query> {
    origins.into_iter().filter_map(|origin| origin.place.query().cloned()).collect()
}

/// What lists stand for.
#[derive(Debug)]
pub struct Expanded {
    /// Their endpoints, as far as names are known.
    pub endpoints: Vec<Endpoint>,
    /// Whether every name among them has been looked up at least once.
    pub is_complete: bool,
}

/// The endpoints that these stand for, with the configuration's before the file's. An address that is there twice is the first one's: it is one
/// server.
#[must_use]
pub fn endpoints(listed: &[Origin], from_file: &[Origin], names: &Names) -> Expanded {
    let (mut endpoints, mut taken, mut is_complete) = (Vec::new(), HashSet::new(), true);
    let lists = [(List::Configuration, listed), (List::File, from_file)];
    for (list, origin) in lists.into_iter().flat_map(|(list, origins)| origins.iter().map(move |origin| (list, origin))) {
        let found = match &origin.place {
            Place::Address(address) => {
                let authority = address.to_string().into();
                add(endpoint(origin, (address.clone(), authority), list, None), &mut taken, &mut endpoints);
                continue;
            }
            Place::Host(query, _) | Place::Service(query) => names.found(query),
        };
        let Some(found) = found else {
            is_complete = false;
            continue;
        };
        for found in found.iter() {
            if let Some((address, weight)) = addressed(origin, found) {
                let authority = address.to_string().into();
                let mut endpoint = endpoint(origin, (address, authority), list, origin.place.query());
                (endpoint.weight, endpoint.rank) = (weight, found.rank);
                add(endpoint, &mut taken, &mut endpoints);
            }
        }
    }
    Expanded { endpoints, is_complete }
}

fn addressed(origin: &Origin, found: &Found) -> Option<(Address, u32)> {
    let (port, weight) = match (&origin.place, &found.at) {
        (Place::Host(_, port), _) => (*port, origin.weight),
        (Place::Service(_), Some(at)) => (at.port, origin.weight.saturating_mul(at.weight)),
        _ => return None,
    };
    Some((Address::Tcp((found.address, port).into()), weight))
}

fn endpoint(origin: &Origin, (address, authority): (Address, Arc<str>), list: List, query: Option<&Query>) -> Endpoint {
    Endpoint {
        authority,
        address,
        host: Arc::clone(&origin.host),
        weight: origin.weight,
        tls: origin.tls.clone(),
        rank: 0,
        source: Source { list, name: query.map(|query| Arc::clone(query.name())) },
    }
}

fn add(endpoint: Endpoint, taken: &mut HashSet<Arc<str>>, endpoints: &mut Vec<Endpoint>) {
    if taken.insert(Arc::clone(&endpoint.authority)) {
        endpoints.push(endpoint);
    }
}

/// So many addresses of one name are used; the first of them in order, so that an answer in another order is the same answer.
pub(super) const MOST_ADDRESSES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::discovery::names::{Answer, Share};
    use crate::discovery::resolver::Fault;
    use crate::telemetry::metrics::Registry;
    use std::time::Duration;

    fn origin(place: Place, weight: u32) -> Origin {
        Origin { place, weight, tls: None, host: "a".into() }
    }

    fn shown(expanded: &Expanded) -> Vec<String> {
        expanded.endpoints.iter().map(|one| format!("{} {} {}", one.authority, one.weight, one.rank)).collect()
    }

    #[test]
    fn lists_and_names_become_endpoints() {
        let (host, service) = (Query::Host("h".into()), Query::Service("_s._tcp.h".into()));
        let listed = [
            origin(Place::Host(host.clone(), 80), 2),
            origin(Place::Service(service.clone()), 3),
            origin(Place::Address("10.0.0.1:80".parse().unwrap()), 7),
        ];
        let in_file = [origin(Place::Address("unix:/a".parse().unwrap()), 1), origin(Place::Host(host.clone(), 81), 1)];
        let names = Names::new(Registry::new(0), Clock::system());
        names.want(&queries(listed.iter().chain(&in_file)));
        let before = endpoints(&listed, &in_file, &names);
        assert_eq!((shown(&before), before.is_complete), (vec!["10.0.0.1:80 7 0".to_owned(), "unix:/a 1 0".to_owned()], false));

        let found = |address: &str, rank, at| Found { rank, address: address.parse().unwrap(), at };
        let share = |weight| Some(Share { port: 90, weight });
        let note = |query: &Query, found| names.note(query, Ok(Answer { found, ttl: Duration::ZERO }));
        note(&host, vec![found("10.0.0.1", 0, None), found("fd00::1", 0, None)]);
        names.note(&service, Err(Fault::Timeout));
        assert!(endpoints(&listed, &in_file, &names).is_complete, "one that failed has been looked up");
        note(&service, vec![found("10.0.0.2", 0, share(5)), found("10.0.0.3", 1, share(u32::MAX))]);
        let after = endpoints(&listed, &in_file, &names);
        let expected = [
            "10.0.0.1:80 2 0",
            "[fd00::1]:80 2 0",
            "10.0.0.2:90 15 0",
            "10.0.0.3:90 4294967295 1",
            "unix:/a 1 0",
            "10.0.0.1:81 1 0",
            "[fd00::1]:81 1 0",
        ];
        assert_eq!(shown(&after), expected, "the address that is listed too is the name's");
        assert_eq!(after.endpoints[4].source, Source { list: List::File, name: None });
        names.note(&host, Err(Fault::NoName));
        assert_eq!(shown(&endpoints(&listed, &in_file, &names)), expected);
    }
}
