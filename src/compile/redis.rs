//! `store.redis`: which servers, and how to enter them.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::Compiler;
use crate::config::diagnostic::Path;
use crate::config::{self, Secret, Topology};
use crate::snapshot::SharedStoreSettings;
use crate::store::redis::link::{Access, Address, Credentials, Server, Settings, Tls, Topology as Servers};
use crate::tls::ClientTls;

impl Compiler<'_> {
    /// The settings of the shared store, if there is one.
    pub(super) fn redis(&mut self) -> Option<SharedStoreSettings> {
        let redis = self.config.store.redis.as_ref()?;
        let path = Path::root("store").key("redis");
        let problems = self.problems.len();
        let servers = self.servers(redis, &path.key("urls"));
        let tls = self.redis_tls(redis, &servers, &path);
        if redis.key_prefix.is_empty() || redis.key_prefix.len() > MAX_PREFIX || !redis.key_prefix.bytes().all(is_plain) {
            self.problem(&path.key("key_prefix"), "a prefix has 1 to 40 letters, digits, `-`, `_`, `.` or `:`");
        }
        if redis.connections == 0 || redis.connections > MAX_CONNECTIONS {
            self.problem(&path.key("connections"), "from 1 to 16 to each node");
        }
        if redis.max_in_flight == 0 {
            self.problem(&path.key("max_in_flight"), "must be at least 1");
        }
        let timeout = self.positive(redis.timeout, &path.key("timeout"));
        if timeout > MAX_TIMEOUT {
            self.problem(
                &path.key("timeout"),
                "at most 10s: a request waits this long for a store that is slow, and `on_failure` does without",
            );
        }
        if redis.key_secret.as_ref().is_some_and(|Secret(secret)| secret.is_empty()) {
            self.problem(
                &path.key("key_secret"),
                "an empty secret keeps nothing secret; leave it out, or see whether its variable is set",
            );
        }
        let topology = self.topology(redis, servers, &path)?;
        if self.problems.len() > problems {
            return None;
        }
        let mut settings = Settings::new(topology, String::new());
        settings.tls = tls.as_ref().map(|tls| {
            Tls::new({
                let tls = Arc::clone(tls);
                move || tls.current()
            })
        });
        settings.timeout = timeout;
        settings.connections = usize::from(redis.connections);
        settings.in_flight = usize::try_from(redis.max_in_flight).unwrap_or(usize::MAX);
        settings.key_prefix.clone_from(&redis.key_prefix);
        Some(SharedStoreSettings { settings, tls, key: counter_key(redis), digest: digest(redis) })
    }

    fn servers(&mut self, redis: &config::Redis, path: &Path) -> Vec<Server> {
        let mut servers = Vec::new();
        for (i, Secret(url)) in redis.urls.0.iter().enumerate() {
            match Server::parse(url) {
                Ok(server) => servers.push(server),
                Err(error) => self.problem(&path.index(i), format!("this {error}")),
            }
        }
        if redis.urls.0.is_empty() && !(self.is_incomplete)("store") {
            self.problem(path, "at least one URL is needed");
        }
        servers
    }

    fn topology(&mut self, redis: &config::Redis, mut servers: Vec<Server>, path: &Path) -> Option<Servers> {
        let at = path.key("urls");
        let (user, password) = (redis.username.as_ref(), redis.password.as_ref());
        let entry = self.credentials(user, password, &path.key("username"));
        let sentinel_entry =
            self.credentials(redis.sentinel_username.as_ref(), redis.sentinel_password.as_ref(), &path.key("sentinel_username"));
        if redis.topology != Topology::Sentinel {
            for (key, given) in [
                ("sentinel_master", redis.sentinel_master.is_some()),
                ("sentinel_username", redis.sentinel_username.is_some()),
                ("sentinel_password", redis.sentinel_password.is_some()),
            ] {
                if given {
                    self.problem(&path.key(key), "only `topology: sentinel` has sentinels");
                }
            }
        }
        let first = servers.first().cloned()?;
        if redis.topology != Topology::Single && servers.iter().any(|server| matches!(server.address, Address::Unix(_))) {
            self.problem(&at, "sentinels and nodes of a cluster are reached over TCP");
        }
        match redis.topology {
            Topology::Single => {
                if servers.len() > 1 {
                    self.problem(&at, "`topology: single` is one server; write `topology: sentinel` or `cluster` for several");
                }
                Some(Servers::Single(entered(first, entry)))
            }
            Topology::Sentinel => {
                let Some(master) = redis.sentinel_master.clone().filter(|name| !name.is_empty()) else {
                    self.problem(&path.key("sentinel_master"), "sentinels know masters by name; write which one");
                    return None;
                };
                // Who is named in the URLs is who enters the sentinels.
                let Access { database, tls, .. } = first.access;
                for server in &mut servers {
                    let credentials = sentinel_entry.clone().or_else(|| server.access.credentials.take());
                    server.access = Access { credentials, database: 0, tls };
                }
                let access = Access { credentials: entry, database, tls };
                Some(Servers::Sentinel { sentinels: servers, master, access })
            }
            Topology::Cluster => {
                if servers.iter().any(|server| server.access.database != 0) {
                    self.problem(&at, "a cluster has the database 0 alone");
                }
                Some(Servers::Cluster { seeds: servers.into_iter().map(|server| entered(server, entry.clone())).collect() })
            }
        }
    }

    fn credentials(&mut self, user: Option<&String>, password: Option<&Secret>, path: &Path) -> Option<Credentials> {
        match (user, password) {
            // As from a variable that isn't set.
            (None, Some(Secret(password))) if password.is_empty() => None,
            (user, Some(Secret(password))) => Some(Credentials { user: user.cloned(), password: password.clone() }),
            (Some(_), None) => {
                self.problem(path, "a user has a password");
                None
            }
            (None, None) => None,
        }
    }

    fn redis_tls(&mut self, redis: &config::Redis, servers: &[Server], path: &Path) -> Option<Arc<ClientTls>> {
        let encrypted = servers.iter().filter(|server| server.access.tls).count();
        if encrypted == 0 {
            if redis.tls.is_some() && !servers.is_empty() {
                self.problem(&path.key("tls"), "no URL begins with rediss://, so nothing is encrypted");
            }
            return None;
        }
        if encrypted < servers.len() {
            self.problem(&path.key("urls"), "some URLs begin with rediss:// and some don't; all must be spoken to alike");
        }
        let tls = redis.tls.clone().unwrap_or_default();
        if tls.server_name.is_some() {
            self.problem(&path.key("tls").key("server_name"), "each server's certificate must be for the host in its URL");
        }
        self.client_tls(&tls, Vec::new(), &path.key("tls"))
    }
}

