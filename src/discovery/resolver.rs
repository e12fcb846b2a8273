//! One look-up: which questions it takes, and what becomes of their answers together.
//!
//! The hosts file comes before the servers, as everywhere; both its changes and those of `/etc/resolv.conf` are noticed. Answers are not cached
//! here: they are asked for when they run out.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query as Question, ResponseCode};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Hosts, TokioResolver, system_conf};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::expand::MOST_ADDRESSES;
use super::names::{Answer, Found, Share};
use crate::snapshot::{Dns, Families, Query};

/// Asks the servers of one configuration.
#[derive(Debug)]
pub(super) struct Resolver {
    dns: Dns,
    made: Mutex<Option<Made>>,
}

/// What is made of the system's files as they were.
#[derive(Debug, Clone)]
struct Made {
    of: [Option<Seen>; 2],
    servers: Result<Arc<TokioResolver>, Fault>,
    /// A permit for each question under way.
    room: Arc<Semaphore>,
    hosts: Arc<Hosts>,
}

/// What tells one state of a file from another.
type Seen = (u64, u64, i64, i64);

/// Why a look-up has found nothing that may be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("there is no such name")]
    NoName,
    #[error("the name has no address")]
    Empty,
    #[error("no answer in time")]
    Timeout,
    #[error("{0}")]
    Refused(Box<str>),
}

impl Fault {
    /// The value of a metric's label.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::NoName => "nxdomain",
            Self::Empty => "empty",
            Self::Timeout => "timeout",
            Self::Refused(_) => "error",
        }
    }
}

impl Fault {
    /// The one that says less about the name, and more about whom it was asked of.
    fn or(self, other: Self) -> Self {
        let gravity = |fault: &Self| match fault {
            Self::NoName => 0,
            Self::Empty => 1,
            Self::Timeout | Self::Refused(_) => 2,
        };
        if gravity(&other) > gravity(&self) { other } else { self }
    }
}

impl From<NetError> for Fault {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Timeout => Self::Timeout,
            NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
                ResponseCode::NXDomain => Self::NoName,
                ResponseCode::NoError => Self::Empty,
                code => Self::Refused(code.to_string().into()),
            },
            error => Self::Refused(error.to_string().into()),
        }
    }
}

/// The last good addresses of hosts, by family: when one of the two can't be asked for, what is known of it stays.
#[derive(Debug, Default)]
pub(super) struct Kept(HashMap<Arc<str>, [Vec<IpAddr>; 2]>);

/// Addresses of one family.
type Addresses = Result<(Vec<IpAddr>, Duration), Fault>;

impl Resolver {
    pub(super) fn new(dns: Dns) -> Self {
        Self { dns, made: Mutex::default() }
    }

    pub(super) fn dns(&self) -> &Dns {
        &self.dns
    }

    /// What a name stands for now. Takes the configured time at most, for a service twice that.
    pub(super) async fn look_up(&self, query: &Query, kept: &mut Kept) -> Result<Answer, Fault> {
        match query {
            Query::Host(name) => {
                let made = self.made();
                let families = both(&made, name, self.dns.families, self.dns.timeout).await;
                let (addresses, ttl) = together(name, families, kept)?;
                let found = addresses.into_iter().map(|address| Found { rank: 0, address, at: None });
                answer(found.collect(), ttl)
            }
            Query::Service(name) => self.service(name, kept).await,
        }
    }

    async fn service(&self, name: &str, kept: &mut Kept) -> Result<Answer, Fault> {
        let made = self.made();
        let records = asked(&made, name, RecordType::SRV, self.dns.timeout).await?;
        let mut ttl = ttl_of(&records);
        let services = services_of(&records);
        let mut hosts = JoinSet::new();
        let mut targets: Vec<_> = services.iter().map(|service| service.target.clone()).collect();
        targets.sort();
        targets.dedup();
        for target in targets {
            let (made, families, timeout) = (made.clone(), self.dns.families, self.dns.timeout);
            hosts.spawn(async move {
                let host: Arc<str> = target.to_string().into();
                let found = both(&made, &host, families, timeout).await;
                (target, host, found)
            });
        }
        let (mut addresses, mut last, mut is_known) = (HashMap::new(), Fault::Empty, false);
        while let Some(joined) = hosts.join_next().await {
            let Ok((target, host, found)) = joined else { continue };
            match together(&host, found, kept) {
                Ok((found, found_ttl)) => {
                    ttl = ttl.min(found_ttl);
                    is_known = true;
                    addresses.insert(target, found);
                }
                Err(fault) => {
                    last = fault;
                    ttl = ttl.min(SOON);
                    if let Some(known) = kept.0.get(&host) {
                        addresses.insert(target, known.iter().flatten().copied().collect());
                    }
                }
            }
        }
        kept.0.retain(|host, _| services.iter().any(|service| service.target.to_string() == **host));
        if !is_known {
            return Err(last);
        }
        answer(ranked(&services, &addresses), ttl)
    }

