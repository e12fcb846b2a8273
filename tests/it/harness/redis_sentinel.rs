//! A master, two replicas and three sentinels that fail over within a second or two.

use super::redis::RedisServer;
use super::{happens, until};
use std::fmt::Write as _;
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The name of the master among its sentinels.
pub(crate) const MASTER: &str = "gates";

/// Everything of it. Each process is killed by its id when dropped.
pub(crate) struct Sentinels {
    /// The first is the master in the beginning.
    pub(crate) servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
    password: Option<String>,
}

struct Sentinel {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Sentinels {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// With a password that only the sentinels ask for.
    pub(crate) fn start_with(password: Option<&str>) -> Self {
        let master = RedisServer::start_with(&SERVER);
        let port = master.port().to_string();
        let replica = || RedisServer::start_with(&[&SERVER[..], &["--replicaof", "127.0.0.1", &port]].concat());
        let servers = vec![master, replica(), replica()];
        until("both replicas are in step", || servers[0].command(&["INFO", "replication"]).matches("state=online").count() == 2);
        let sentinels = (0..3).map(|_| Sentinel::start(servers[0].port(), password)).collect();
        let group = Self { servers, sentinels, password: password.map(str::to_owned) };
        let knows_all = |sentinel: &Sentinel| {
            let info = group.ask(sentinel, &["SENTINEL", "master", MASTER]);
            let number_of = |field: &str| info.lines().skip_while(|line| *line != field).nth(1).map(str::to_owned);
            number_of("num-other-sentinels").as_deref() == Some("2") && number_of("num-slaves").as_deref() == Some("2")
        };
        until("the sentinels know of one another", || group.sentinels.iter().all(knows_all));
        group
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        let entry = self.password.as_ref().map_or_else(String::new, |password| format!(":{password}@"));
        self.sentinels.iter().map(|sentinel| format!("redis://{entry}127.0.0.1:{}", sentinel.port)).collect()
    }

    /// Ends one of the sentinels.
    pub(crate) fn kill_sentinel(&mut self, index: usize) {
        self.sentinels[index].kill();
    }

    /// The port of the master, by what the last sentinel says.
    pub(crate) fn master(&self) -> u16 {
        let sentinel = self.sentinels.last().unwrap();
        let answer = self.ask(sentinel, &["SENTINEL", "get-master-addr-by-name", MASTER]);
        answer.lines().nth(1).and_then(|port| port.parse().ok()).unwrap_or_default()
    }

    /// Waits until another server than this is master and can be written.
    pub(crate) fn fails_over(&self, from: u16) -> &RedisServer {
        let promoted = || {
            let port = self.master();
            let server = self.servers.iter().find(|server| server.port() == port && port != from)?;
            (server.try_command(&["SET", "promoted", "1"])? == "OK").then_some(server)
        };
        assert!(happens(Duration::from_secs(30), || promoted().is_some()), "no failover");
        promoted().unwrap()
    }

    fn ask(&self, sentinel: &Sentinel, words: &[&str]) -> String {
        let mut client = super::redis::RedisClient::connect(sentinel.port).expect("a sentinel takes connections");
        if let Some(password) = &self.password {
            client.ask(&["AUTH", password]);
        }
        super::redis::text(&client.ask(words))
    }
}

impl Sentinel {
    fn start(master: u16, password: Option<&str>) -> Self {
        (0..5).find_map(|_| Self::try_start(master, password)).expect("a sentinel starts")
    }

    fn try_start(master: u16, password: Option<&str>) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut file = format!(
            "port {port}\nbind 127.0.0.1\ndir {0}\nlogfile {0}/sentinel.log\nsentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER} 700\nsentinel failover-timeout {MASTER} 3000\n",
            dir.path().display()
        );
        if let Some(password) = password {
            write!(file, "requirepass {password}\nsentinel sentinel-pass {password}\n").unwrap();
        }
        let path = dir.path().join("sentinel.conf");
        std::fs::write(&path, file).unwrap();
        let mut child = super::redis::server_command()
            .arg(&path)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server is installed");
        let listens = || super::redis::RedisClient::connect(port).is_ok();
        let started = happens(super::DEADLINE, || child.try_wait().unwrap().is_some() || listens());
        let mut sentinel = Self { child, port, _dir: dir };
        (started && sentinel.child.try_wait().unwrap().is_none()).then_some(sentinel)
    }

    fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}

const SERVER: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
