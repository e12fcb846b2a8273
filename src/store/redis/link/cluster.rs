//! Who has which slot, by what the cluster's nodes say. CLUSTER SLOTS, since every version knows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::dial::{Purpose, dial};
use super::fault::Reply;
use super::node::Node;
use super::settings::{Access, Address, Server};
use super::shared::Shared;

/// The slots, from and to and including, of each master; and who else there is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) masters: BTreeMap<Address, Vec<(u16, u16)>>,
    pub(super) replicas: Vec<Address>,
}

/// Why nobody has said it.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutError {
    #[error("{0}: {1}")]
    Node(Address, String),
    #[error("no node is known")]
    None,
}

/// Asks the nodes that are up, and if none of them answers, all that were ever known. The first answer counts: a node that is behind
/// sends clients on, and that is doubt enough to ask again.
pub(super) async fn layout(shared: &Arc<Shared>, seeds: &[Server], access: &Access) -> Result<Layout, LayoutError> {
    let map = shared.map.load_full();
    let mut asked = JoinSet::new();
    let up: Vec<&Arc<Node>> = map.nodes().iter().filter(|node| node.is_up()).collect();
    let from = usize::try_from(shared.clock.now()).unwrap_or_default().checked_rem(up.len()).unwrap_or_default();
    for node in up.iter().cycle().skip(from).take(up.len().min(AT_ONCE)) {
        asked.spawn(ask_node(Arc::clone(node)));
    }
    let from_known = first(asked).await;
    if from_known.is_ok() {
        return from_known;
    }
    let known = map.nodes().iter().map(|node| node.address.clone()).chain(map.others.iter().cloned());
    let servers = known.map(|address| Server { address, access: access.clone() });
    let mut asked = JoinSet::new();
    for server in seeds.iter().cloned().chain(servers).take(MOST_ASKED) {
        asked.spawn(ask_server(Arc::clone(shared), server));
    }
    first(asked).await
}

async fn first(mut asked: JoinSet<Result<Layout, LayoutError>>) -> Result<Layout, LayoutError> {
    let mut last = LayoutError::None;
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(layout)) => return Ok(layout),
            Ok(Err(error)) => last = error,
            // A task that was ended has nothing to say.
            Err(_) => {}
        }
    }
    Err(last)
}

async fn ask_node(node: Arc<Node>) -> Result<Layout, LayoutError> {
    let error = |why: String| LayoutError::Node(node.address.clone(), why);
    let wires = node.wires.load_full().ok_or_else(|| error("not connected".to_owned()))?;
    let wire = wires.of(0).ok_or_else(|| error("not connected".to_owned()))?;
    match wire.send(&command(), ANSWER).await {
        Ok(Reply::Answer(value)) => read(&value, &node.address).ok_or_else(|| error("an answer that says nothing".to_owned())),
        Ok(other) => Err(error(format!("{other:?}"))),
        Err(fault) => Err(error(fault.to_string())),
    }
}

async fn ask_server(shared: Arc<Shared>, server: Server) -> Result<Layout, LayoutError> {
    let Server { address, access } = server;
    let error = |why: String| LayoutError::Node(address.clone(), why);
    let settings = &shared.settings;
    let dialled = dial(&address, &access, settings.tls.as_ref(), Purpose::Decide, settings.connect_timeout).await;
    let (mut connection, driver) = dialled.map_err(|why| error(why.to_string()))?;
    let mut drivers = JoinSet::new();
    drivers.spawn(driver);
    match timeout(ANSWER, connection.send_packed_command(&command())).await {
        Err(_elapsed) => Err(error("no answer in time".to_owned())),
        Ok(Err(why)) => Err(error(why.to_string())),
        Ok(Ok(Value::ServerError(why))) => Err(error(why.to_string())),
        Ok(Ok(value)) => read(&value, &address).ok_or_else(|| error("an answer that says nothing".to_owned())),
    }
}

fn command() -> Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    command
}

/// `[[from, to, [host, port, …], replicas…], …]`; nothing if it has no slots at all.
fn read(value: &Value, asked: &Address) -> Option<Layout> {
    let Value::Array(ranges) = value else { return None };
    let mut layout = Layout::default();
    for range in ranges {
        let Value::Array(parts) = range else { return None };
        let [from, to, master, replicas @ ..] = parts.as_slice() else { return None };
        let range = (redis::from_redis_value_ref(from).ok()?, redis::from_redis_value_ref(to).ok()?);
        layout.masters.entry(node(master, asked)?).or_default().push(range);
        layout.replicas.extend(replicas.iter().filter_map(|replica| node(replica, asked)));
    }
    layout.replicas.sort();
    layout.replicas.dedup();
    (!layout.masters.is_empty()).then_some(layout)
}

fn node(value: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = value else { return None };
    let [host, port, ..] = parts.as_slice() else { return None };
    // A node that does not know its own name says nil.
    let host: Option<String> = redis::from_redis_value_ref(host).ok()?;
    Some(Address::in_cluster(&host.unwrap_or_default(), redis::from_redis_value_ref(port).ok()?, asked))
}

/// How long a node has to say who has which slot.
const ANSWER: Duration = Duration::from_millis(500);
/// How many of those in use are asked at once, beginning somewhere.
const AT_ONCE: usize = 4;
/// How many are asked when all that are in use are silent.
const MOST_ASKED: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_as_a_node_tells_them() {
        let asked = Address::Tcp { host: "seed".to_owned(), port: 1 };
        let at = |host: &str, port| Address::Tcp { host: host.to_owned(), port };
        let text = "*2\r\n*4\r\n:0\r\n:99\r\n*3\r\n$1\r\na\r\n:7\r\n$2\r\nid\r\n*3\r\n$1\r\nb\r\n:8\r\n$2\r\nid\r\n*3\r\n:100\r\n:100\r\n*3\r\n$-1\r\n:9\r\n$2\r\nid\r\n";
        let layout = read(&redis::parse_redis_value(text.as_bytes()).unwrap(), &asked).unwrap();
        assert_eq!(layout.masters, BTreeMap::from([(at("a", 7), vec![(0, 99)]), (at("seed", 9), vec![(100, 100)])]));
        assert_eq!(layout.replicas, [at("b", 8)]);
        assert_eq!(read(&Value::Array(vec![]), &asked), None);
        assert_eq!(read(&Value::Okay, &asked), None);
    }
}