    /// The way to the servers, made anew when the system's files have changed.
    fn made(&self) -> Made {
        let of = [RESOLV_CONF, HOSTS].map(seen);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some(known) if known.of == of => known.clone(),
            _ => made
                .insert(Made {
                    of,
                    servers: client(&self.dns),
                    room: Arc::new(Semaphore::new(MOST_QUESTIONS)),
                    hosts: Arc::new(Hosts::from_system().unwrap_or_default()),
                })
                .clone(),
        }
    }
}

fn seen(path: &str) -> Option<Seen> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}

fn client(dns: &Dns) -> Result<Arc<TokioResolver>, Fault> {
    let unusable = |error: NetError| Fault::Refused(error.to_string().into());
    let (config, mut options) = if dns.servers.is_empty() {
        system_conf::read_system_conf().map_err(unusable)?
    } else {
        let servers = dns.servers.iter().map(|server| name_server(*server)).collect();
        (ResolverConfig::from_parts(None, Vec::new(), servers), ResolverOpts::default())
    };
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.attempts = ATTEMPTS;
    options.timeout = dns.timeout / u32::try_from(ATTEMPTS + 1).unwrap_or(1);
    // The TTL of an answer is that of all its parts, aliases too.
    options.preserve_intermediates = true;
    options.try_tcp_on_error = true;
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(options);
    builder.build().map(Arc::new).map_err(unusable)
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let at = |mut connection: ConnectionConfig| {
        connection.port = server.port();
        connection
    };
    NameServerConfig::new(server.ip(), true, vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())])
}

/// Addresses of both families, IPv4 first; a family that is not wanted is one that has none.
async fn both(made: &Made, host: &str, families: Families, timeout: Duration) -> [Addresses; 2] {
    let is_wanted = |family| match families {
        Families::All => true,
        Families::Ipv4 => family == RecordType::A,
        Families::Ipv6 => family == RecordType::AAAA,
    };
    let own = [RecordType::A, RecordType::AAAA].map(|family| in_hosts(&made.hosts, host, family));
    if own.iter().any(Option::is_some) {
        let [ipv4, ipv6] = own;
        let found =
            |own: Option<Lookup>, family| own.filter(|_| is_wanted(family)).map(|own| addresses_of(&own)).ok_or(Fault::Empty);
        return [found(ipv4, RecordType::A), found(ipv6, RecordType::AAAA)];
    }
    let one = async |family| match is_wanted(family) {
        true => asked(made, host, family, timeout).await.map(|records| addresses_of(&records)),
        false => Err(Fault::Empty),
    };
    let (ipv4, ipv6) = tokio::join!(one(RecordType::A), one(RecordType::AAAA));
    [ipv4, ipv6]
}

/// In order of priority, no more than are used.
fn services_of(records: &Lookup) -> Vec<SRV> {
    let services = records.answers().iter().filter_map(|record| match &record.data {
        // A dot says that there is no such service (RFC 2782).
        RData::SRV(service) if !service.target.is_root() => Some(service.clone()),
        _ => None,
    });
    let mut services: Vec<_> = services.collect();
    services.sort_by_key(|service| (service.priority, service.port, service.target.clone()));
    services.truncate(MOST_ADDRESSES);
    services
}

/// What services in order of priority are with the addresses of their hosts.
fn ranked(services: &[SRV], addresses: &HashMap<Name, Vec<IpAddr>>) -> Vec<Found> {
    let mut priorities: Vec<_> = services.iter().map(|service| service.priority).collect();
    priorities.dedup();
    let found = services.iter().flat_map(|service| {
        let rank = priorities.iter().position(|priority| *priority == service.priority).unwrap_or_default();
        let rank = u16::try_from(rank).unwrap_or(u16::MAX);
        // A weight of 0 is for a small chance, and none is not small.
        let at = Share { port: service.port, weight: u32::from(service.weight).max(1) };
        let of_target = addresses.get(&service.target).map(Vec::as_slice).unwrap_or_default();
        of_target.iter().map(move |address| Found { rank, address: *address, at: Some(at.clone()) })
    });
    found.collect()
}

async fn asked(made: &Made, name: &str, kind: RecordType, timeout: Duration) -> Result<Lookup, Fault> {
    let client = made.servers.as_ref().map_err(Clone::clone)?;
    // Never closed. Time runs from here: a long queue says nothing about the servers.
    let _room = made.room.acquire().await;
    tokio::time::timeout(timeout, client.lookup(name, kind)).await.unwrap_or(Err(NetError::Timeout)).map_err(Fault::from)
}

fn in_hosts(hosts: &Hosts, host: &str, family: RecordType) -> Option<Lookup> {
    let name = Name::from_utf8(host).ok()?;
    hosts.lookup_static_host(&Question::query(name, family))
}

fn addresses_of(records: &Lookup) -> (Vec<IpAddr>, Duration) {
    let addresses = records.answers().iter().filter_map(|record| record.data.ip_addr());
    (addresses.collect(), ttl_of(records))
}

