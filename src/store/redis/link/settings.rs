//! Where the servers are and how long anything may take. Parsed here, so that a [`Link`](super::Link) can't be given nonsense.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::parse_redis_url;
use tokio_rustls::rustls::ClientConfig;

/// Everything a [`Link`](super::Link) goes by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which servers, and how they stand to each other.
    pub topology: Topology,
    /// By what a TLS connection made now goes.
    pub tls: Option<Tls>,
    /// The whole budget of a decision, script texts and redirections included.
    pub timeout: Duration,
    /// How long making a connection may take: name, TCP, TLS and authentication.
    pub connect_timeout: Duration,
    /// Connections per node: one that waits for a lost packet holds up only its share of the keys.
    pub connections: usize,
    /// Decisions under way per node; whoever comes on top is told [`Overloaded`](super::Fault::Overloaded) at once.
    pub in_flight: usize,
    /// Posts that wait to go out; more are lost.
    pub posts: usize,
    /// What this gateway is called among the others; unique.
    pub instance: String,
    /// What the names of the link's own keys begin with.
    pub key_prefix: String,
}

/// How the servers stand to each other.
#[derive(Clone, Debug)]
pub enum Topology {
    /// One server.
    Single(Server),
    /// One master at a time, which sentinels know.
    Sentinel {
        /// Whom to ask.
        sentinels: Vec<Server>,
        /// What they call the master.
        master: String,
        /// How to enter the master, which need not be how to enter a sentinel.
        access: Access,
    },
    /// A cluster, of which some nodes are known.
    Cluster {
        /// Any of its nodes.
        seeds: Vec<Server>,
    },
}

/// A server: where, and how to enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where.
    pub address: Address,
    /// How.
    pub access: Access,
}

/// How to enter a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// As whom.
    pub credentials: Option<Credentials>,
    /// Which of its numbered databases.
    pub database: u32,
    /// Whether to speak TLS.
    pub tls: bool,
}

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Without one: the user `default`.
    pub user: Option<String>,
    /// Its password.
    pub password: String,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A name or an address, and a port.
    Tcp {
        /// The name, or the address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket file.
    Unix(PathBuf),
}

/// Gives the settings of TLS that are in force now; certificates may be renewed while the link stands.
#[derive(Clone)]
pub struct Tls(Arc<dyn Fn() -> Arc<ClientConfig> + Send + Sync>);

/// What is wrong with a URL. Says nothing of what stands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// No URL, or not of a server.
    #[error("is not the URL of a Redis server; write redis://host:port, rediss://host:port for TLS, or unix:/path")]
    Form,
    /// No host.
    #[error("names no host")]
    Host,
    /// No path.
    #[error("names no socket; write an absolute path, such as unix:/run/redis.sock")]
    Path,
    /// Neither nothing nor a number.
    #[error("has something else than the number of a database behind the host")]
    Database,
    /// A user without a password, or one that can't be read.
    #[error("has a user without a password, or a % that is not followed by two hexadecimal digits")]
    Credentials,
    /// `#insecure` and the like.
    #[error("has a fragment; what is trusted is set beside it, not in it")]
    Fragment,
    /// A parameter nobody knows.
    #[error("has a parameter that means nothing; a unix socket takes user, pass and db, and others take none")]
    Parameter,
}

impl Settings {
    /// With the defaults of everything but where and who.
    #[must_use]
    pub fn new(topology: Topology, instance: String) -> Self {
        Self {
            topology,
            tls: None,
            timeout: Duration::from_millis(20),
            connect_timeout: Duration::from_secs(1),
            connections: 2,
            // A server answers some 50 000 scripts a second: more than this can't be answered within the default budget.
            in_flight: 1024,
            posts: 8192,
            instance,
            key_prefix: "tollgate".to_owned(),
        }
    }
}

impl Tls {
    /// Asked before each connection is made.
    #[must_use]
    pub fn new(current: impl Fn() -> Arc<ClientConfig> + Send + Sync + 'static) -> Self {
        Self(Arc::new(current))
    }

    pub(super) fn current(&self) -> Arc<ClientConfig> {
        (self.0)()
    }
}

impl Server {
    /// Reads `redis://[[user]:password@]host[:port][/database]`, `rediss://` (TLS), their `valkey` twins, and
    /// `unix:/path[?user=…&pass=…&db=…]`.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let parsed = parse_redis_url(url).ok_or(UrlError::Form)?;
        if parsed.fragment().is_some() {
            return Err(UrlError::Fragment);
        }
        let tls = matches!(parsed.scheme(), "rediss" | "valkeys");
        if !tls && !matches!(parsed.scheme(), "redis" | "valkey") {
            return Self::parse_unix(parsed.path(), parsed.query_pairs());
        }
        if parsed.query().is_some() {
            return Err(UrlError::Parameter);
        }
        let host = parsed.host_str().filter(|host| !host.is_empty()).ok_or(UrlError::Host)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let user = decoded(parsed.username()).ok_or(UrlError::Credentials)?;
        let password = parsed.password().map(|password| decoded(password).ok_or(UrlError::Credentials)).transpose()?;
        let credentials = Credentials::of(user, password)?;
        let database = database(parsed.path().trim_start_matches('/'))?;
        let address = Address::Tcp { host, port: parsed.port().unwrap_or(DEFAULT_PORT) };
        Ok(Self { address, access: Access { credentials, database, tls } })
    }

    fn parse_unix<K: AsRef<str>, V: AsRef<str>>(path: &str, query: impl Iterator<Item = (K, V)>) -> Result<Self, UrlError> {
        let path = decoded(path).filter(|path| path.starts_with('/') && path.len() > 1).ok_or(UrlError::Path)?;
        let (mut user, mut password, mut number) = (String::new(), None, 0);
        for (name, value) in query {
            match name.as_ref() {
                "user" => value.as_ref().clone_into(&mut user),
                "pass" => password = Some(value.as_ref().to_owned()),
                "db" => number = database(value.as_ref())?,
                _ => return Err(UrlError::Parameter),
            }
        }
        let access = Access { credentials: Credentials::of(user, password)?, database: number, tls: false };
        Ok(Self { address: Address::Unix(PathBuf::from(path)), access })
    }
}

