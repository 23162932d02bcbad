//! An upgraded connection: another protocol than HTTP, after an upstream has responded with 101.
//!
//! For the client's connection, a tunnel is a response body. A separate task forwards the bytes of the client, so that
//! a client that does not read can still send. Each direction buffers at most 16 KiB, and stops reading while the
//! buffer is full.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::body::{BoxError, RequestBody};
use super::pool::Lease;
use super::tunnel_progress::TunnelProgress;
use crate::http::http1::{Piece, RemainingBody};
use crate::transport::BodyData;
use tidegate_metrics::{GaugeGuard, TunnelEnd};
use tidegate_rules::route::upgrade::TunnelLimits;

/// An upgraded connection. Closes on drop.
#[derive(Debug)]
pub(super) struct Tunnel {
    shared: Arc<TunnelShared>,
    /// The task that forwards the client's bytes. Ends once both sides have closed, or a limit is reached. `None` after
    /// its end.
    upload: Option<JoinHandle<TunnelEnd>>,
    _open: GaugeGuard,
}

/// The state that both directions share.
#[derive(Debug)]
struct TunnelShared {
    lease: Mutex<Lease>,
    progress: TunnelProgress,
}

// === impl Tunnel ===

impl Tunnel {
    /// Starts a tunnel between the client and the upstream, on the Tokio runtime.
    pub(super) fn start(lease: Lease, client: RequestBody, limits: TunnelLimits) -> Self {
        let open = lease.metrics().tunnel_opened();
        let shared = Arc::new(TunnelShared { lease: Mutex::new(lease), progress: TunnelProgress::new(limits) });
        let upload = Some(tokio::spawn(Arc::clone(&shared).run_upload(client)));
        Self { shared, upload, _open: open }
    }

    /// Reads the next bytes of the upstream. Empty trailers mean that the upstream has closed its half. The body ends
    /// when the client has closed its half, too.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        let Some(upload) = &mut self.upload else { return Poll::Ready(None) };
        if let Poll::Ready(ended) = Pin::new(upload).poll(cx) {
            return Poll::Ready(self.finish(ended.unwrap_or(TunnelEnd::Broken)));
        }
        if self.shared.progress.has_upstream_closed() {
            return Poll::Pending;
        }
        match ready!(self.shared.poll_read(cx)) {
            Ok(Some(data)) => Poll::Ready(Some(Ok(Frame::data(data.into())))),
            Ok(None) if self.shared.progress.has_client_closed() => Poll::Ready(self.finish(TunnelEnd::Closed)),
            Ok(None) => {
                self.shared.progress.close_upstream();
                Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new()))))
            }
            Err(_) => Poll::Ready(self.finish(TunnelEnd::Broken)),
        }
    }

    pub(super) fn is_end(&self) -> bool {
        self.upload.is_none()
    }

    /// Ends the body: with an error if the tunnel has broken.
    fn finish(&mut self, how: TunnelEnd) -> Option<Result<Frame<BodyData>, BoxError>> {
        if let Some(upload) = self.upload.take() {
            upload.abort();
            self.shared.lease.lock().metrics().tunnel_ended(how);
        }
        (how == TunnelEnd::Broken).then(|| Err(io::Error::from(io::ErrorKind::ConnectionReset).into()))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.finish(TunnelEnd::CutOff);
    }
}

// === impl TunnelShared ===

impl TunnelShared {
    /// Forwards the client's bytes, until both sides have closed or a limit is reached.
    async fn run_upload(self: Arc<Self>, client: RequestBody) -> TunnelEnd {
        let mut limit_reached = pin!(self.progress.limit_reached());
        tokio::select! {
            biased;
            sent = self.send_all(client) => match sent {
                // An upstream that has closed its half need not read the rest of the client's bytes.
                _ if self.progress.has_upstream_closed() => TunnelEnd::Closed,
                Ok(()) => limit_reached.await,
                Err(_) => TunnelEnd::Broken,
            },
            how = &mut limit_reached => how,
        }
    }

    /// Forwards all bytes of the client, then closes the write half.
    async fn send_all(&self, mut client: RequestBody) -> Result<(), BoxError> {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut client).poll_frame(cx)).await {
            if let Ok(data) = frame?.into_data() {
                self.send(data).await?;
            }
        }
        poll_fn(|cx| self.lease.lock().connection().poll_shutdown(cx)).await?;
        self.progress.close_client();
        Ok(())
    }

    async fn send(&self, data: BodyData) -> io::Result<()> {
        self.progress.record_bytes(data.len());
        self.lease.lock().connection().outgoing.push(data);
        poll_fn(|cx| self.lease.lock().connection().poll_write(cx)).await
    }

    /// Reads bytes of the upstream. Returns `None` at their end.
    fn poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let (mut lease, mut remaining) = (self.lease.lock(), RemainingBody::UntilClose);
        let connection = lease.connection();
        loop {
            if let Piece::Data(data) = connection.take_piece(&mut remaining)? {
                self.progress.record_bytes(data.len());
                return Poll::Ready(Ok(Some(data)));
            }
            if !ready!(connection.poll_more(&remaining, cx))? {
                return Poll::Ready(Ok(None));
            }
        }
    }
}