fn ttl_of(records: &Lookup) -> Duration {
    let shortest = records.answers().iter().map(|record| record.ttl).min();
    Duration::from_secs(shortest.unwrap_or_default().into())
}

/// What both families come to. A family that the name doesn't have is no fault as long as it has the other; of one that could not be asked for, what
/// was known stays.
fn together(host: &str, families: [Addresses; 2], kept: &mut Kept) -> Result<(Vec<IpAddr>, Duration), Fault> {
    let mut known = kept.0.get(host).cloned().unwrap_or_default();
    let (mut ttl, mut fault) = (None, Fault::NoName);
    for (family, known) in families.into_iter().zip(&mut known) {
        match family {
            Ok((addresses, own)) if !addresses.is_empty() => {
                *known = addresses;
                ttl = Some(ttl.map_or(own, |ttl: Duration| ttl.min(own)));
            }
            Ok(_) | Err(Fault::Empty | Fault::NoName) => {
                known.clear();
                fault = fault.or(family.err().unwrap_or(Fault::Empty));
            }
            Err(graver) => fault = fault.or(graver),
        }
    }
    // Only beside a good answer is it sure that the name has nothing of the other family.
    let ttl = ttl.ok_or(fault)?;
    let addresses = known.iter().flatten().copied().collect();
    kept.0.insert(host.into(), known);
    Ok((addresses, ttl))
}

/// In order, without repetitions, no more than are used; and without what can't be reached from here, unless that is everything.
fn answer(mut found: Vec<Found>, ttl: Duration) -> Result<Answer, Fault> {
    if found.iter().any(|found| is_routed(found.address)) {
        found.retain(|found| is_routed(found.address));
    }
    found.sort();
    found.dedup();
    found.truncate(MOST_ADDRESSES);
    if found.is_empty() { Err(Fault::Empty) } else { Ok(Answer { found, ttl }) }
}

/// Whether this machine has a route there: one without IPv6 gets IPv6 addresses all the same. Nothing is sent.
fn is_routed(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(_) => {
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok_and(|socket| socket.connect((address, ANY_PORT)).is_ok())
        }
    }
}

/// After the first attempt that many more, of each server.
const ATTEMPTS: usize = 1;
/// When a service is asked for again one of whose hosts can't be resolved.
const SOON: Duration = Duration::from_secs(5);
/// Servers are asked so much at once, however many names there are.
const MOST_QUESTIONS: usize = 16;
const ANY_PORT: u16 = 9;
const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn some(addresses: &[&str]) -> Addresses {
        Ok((addresses.iter().map(|address| address.parse().unwrap()).collect(), TTL))
    }

    fn shown(result: Result<(Vec<IpAddr>, Duration), Fault>) -> String {
        match result {
            Ok((addresses, _)) => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(fault) => fault.label().to_owned(),
        }
    }

    #[test]
    fn a_family_that_cannot_be_asked_for_keeps_what_it_had() {
        let refused = || Err(Fault::Refused("SERVFAIL".into()));
        let mut kept = Kept::default();
        let steps: Vec<([Addresses; 2], &str)> = vec![
            ([Err(Fault::NoName), Err(Fault::NoName)], "nxdomain"),
            ([Err(Fault::Empty), Err(Fault::NoName)], "empty"),
            ([some(&["10.0.0.1"]), some(&["fd00::1"])], "10.0.0.1 fd00::1"),
            ([some(&["10.0.0.2"]), Err(Fault::Timeout)], "10.0.0.2 fd00::1"),
            ([refused(), some(&["fd00::3"])], "10.0.0.2 fd00::3"),
            ([refused(), Err(Fault::Timeout)], "error"),
            ([Err(Fault::Timeout), Err(Fault::Empty)], "timeout"),
            ([refused(), some(&["fd00::3"])], "10.0.0.2 fd00::3"),
            ([some(&["10.0.0.4"]), Err(Fault::Empty)], "10.0.0.4"),
            ([some(&["10.0.0.4"]), refused()], "10.0.0.4"),
        ];
        for (step, (families, expected)) in steps.into_iter().enumerate() {
            assert_eq!(shown(together("a", families, &mut kept)), expected, "step {step}");
        }
    }

    #[test]
    fn an_answer_in_another_order_is_the_same_and_has_an_end() {
        let found = |n: u32| Found { rank: 0, address: std::net::Ipv4Addr::from(n).into(), at: None };
        let most = u32::try_from(MOST_ADDRESSES).unwrap();
        let there = answer((0..most * 2).map(found).collect(), TTL).unwrap();
        let back = answer((0..most * 2).rev().chain(0..3).map(found).collect(), TTL).unwrap();
        assert_eq!(there, back);
        assert_eq!(there.found.len(), MOST_ADDRESSES);
        assert_eq!(answer(Vec::new(), TTL), Err(Fault::Empty));
    }
}
