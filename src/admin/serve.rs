//! Serves HTTP/1 on the admin listener. hyper parses the requests; its only timeout for a head is also the one for idle
//! connections, so [`phase`](super::phase) enforces the time limits.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tower::Service;

use super::listener::Listener;
use super::open::Open;
use super::phase::{EventStream, Observer, Progress, Tracked};

/// How long after the close of the listener a client that has connected before may take to send its request.
const CLOSE_GRACE: Duration = Duration::from_millis(250);

/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Serves until the listener is closed, then finishes the requests that were sent before.
pub(super) async fn serve(mut listener: Listener, router: Router) {
    let mut closing = listener.closing();
    let mut closed = pin!(async move {
        // An error means the same: the sender is gone, and cannot close the listener later.
        _ = closing.wait_for(|closed| *closed).await;
        sleep(CLOSE_GRACE).await;
    });
    let (mut open, shutdown) = (Open::default(), GracefulShutdown::new());
    loop {
        tokio::select! {
            biased;
            () = &mut closed => break,
            Some(()) = open.next_end() => {}
            connection = listener.accept() => {
                open.make_room().await;
                let (phase, serving) = serve_one(connection, router.clone(), &shutdown);
                open.spawn(phase, serving);
            }
        }
    }
    drop(listener);
    shutdown.shutdown().await;
}

/// Serves a connection until its client closes it, a time limit passes, or the shutdown has begun and it is idle.
pub(super) fn serve_one<S>(
    stream: S,
    router: Router,
    shutdown: &GracefulShutdown,
) -> (Observer, impl Future<Output = ()> + Send + use<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (progress, phase) = Progress::new();
    let stream = TokioIo::new(Tracked::new(stream, progress.clone()));
    let service = service_fn(move |request| {
        progress.begin_response();
        let (progress, response) = (progress.clone(), router.clone().call(request));
        async move {
            let response = response.await?;
            if response.extensions().get::<EventStream>().is_some() {
                progress.begin_stream();
            }
            Ok::<_, Infallible>(response.map(|body| progress.track(body)))
        }
    });
    let connection =
        http1::Builder::new().header_read_timeout(None).max_buf_size(MAX_HEAD).serve_connection(stream, service);
    let (connection, expired) = (shutdown.watch(connection), phase.clone().expired());
    let serving = async move {
        tokio::select! {
            // An error is the client's fault, and hyper has answered it if possible.
            _ = connection => {}
            () = expired => {}
        }
    };
    (phase, serving)
}
