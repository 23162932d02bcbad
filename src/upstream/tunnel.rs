//! A connection on which another protocol than HTTP is spoken, after an upstream has switched to it (101).
//!
//! To the client's connection it is the body of an answer. What the client sends is carried by a task of its own, so that a
//! client that does not read can still send. Each direction holds one piece of at most 16 KiB; while that waits, nothing
//! more is read.

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
use crate::http1::{Piece, RemainingBody};
use crate::metrics::{GaugeGuard, Switched};
use crate::upgrade::TunnelLimits;

/// Such a connection. On drop, it is closed.
#[derive(Debug)]
pub(super) struct Tunnel {
    way: Arc<TunnelShared>,
    /// Ends when the client has closed its half after the upstream has, or a bound is reached. None once it has.
    carrying: Option<JoinHandle<Switched>>,
    _open: GaugeGuard,
}

/// What the two directions share.
#[derive(Debug)]
struct TunnelShared {
    lease: Mutex<Lease>,
    progress: TunnelProgress,
}

// === impl Tunnel ===

impl Tunnel {
    /// Joins the two ends, on the Tokio runtime.
    pub(super) fn begin(lease: Lease, client: RequestBody, bounds: TunnelLimits) -> Self {
        let open = lease.metrics().switched();
        let way = Arc::new(TunnelShared { lease: Mutex::new(lease), progress: TunnelProgress::new(bounds) });
        let carrying = Some(tokio::spawn(Arc::clone(&way).carry(client)));
        Self { way, carrying, _open: open }
    }

    /// What the upstream sends. When it has closed its half, a frame of trailers says so, and the end follows when the client
    /// has closed its own.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(carrying) = &mut self.carrying else { return Poll::Ready(None) };
        if let Poll::Ready(ended) = Pin::new(carrying).poll(cx) {
            return Poll::Ready(self.end(ended.unwrap_or(Switched::Broken)));
        }
        if self.way.progress.upstream_has_ended() {
            return Poll::Pending;
        }
        match ready!(self.way.poll_read(cx)) {
            Ok(Some(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Ok(None) if self.way.progress.client_has_ended() => Poll::Ready(self.end(Switched::Closed)),
            Ok(None) => {
                self.way.progress.end_upstream();
                Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new()))))
            }
            Err(_) => Poll::Ready(self.end(Switched::Broken)),
        }
    }

    pub(super) fn is_end(&self) -> bool {
        self.carrying.is_none()
    }

    /// The end for the client's connection: an error if the other side has not closed in order.
    fn end(&mut self, how: Switched) -> Option<Result<Frame<Bytes>, BoxError>> {
        if let Some(carrying) = self.carrying.take() {
            carrying.abort();
            self.way.lease.lock().metrics().switched_ended(how);
        }
        (how == Switched::Broken).then(|| Err(io::Error::from(io::ErrorKind::ConnectionReset).into()))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.end(Switched::CutOff);
    }
}

// === impl TunnelShared ===

impl TunnelShared {
    /// Carries what the client sends, until both sides have ended or a bound is reached.
    async fn carry(self: Arc<Self>, client: RequestBody) -> Switched {
        let mut overdue = pin!(self.progress.overdue());
        tokio::select! {
            biased;
            sent = self.send_all(client) => match sent {
                // What an upstream that has closed does not take any more is no loss of its client's.
                _ if self.progress.upstream_has_ended() => Switched::Closed,
                Ok(()) => overdue.await,
                Err(_) => Switched::Broken,
            },
            how = &mut overdue => how,
        }
    }

    /// Sends what the client sends, and its end.
    async fn send_all(&self, mut client: RequestBody) -> Result<(), BoxError> {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut client).poll_frame(cx)).await {
            self.send(frame?.into_data().unwrap_or_default()).await?;
        }
        poll_fn(|cx| self.lease.lock().connection().poll_shutdown(cx)).await?;
        self.progress.end_client();
        Ok(())
    }

    async fn send(&self, data: Bytes) -> io::Result<()> {
        self.progress.note(data.len());
        self.lease.lock().connection().outgoing.push(data);
        poll_fn(|cx| self.lease.lock().connection().poll_write(cx)).await
    }

    /// Reads what the upstream sends; nothing at its end.
    fn poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let (mut lease, mut left) = (self.lease.lock(), RemainingBody::UntilClose);
        let connection = lease.connection();
        loop {
            if let Piece::Data(data) = connection.take(&mut left)? {
                self.progress.note(data.len());
                return Poll::Ready(Ok(Some(data)));
            }
            if !ready!(connection.poll_more(&left, cx))? {
                return Poll::Ready(Ok(None));
            }
        }
    }
}
