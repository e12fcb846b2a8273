//! What is logged: changes, and no secrets.

use super::link_common::{Linked, single};
use crate::harness::{RedisServer, until};
use std::io::Write;
use std::sync::{Mutex, MutexGuard};
use tollgate::store::redis::link::Fault;

#[test]
fn a_line_when_it_changes_and_none_per_request() {
    let writer = || Lines;
    // The only test of this process that looks at its own log.
    tracing_subscriber::fmt().with_writer(writer).with_ansi(false).try_init().unwrap();
    let mut server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "gate", "on", ">hunter2", "~*", "+@all"]);
    let port = server.port();
    let linked = Linked::connected(single(&format!("redis://gate:hunter2@127.0.0.1:{port}")));
    until("a line says that it is up", || lines(port).len() == 1);
    for _ in 0..20 {
        assert!(linked.count("a").is_ok());
    }
    server.kill();
    until("a line says that it is down", || lines(port).len() == 2);
    for _ in 0..20 {
        assert_eq!(linked.count("a"), Err(Fault::Down));
    }
    // The new process knows no such user: that is no change.
    server.restart();
    until("the reason is known", || linked.trouble().contains("WRONGPASS"));
    server.command(&["ACL", "SETUSER", "gate", "on", ">hunter2", "~*", "+@all"]);
    until("a line says that it is up again", || lines(port).len() == 3);
    let lines = lines(port);
    for (line, words) in lines.iter().zip(["INFO", "WARN", "INFO"]) {
        assert!(line.contains(words), "{lines:?}");
    }
    let all = String::from_utf8(log().clone()).unwrap();
    assert!(!all.contains("hunter2"), "{all}");
}

/// The lines about a server.
fn lines(port: u16) -> Vec<String> {
    let log = log();
    let text = String::from_utf8_lossy(&log);
    text.lines().filter(|line| line.contains(&format!("127.0.0.1:{port}"))).map(str::to_owned).collect()
}

fn log() -> MutexGuard<'static, Vec<u8>> {
    LOG.lock().unwrap()
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        log().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