fn entered(mut server: Server, entry: Option<Credentials>) -> Server {
    server.access.credentials = entry.or(server.access.credentials);
    server
}

fn is_plain(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-_.:".contains(&b)
}

/// The key of counters' digests: the same in all gateways with the same settings.
fn counter_key(redis: &config::Redis) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(b"tollgate counters\0");
    hash.update(redis.key_prefix.as_bytes());
    hash.update([0]);
    if let Some(Secret(secret)) = &redis.key_secret {
        hash.update(secret.as_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut key = [0; 16];
    key.iter_mut().zip(digest).for_each(|(byte, of_digest)| *byte = of_digest);
    key
}

/// Tells settings apart, secrets included.
fn digest(redis: &config::Redis) -> [u8; 32] {
    let secret = |secret: &Option<Secret>| secret.as_ref().map(|Secret(text)| text.clone());
    let urls: Vec<_> = redis.urls.0.iter().map(|Secret(url)| url).collect();
    let secrets = (secret(&redis.password), secret(&redis.sentinel_password), secret(&redis.key_secret));
    let plain = (&redis.username, &redis.sentinel_username, &redis.sentinel_master, &redis.key_prefix, &redis.tls);
    let numbers = (redis.topology, redis.timeout, redis.connections, redis.max_in_flight);
    Sha256::digest(format!("{urls:?}{secrets:?}{plain:?}{numbers:?}")).into()
}

const MAX_PREFIX: usize = 40;
const MAX_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
const MAX_CONNECTIONS: u8 = 16;
