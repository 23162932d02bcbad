//! Where a node is: always at its address, or at that of a master whom sentinels know, and who may be replaced.
//!
//! Whatever sentinels say, a master is where somebody says that it is one. Connections to any other place are left.

use std::convert::Infallible;
use std::time::Duration;
use std::{io, mem};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{RedisResult, Value, cmd};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::breaker::{Pauses, jittered};
use super::sentinel::{Located, Sentinels};
use crate::store::settings::RedisSettings;

/// The longest that somebody may take to say that it is a master.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a node is.
#[derive(Debug)]
pub(super) struct Locator {
    /// Without its place, if that is for sentinels to say.
    address: Address,
    sentinels: Option<Sentinels>,
    /// Where somebody last said that it is the master.
    master: watch::Sender<Option<String>>,
    /// Had by who follows the sentinels, for all connections of the gateway.
    watching: Mutex<()>,
}

// === impl Locator ===

impl Locator {
    /// # Errors
    /// A URL is none that leads to a Redis.
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

    /// Where the next connection leads.
    ///
    /// # Errors
    /// No sentinel tells.
    pub(super) async fn locate(&self) -> Result<Located, String> {
        match &self.sentinels {
            Some(sentinels) => sentinels.ask().await,
            None => Ok(Located { address: self.address.clone(), told_by: None }),
        }
    }

    /// Is this the master that sentinels say it is?
    ///
    /// # Errors
    /// It is none, or does not answer.
    pub(super) async fn verify(&self, redis: &mut MultiplexedConnection) -> RedisResult<()> {
        if self.sentinels.is_none() {
            return Ok(());
        }
        let told: Vec<Value> = cmd("ROLE").query_async(redis).await?;
        match told.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            _ => Err(io::Error::other("is no master, though a sentinel says so").into()),
        }
    }

    /// There it was found. Connections to any other place are left, and who told so is asked first.
    pub(super) fn found(&self, located: &Located) {
        let (Some(sentinels), Some(sentinel)) = (&self.sentinels, located.told_by) else { return };
        sentinels.trust(sentinel);
        let (master, mut was) = (located.address.place(), None);
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
    }

    /// There it was not found, for this reason: another sentinel is asked first. The reason names the place.
    pub(super) fn not_found(&self, located: &Located, error: &str) -> String {
        match (&self.sentinels, located.told_by) {
            (Some(sentinels), Some(sentinel)) => {
                sentinels.doubt(sentinel);
                format!("{}: {error}", located.address.place())
            }
            _ => error.to_owned(),
        }
    }

    /// Where the master was last.
    pub(super) fn master(&self) -> Option<String> {
        self.master.borrow().clone()
    }

    /// Tells when the master is found at another place.
    pub(super) fn moves(&self) -> watch::Receiver<Option<String>> {
        self.master.subscribe()
    }

    /// Returns when the master is known to be elsewhere.
    pub(super) async fn left(&self, place: &str) {
        let mut known = self.moves();
        let is_elsewhere = |known: &Option<String>| known.as_ref().is_some_and(|known| known != place);
        // The sender lives as long as this.
        _ = known.wait_for(is_elsewhere).await;
    }

    /// Follows what sentinels say, one at a time, as long as it is polled. Where they are all away, nothing changes. One of
    /// those who call this does so, and the next when it is gone.
    pub(super) async fn watch(&self) {
        let Some(sentinels) = &self.sentinels else { return std::future::pending().await };
        let _watching = self.watching.lock().await;
        let (mut pauses, mut failures) = (Pauses::default(), 0);
        loop {
            let since = Instant::now();
            let Err(error) = self.follow(sentinels, &mut failures).await;
            failures += 1;
            if failures == sentinels.count() {
                tracing::warn!(name = self.address.host(), error, "no sentinel tells of new masters, asking on");
            }
            sleep(jittered(pauses.after_connection(since.elapsed()))).await;
        }
    }

    /// Follows a sentinel until it fails.
    async fn follow(&self, sentinels: &Sentinels, failures: &mut usize) -> Result<Infallible, String> {
        let mut sentinel = sentinels.follow().await?;
        loop {
            let told = sentinel.next().await?;
            if mem::take(failures) >= sentinels.count() {
                tracing::info!(name = self.address.host(), "a sentinel tells of new masters again");
            }
            self.heard(&told).await;
        }
    }

    /// A sentinel says that the master is there.
    async fn heard(&self, told: &Located) {
        if self.master().is_some_and(|known| known == told.address.place()) {
            return;
        }
        let verify = async { self.verify(&mut told.address.open(|_| ()).await?).await };
        if let Ok(Ok(())) = timeout(VERIFY_TIMEOUT, verify).await {
            self.found(told);
        }
    }
}