impl Credentials {
    fn of(user: String, password: Option<String>) -> Result<Option<Self>, UrlError> {
        match (user.is_empty(), password) {
            (true, None) => Ok(None),
            (false, None) => Err(UrlError::Credentials),
            (no_user, Some(password)) => Ok(Some(Self { user: (!no_user).then_some(user), password })),
        }
    }
}

impl Address {
    /// Reads what a cluster calls a node: `host:port`, the host perhaps an IPv6 address without brackets, or nothing for the node
    /// that was asked.
    pub(super) fn of_node(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::in_cluster(host, port.parse().ok()?, asked))
    }

    /// A node's address, given the one that was asked for it.
    pub(super) fn in_cluster(host: &str, port: u16, asked: &Self) -> Self {
        match (host.trim_start_matches('[').trim_end_matches(']'), asked) {
            // A node that does not know its own name means the one by which it was reached.
            ("" | "?", Self::Tcp { host, .. }) => Self::Tcp { host: host.clone(), port },
            (host, _) => Self::Tcp { host: host.to_owned(), port },
        }
    }
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(if byte == b'%' { u8::try_from(digit()? * 16 + digit()?).ok()? } else { byte });
    }
    String::from_utf8(bytes).ok()
}

fn database(text: &str) -> Result<u32, UrlError> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| UrlError::Database) }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

const DEFAULT_PORT: u16 = 6379;

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    fn entry(user: Option<&str>, password: &str) -> Option<Credentials> {
        Some(Credentials { user: user.map(str::to_owned), password: password.to_owned() })
    }

    #[test]
    fn urls_are_read() {
        let open = Access::default();
        for (url, address, access) in [
            ("redis://127.0.0.1:7000", tcp("127.0.0.1", 7000), open.clone()),
            ("valkey://store", tcp("store", 6379), open.clone()),
            ("redis://[::1]:7000/3", tcp("::1", 7000), Access { database: 3, ..open.clone() }),
            ("rediss://h/", tcp("h", 6379), Access { tls: true, ..open.clone() }),
            ("redis://:a%40b@h", tcp("h", 6379), Access { credentials: entry(None, "a@b"), ..open.clone() }),
            ("redis://u:p@h/1", tcp("h", 6379), Access { credentials: entry(Some("u"), "p"), database: 1, tls: false }),
            ("unix:/run/r.sock", Address::Unix("/run/r.sock".into()), open.clone()),
            (
                "redis+unix:///run/r.sock?db=2&user=u&pass=p%26",
                Address::Unix("/run/r.sock".into()),
                Access { credentials: entry(Some("u"), "p&"), database: 2, tls: false },
            ),
        ] {
            assert_eq!(Server::parse(url), Ok(Server { address, access }), "{url}");
        }
    }

    #[test]
    fn what_is_no_url_of_a_server_is_refused() {
        for (url, error) in [
            ("", UrlError::Form),
            ("127.0.0.1:6379", UrlError::Form),
            ("http://h", UrlError::Form),
            ("redis://h/x", UrlError::Database),
            ("redis://h/-1", UrlError::Database),
            ("redis://u@h", UrlError::Credentials),
            ("redis://:p%4@h", UrlError::Credentials),
            ("rediss://h/#insecure", UrlError::Fragment),
            ("redis://h/?protocol=resp3", UrlError::Parameter),
            ("unix:/a?x=1", UrlError::Parameter),
            ("unix:", UrlError::Path),
        ] {
            assert_eq!(Server::parse(url), Err(error), "{url}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        let server = Server::parse("redis://someone:hunter2@h").unwrap();
        let settings = Settings::new(Topology::Single(server), "a".to_owned());
        let shown = format!("{settings:?}");
        assert!(shown.contains("someone") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_cluster_calls_its_nodes_many_ways() {
        let asked = tcp("seed", 7000);
        for (text, address) in [
            ("10.0.0.1:7001", Some(tcp("10.0.0.1", 7001))),
            (":7001", Some(tcp("seed", 7001))),
            ("?:7001", Some(tcp("seed", 7001))),
            ("::1:7001", Some(tcp("::1", 7001))),
            ("[::1]:7001", Some(tcp("::1", 7001))),
            ("node.example:7001", Some(tcp("node.example", 7001))),
            ("nonsense", None),
            ("h:99999", None),
        ] {
            assert_eq!(Address::of_node(text, &asked), address, "{text}");
        }
    }
}
