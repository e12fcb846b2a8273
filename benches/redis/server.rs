//! A Redis server of the benchmark's own.

use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;

/// A `redis-server`, or what `TOLLGATE_REDIS_SERVER` names, on a free port, with nothing on disk. Killed by its id when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> io::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new(std::env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into()))
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, port })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection, as soon as it takes one.
    pub(crate) async fn connection(&self) -> anyhow::Result<MultiplexedConnection> {
        let client = redis::Client::open(self.url())?;
        for _ in 0..PATIENCE {
            if let Ok(connection) = client.get_multiplexed_async_connection().await {
                return Ok(connection);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("the server does not answer")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the server has done so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Processor time in microseconds.
    pub(crate) cpu: f64,
    /// Calls of scripts.
    pub(crate) scripts: u64,
}

pub(crate) async fn work(connection: &mut MultiplexedConnection) -> anyhow::Result<Work> {
    let info = |section: &str| redis::cmd("INFO").arg(section).to_owned();
    let cpu: String = info("cpu").query_async(connection).await?;
    let stats: String = info("commandstats").query_async(connection).await?;
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.and_then(|line| line.split(',').next().and_then(|number| number.trim().parse::<f64>().ok())).unwrap_or(0.0)
    };
    let scripts = field(&stats, "cmdstat_evalsha:calls=");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of calls")]
    let scripts = scripts as u64;
    Ok(Work { cpu: (field(&cpu, "used_cpu_user:") + field(&cpu, "used_cpu_sys:")) * 1e6, scripts })
}

/// Bytes that Redis needs for a key on average, over all it has.
pub(crate) async fn bytes_per_key(connection: &mut MultiplexedConnection) -> anyhow::Result<u64> {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:{*").query_async(connection).await?;
    let (mut sum, mut count) = (0, 0);
    for key in keys.iter().take(100) {
        sum += redis::cmd("MEMORY").arg("USAGE").arg(key).query_async::<Option<u64>>(connection).await?.unwrap_or(0);
        count += 1;
    }
    Ok(sum / count.max(1))
}

/// Attempts, ten milliseconds apart.
const PATIENCE: u32 = 500;
