//! Where a node is: at a fixed address, or, with sentinels, wherever the master is at present.
//!
//! What sentinels say is verified on the connection itself: the server must answer `ROLE` with `master`. When the master was
//! verified at another address, all connections to the old one are given up.

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
use crate::store::settings::RedisSettings;

/// The longest that verifying a server may take, connecting included.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a node is.
#[derive(Debug)]
pub(super) struct Locator {
    /// With sentinels, its host is the name of the master.
    address: Address,
    sentinels: Option<Sentinels>,
    /// Host and port where the master was verified last.
    master: watch::Sender<Option<String>>,
    /// Held by the task that follows a sentinel, for all connections of the gateway.
    watching: Mutex<()>,
}

// === impl Locator ===

impl Locator {
    /// # Errors
    /// A URL cannot be parsed.
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

    /// Of a node that stays where it is.
    pub(super) fn fixed(address: Address) -> Self {
        Self { address, sentinels: None, master: watch::Sender::new(None), watching: Mutex::default() }
    }

    /// How it is reached; without its place, if that is for sentinels to say.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the address to connect to.
    ///
    /// # Errors
    /// No sentinel names one.
    pub(super) async fn locate(&self) -> Result<Located, String> {
        match &self.sentinels {
            Some(sentinels) => sentinels.find_master().await,
            None => Ok(Located { address: self.address.clone(), named_by: None }),
        }
    }

    /// With sentinels, checks that this server is a master.
    ///
    /// # Errors
    /// It is not, or does not answer.
    pub(super) async fn verify(&self, redis: &mut MultiplexedConnection) -> RedisResult<()> {
        if self.sentinels.is_none() {
            return Ok(());
        }
        let told: Vec<Value> = cmd("ROLE").query_async(redis).await?;
        match told.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            _ => Err(io::Error::other("not a master, although a sentinel says so").into()),
        }
    }

    /// Notes that the node was verified at this address. Connections to any other address are given up, and the sentinel that
    /// named it is asked first. Returns false if another address was verified since `moves` was looked at, before this one
    /// was asked for: that one is newer.
    pub(super) fn on_verified(&self, located: &Located, moves: &watch::Receiver<Option<String>>) -> bool {
        let (Some(sentinels), Some(sentinel)) = (&self.sentinels, located.named_by) else { return true };
        let is_here = self.master().is_some_and(|master| master == located.address.host_and_port());
        if moves.has_changed().unwrap_or(false) && !is_here {
            return false;
        }
        sentinels.prefer(sentinel);
        let (master, mut was) = (located.address.host_and_port(), None);
        self.master.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&master);
            if is_new {
                was = known.replace(master.clone());
            }
            is_new
        });
        if let Some(was) = was {
            tracing::info!(name = self.address.host(), master, was, "store has another master");
        }
        true
    }

    /// Notes that connecting to this address failed: another sentinel is asked first. Returns the error with the address.
    pub(super) fn on_connect_failed(&self, located: &Located, error: &str) -> String {
        match (&self.sentinels, located.named_by) {
            (Some(sentinels), Some(sentinel)) => {
                sentinels.demote(sentinel);
                format!("{}: {error}", located.address.host_and_port())
            }
            _ => error.to_owned(),
        }
    }

    /// Where the master was verified last.
    pub(super) fn master(&self) -> Option<String> {
        self.master.borrow().clone()
    }

    /// Changes whenever the master was verified at another address.
    pub(super) fn moves(&self) -> watch::Receiver<Option<String>> {
        self.master.subscribe()
    }

    /// Waits until the master was verified at another address than this.
    pub(super) async fn wait_until_moved(&self, address: &str) {
        let mut known = self.moves();
        let is_redirected = |known: &Option<String>| known.as_ref().is_some_and(|known| known != address);
        // Fails only without a sender, which is in `self`.
        _ = known.wait_for(is_redirected).await;
    }

    /// Follows one sentinel at a time, for ever. Each connection manager calls this, and only one of them gets the lock; when its
    /// task ends, the next one goes on. Without an answer from any sentinel nothing changes.
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

    /// Follows a sentinel until it fails.
    async fn follow(&self, sentinels: &Sentinels, failures: &mut usize) -> Result<Infallible, String> {
        let mut sentinel = sentinels.subscribe().await?;
        loop {
            let told = sentinel.next().await?;
            if mem::take(failures) >= sentinels.count() {
                tracing::info!(name = self.address.host(), "a sentinel answers again");
            }
            self.on_master_named(&told).await;
        }
    }

    /// Verifies an address that a sentinel named, if it is new.
    async fn on_master_named(&self, told: &Located) {
        if self.master().is_some_and(|known| known == told.address.host_and_port()) {
            return;
        }
        let moves = self.moves();
        let verify = async { self.verify(&mut told.address.open(|_| ()).await?).await };
        if let Ok(Ok(())) = timeout(VERIFY_TIMEOUT, verify).await {
            self.on_verified(told, &moves);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::settings::{RedisUrl, SentinelSettings};

    #[tokio::test]
    async fn a_master_that_was_asked_for_before_another_was_found_is_no_news() {
        let urls = vec![RedisUrl::new("redis://127.0.0.1:26379".to_owned())];
        let sentinel = Some(Box::new(SentinelSettings { urls, ..SentinelSettings::default() }));
        let settings = RedisSettings { sentinel, ..RedisSettings::new(RedisUrl::new("redis://limits".to_owned())) };
        let locator = Locator::new(&settings).expect("a locator");
        let at = |port| Located { address: locator.address.moved_to("127.0.0.1".to_owned(), port), named_by: Some(0) };
        let slow = locator.moves();
        assert!(locator.on_verified(&at(1), &locator.moves()));
        assert!(locator.on_verified(&at(2), &locator.moves()));
        assert!(locator.on_verified(&at(2), &slow) && !locator.on_verified(&at(1), &slow));
        assert_eq!(locator.master().as_deref(), Some("127.0.0.1:2"));
    }
}
