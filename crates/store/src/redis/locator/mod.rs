//! Finds the address of a node: a fixed address, or with sentinels the address of the current master.
//!
//! The address that a sentinel names is verified on the connection: the server must reply to `ROLE` with `master`.
//! When a master has been verified at another address, all connections to the old address are closed.

mod address;
mod sentinel;

use std::convert::Infallible;
use std::time::Duration;
use std::{io, mem};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{RedisResult, Value, cmd};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, timeout};

pub(super) use self::address::Address;
use self::sentinel::{Located, Sentinels};
use super::backoff::{Backoff, jittered};
use tidegate_rules::settings::store::RedisSettings;

/// The timeout for verifying a server, including connecting.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(1);

/// Finds the address of a node.
#[derive(Debug)]
pub(super) struct Locator {
    /// With sentinels, its host is the name of the master.
    address: Address,
    sentinels: Option<Sentinels>,
    /// The host and port at which a master was last verified.
    master: watch::Sender<Option<String>>,
    /// Held by the task that subscribes to a sentinel, for all connections of the gateway.
    watching: Mutex<()>,
}

// === impl Locator ===

impl Locator {
    /// Creates the locator of the server or master of a store.
    ///
    /// # Errors
    /// A URL is not valid.
    pub(super) fn new(settings: &RedisSettings) -> RedisResult<Self> {
        let address = Address::new(&settings.url, &settings.tls, settings.password_file.as_deref())?;
        let sentinels = settings.sentinel.as_ref().map(|sentinel| Sentinels::new(sentinel, address.clone()));
        Ok(Self {
            address,
            sentinels: sentinels.transpose()?,
            master: watch::Sender::new(None),
            watching: Mutex::default(),
        })
    }

    /// Creates a locator for a fixed address.
    pub(super) fn fixed(address: Address) -> Self {
        Self { address, sentinels: None, master: watch::Sender::new(None), watching: Mutex::default() }
    }

    /// Returns how to reach the node. With sentinels, its host is the name of the master.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the address to connect to.
    ///
    /// # Errors
    /// No sentinel names an address.
    pub(super) async fn locate(&self) -> Result<Located, String> {
        match &self.sentinels {
            Some(sentinels) => sentinels.find_master().await,
            None => Ok(Located { address: self.address.clone(), named_by: None }),
        }
    }

    /// If there are sentinels, verifies that this server is a master.
    /// # Errors
    /// The server is not a master, or does not reply.
    pub(super) async fn verify(&self, redis: &mut MultiplexedConnection) -> RedisResult<()> {
        if self.sentinels.is_none() {
            return Ok(());
        }
        let role: Vec<Value> = cmd("ROLE").query_async(redis).await?;
        match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            _ => Err(io::Error::other("not a master, although a sentinel says so").into()),
        }
    }

    /// Records that a master was verified at this address. Connections to other addresses are closed, and the sentinel
    /// that named it is queried first. Returns `false` if another address was verified since `moves` was last read:
    /// that address is newer.
    pub(super) fn on_verified(&self, located: &Located, moves: &watch::Receiver<Option<String>>) -> bool {
        let (Some(sentinels), Some(sentinel)) = (&self.sentinels, located.named_by) else { return true };
        let is_here = self.master().is_some_and(|master| master == located.address.host_and_port());
        if moves.has_changed().unwrap_or(false) && !is_here {
            return false;
        }
        sentinels.prefer(sentinel);
        let (master, mut was) = (located.address.host_and_port(), None);
        self.master.send_if_modified(|current| {
            let is_new = current.as_ref() != Some(&master);
            if is_new {
                was = current.replace(master.clone());
            }
            is_new
        });
        if let Some(was) = was {
            tracing::info!(name = self.address.host(), master, was, "store has another master");
        }
        true
    }

    /// Records that connecting to this address failed, so that another sentinel is queried first. Returns the error
    /// with the address.
    pub(super) fn on_connect_failed(&self, located: &Located, error: &str) -> String {
        match (&self.sentinels, located.named_by) {
            (Some(sentinels), Some(sentinel)) => {
                sentinels.demote(sentinel);
                format!("{}: {error}", located.address.host_and_port())
            }
            _ => error.to_owned(),
        }
    }

    /// Returns the address at which a master was last verified.
    pub(super) fn master(&self) -> Option<String> {
        self.master.borrow().clone()
    }

    /// Returns a receiver that changes whenever a master was verified at another address.
    pub(super) fn moves(&self) -> watch::Receiver<Option<String>> {
        self.master.subscribe()
    }

    /// Waits until a master was verified at another address than this one.
    pub(super) async fn wait_until_moved(&self, address: &str) {
        let mut current = self.moves();
        let is_redirected = |current: &Option<String>| current.as_ref().is_some_and(|current| current != address);
        // Fails only without a sender, but `self` has one.
        _ = current.wait_for(is_redirected).await;
    }

    /// Subscribes to one sentinel at a time, forever. Every connection manager calls this and one holds the lock; when
    /// its task ends, another takes over. If no sentinel replies, the address stays the same.
    pub(super) async fn watch(&self) {
        let Some(sentinels) = &self.sentinels else { return std::future::pending().await };
        let _watching = self.watching.lock().await;
        let (mut backoff, mut failures) = (Backoff::default(), 0);
        loop {
            let since = Instant::now();
            let Err(error) = self.follow(sentinels, &mut failures).await;
            failures += 1;
            if failures == sentinels.count() {
                tracing::warn!(name = self.address.host(), error, "no sentinel answers, retrying");
            }
            sleep(jittered(backoff.after_connection(since.elapsed()))).await;
        }
    }

    /// Reads the events of a sentinel until it fails.
    async fn follow(&self, sentinels: &Sentinels, failures: &mut usize) -> Result<Infallible, String> {
        let mut sentinel = sentinels.subscribe().await?;
        loop {
            let located = sentinel.next().await?;
            if mem::take(failures) >= sentinels.count() {
                tracing::info!(name = self.address.host(), "a sentinel answers again");
            }
            self.on_master_named(&located).await;
        }
    }

    /// Verifies an address that a sentinel named, unless it is already known.
    async fn on_master_named(&self, located: &Located) {
        if self.master().is_some_and(|current| current == located.address.host_and_port()) {
            return;
        }
        let moves = self.moves();
        let verify = async { self.verify(&mut located.address.open(|_| ()).await?).await };
        if let Ok(Ok(())) = timeout(VERIFY_TIMEOUT, verify).await {
            self.on_verified(located, &moves);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_rules::settings::store::{RedisUrl, SentinelSettings};

    #[tokio::test]
    async fn late_reply_does_not_replace_a_newer_master() {
        let urls = vec![RedisUrl::new("redis://127.0.0.1:26379".to_owned())];
        let sentinel = Some(Box::new(SentinelSettings { urls, ..SentinelSettings::default() }));
        let settings = RedisSettings { sentinel, ..RedisSettings::new(RedisUrl::new("redis://limits".to_owned())) };
        let locator = Locator::new(&settings).expect("a locator");
        let at = |port| Located { address: locator.address.moved_to("127.0.0.1".to_owned(), port), named_by: Some(0) };
        let moves = locator.moves();
        assert!(locator.on_verified(&at(1), &locator.moves()));
        assert!(locator.on_verified(&at(2), &locator.moves()));
        assert!(locator.on_verified(&at(2), &moves) && !locator.on_verified(&at(1), &moves));
        assert_eq!(locator.master().as_deref(), Some("127.0.0.1:2"));
    }
}
