//! One request over HTTP/2, on a connection that is there for nothing else.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::probe::CheckError;
use crate::upstream::transport::Transport;

/// What `judge` says of the response.
pub(super) async fn exchange<B, J>(
    connection: Transport,
    request: Request<B>,
    judge: impl FnOnce(Response<Incoming>) -> J,
) -> Result<(), CheckError>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + Unpin + 'static,
    J: Future<Output = Result<(), CheckError>>,
{
    let tasks = Arc::new(Mutex::new(JoinSet::new()));
    let (mut sender, connection) = http2::handshake(Spawns(Arc::downgrade(&tasks)), TokioIo::new(connection)).await?;
    let exchange = async { judge(sender.send_request(request).await?).await };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        _ended = connection => exchange.await,
    }
}

/// The URI of a request; `None` if there is none such.
pub(super) fn uri(scheme: Scheme, authority: &str, path: PathAndQuery) -> Option<Uri> {
    let mut parts = Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(authority.parse::<Authority>().ok()?);
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

/// Runs what hyper's connection is made of. All of it ends with the check, whatever the peer does.
#[derive(Clone)]
struct Spawns(Weak<Mutex<JoinSet<()>>>);

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Spawns {
    fn execute(&self, future: F) {
        if let Some(tasks) = self.0.upgrade() {
            tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
                let _ = future.await;
            });
        }
    }
}
