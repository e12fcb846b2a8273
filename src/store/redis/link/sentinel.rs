//! Who the master is, by what sentinels say.

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::dial::{DialError, Purpose, dial};
use super::settings::{Address, Server, Settings};

/// The sentinels, and a connection to the one that answered last.
pub(super) struct Sentinels {
    sentinels: Vec<Server>,
    master: String,
    open: Option<(MultiplexedConnection, JoinSet<()>)>,
}

/// Why nobody has said who the master is.
#[derive(Debug, thiserror::Error)]
pub(super) enum SentinelError {
    #[error("{0}: {1}")]
    Dial(Address, DialError),
    #[error("{0}: no answer")]
    Silent(Address),
    #[error("{0}: knows no master of this name")]
    Unknown(Address),
    #[error("there are no sentinels")]
    None,
}

impl Sentinels {
    pub(super) fn new(sentinels: Vec<Server>, master: String) -> Self {
        Self { sentinels, master, open: None }
    }

    /// Where the master is, by the first sentinel that knows. The one that answered last is asked first.
    pub(super) async fn master(&mut self, settings: &Settings) -> Result<Address, SentinelError> {
        let mut last = SentinelError::None;
        for _ in 0..self.sentinels.len() {
            match self.ask_first(settings).await {
                Ok(address) => return Ok(address),
                Err(error) => last = error,
            }
            self.open = None;
            self.sentinels.rotate_left(1);
        }
        Err(last)
    }

    async fn ask_first(&mut self, settings: &Settings) -> Result<Address, SentinelError> {
        let Some(Server { address, access }) = self.sentinels.first() else { return Err(SentinelError::None) };
        let limit = settings.connect_timeout;
        if self.open.is_none() {
            let dialled = dial(address, access, settings.tls.as_ref(), Purpose::Discover, limit).await;
            let (connection, driver) = dialled.map_err(|error| SentinelError::Dial(address.clone(), error))?;
            let mut drivers = JoinSet::new();
            drivers.spawn(driver);
            self.open = Some((connection, drivers));
        }
        let Some((connection, _)) = &mut self.open else { return Err(SentinelError::None) };
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(&self.master);
        match timeout(limit, connection.send_packed_command(&command)).await {
            Ok(Ok(value)) => read(&value).ok_or_else(|| SentinelError::Unknown(address.clone())),
            Ok(Err(_)) | Err(_) => Err(SentinelError::Silent(address.clone())),
        }
    }
}

/// A host and a port, or nothing.
fn read(value: &Value) -> Option<Address> {
    let Value::Array(parts) = value else { return None };
    let [host, port] = parts.as_slice() else { return None };
    let (host, port): (String, u16) = (redis::from_redis_value_ref(host).ok()?, redis::from_redis_value_ref(port).ok()?);
    Some(Address::Tcp { host, port })
}
