//! Redis being away, told once for the process and not once for each of its links.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use arc_swap::ArcSwapOption;

use crate::store::settings::RedisUrl;

/// How many links are down, and how often they have tried to connect since the first of them was.
#[derive(Debug, Default)]
pub(super) struct Outage {
    links: AtomicUsize,
    attempts: AtomicU64,
    /// Why the first of them could not connect.
    cause: ArcSwapOption<String>,
}

/// A link that is down.
#[derive(Debug)]
pub(super) struct Down<'o> {
    outage: &'o Outage,
    url: &'o RedisUrl,
    is_over: bool,
}

impl Outage {
    /// A link is down; the first says so.
    pub(super) fn begin<'o>(&'o self, url: &'o RedisUrl, error: &str) -> Down<'o> {
        if self.links.fetch_add(1, SeqCst) == 0 {
            self.attempts.store(0, SeqCst);
            self.cause.store(Some(Arc::new(error.to_owned())));
            tracing::warn!(%url, %error, "store is unreachable, trying on");
        }
        Down { outage: self, url, is_over: false }
    }

    /// Why nobody can connect at present.
    pub(super) fn cause(&self) -> Option<String> {
        self.cause.load().as_deref().cloned()
    }
}

impl Down<'_> {
    /// It could not connect.
    pub(super) fn failed(&self) {
        self.outage.attempts.fetch_add(1, SeqCst);
    }

    /// It is up again; the last says so.
    pub(super) fn over(mut self) {
        self.is_over = true;
    }
}

/// A link that ends while it is down is none that is back.
impl Drop for Down<'_> {
    fn drop(&mut self) {
        let is_last = self.outage.links.fetch_sub(1, SeqCst) == 1;
        if is_last {
            self.outage.cause.store(None);
        }
        if is_last && self.is_over {
            let attempts = self.outage.attempts.load(SeqCst);
            tracing::info!(url = %self.url, attempts, "store is back");
        }
    }
}
