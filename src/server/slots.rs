//! The connection cap, and what is said to those beyond it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::metrics::Metrics;

const FULL: &str = concat!(
    r#"{"detail":"too many connections","status":503,"title":"Service Unavailable","type":"about:blank"}"#,
    "\n"
);

/// How long, and for how many at a time, a refused connection is kept until its client has taken the answer. Closed
/// at once, it would be reset by the request that is on its way, and the answer lost.
const LINGER: Duration = Duration::from_secs(1);
const LINGERING: usize = 64;

/// The places for connections, shared by all workers.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max: usize,
    taken: AtomicUsize,
    lingering: AtomicUsize,
    metrics: Arc<Metrics>,
}

/// A connection's place, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Shared>);

// === impl Slots ===

impl Slots {
    pub(crate) fn new(max: usize, metrics: Arc<Metrics>) -> Self {
        let (taken, lingering) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Shared { max, taken, lingering, metrics }))
    }

    /// A place, if there is one.
    pub(crate) fn take(&self) -> Option<Slot> {
        count_up(&self.0.taken, self.0.max)?;
        self.0.metrics.connection_opened();
        Some(Slot(self.0.clone()))
    }

    /// Turns a client away, with an answer if it takes it.
    pub(crate) fn refuse(&self, stream: TcpStream) {
        self.0.metrics.connection_refused();
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{FULL}",
            FULL.len()
        );
        // A fresh socket has room for it; if it has not, the client goes without.
        _ = stream.try_write(answer.as_bytes());
        if count_up(&self.0.lingering, LINGERING).is_some() {
            let shared = self.0.clone();
            tokio::spawn(async move {
                _ = timeout(LINGER, wait_for_end(stream)).await;
                shared.lingering.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}

/// Counts up unless `max` has been reached.
fn count_up(counter: &AtomicUsize, max: usize) -> Option<usize> {
    let up = |count| (count < max).then_some(count + 1);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, up).ok()
}

/// Throws away what the client sends until it closes.
async fn wait_for_end(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut scratch = [0; 4096];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut scratch) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

// === impl Slot ===

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.connection_closed();
    }
}
