//! Connections of the listener: how many, for how long, and how they end at a stop.
//!
//! Promises: a peer that opens a connection and says nothing, or says it a byte at a time, is cut off; beyond
//! so many connections as descriptors are there for the next one waits to be accepted and costs nothing; a request under way at a stop is
//! answered. What a request is about is the router's.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt as _;

use crate::runtime::Runtime;

/// Connections at once, whatever the system would give.
const MOST: u32 = 4_096;
/// How long the head of a request may take to come whole, the wait for its first byte included.
const HEAD_PATIENCE: Duration = Duration::from_secs(20);
/// How long a stop waits for a request under way. Who hasn't sent theirs whole by then is cut off.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// The pause after the system refused to accept, e.g. for want of file descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// All connections of one listener.
pub(crate) struct Connections {
    router: Router,
    runtime: Arc<Runtime>,
    seats: Arc<Semaphore>,
    most: u32,
}

/// How many connections a process that may hold so many descriptors takes. A quarter of them stays for the store, egress
/// and files, which work under way can't do without.
#[must_use]
pub fn within(descriptors: Option<u64>) -> u32 {
    let some = descriptors.map(|d| u32::try_from(d - d / 4).unwrap_or(u32::MAX));
    some.unwrap_or(MOST).clamp(1, MOST)
}

impl Connections {
    pub(crate) fn new(router: Router, runtime: Arc<Runtime>, most: u32) -> Self {
        Self { router, runtime, seats: Arc::new(Semaphore::new(most as usize)), most }
    }

    /// Accepts for ever.
    pub(crate) async fn accept(&self, listener: &TcpListener) {
        loop {
            let Ok(seat) = Arc::clone(&self.seats).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => self.runtime.spawn(self.serve(stream, peer, seat)),
                Err(e) => {
                    tracing::warn!("the listener can't accept: {e}");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    /// Waits until every connection has ended.
    pub(crate) async fn finished(&self) {
        let _ = self.seats.acquire_many(self.most).await;
    }

    fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        seat: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + 'static {
        let stopping = self.runtime.stopping().clone();
        let router = self.router.clone();
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let router = router.clone();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            async move { router.oneshot(request).await.map_err(|e: Infallible| e) }
        });
        async move {
            let _seat = seat;
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
            let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
            // An error is a peer that left or spoke no HTTP: nobody to tell.
            tokio::select! {
                _ = connection.as_mut() => return,
                () = stopping.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            let _ = tokio::time::timeout(LAST_REQUESTS, connection).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn connections_leave_descriptors_for_the_rest_of_the_work() {
        for (descriptors, most) in [
            (Some(1_024), 768),
            (Some(256), 192),
            (Some(0), 1),
            (Some(1_048_576), 4_096),
            (Some(u64::MAX), 4_096),
            (None, 4_096),
        ] {
            assert_eq!(within(descriptors), most, "{descriptors:?}");
        }
    }
}
