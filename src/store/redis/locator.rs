//! Where a node is: always at its address, or at that of a master whom sentinels know, and who may be replaced.
//!
//! Whatever sentinels say, a master is where somebody says that it is one. Connections to any other place are left.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{ErrorKind, RedisError, RedisResult, Value, cmd};
use tokio::sync::{Mutex, watch};
use tokio::time::{Duration, Instant, sleep, timeout};

use super::address::Address;
use super::breaker::{Pauses, jittered};
use super::sentinel::Sentinels;
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
    pub(super) async fn locate(&self) -> Result<Address, String> {
        match &self.sentinels {
            Some(sentinels) => sentinels.ask().await,
            None => Ok(self.address.clone()),
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
        let role: Vec<Value> = cmd("ROLE").query_async(redis).await?;
        match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            _ => Err(RedisError::from((ErrorKind::Client, "sentinels say that it is the master, and it is none"))),
        }
    }

    /// There it was found. Connections to any other place are left.
    pub(super) fn found(&self, address: &Address) {
        if self.sentinels.is_none() {
            return;
        }
        let (master, mut was) = (address.place(), None);
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
    pub(super) fn not_found(&self, address: &Address, error: &str) -> String {
        match &self.sentinels {
            Some(sentinels) => {
                sentinels.doubt();
                format!("{} {error}", address.place())
            }
            None => error.to_owned(),
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
        let mut pauses = Pauses::default();
        loop {
            let since = Instant::now();
            if let Ok(mut sentinel) = sentinels.follow().await {
                while let Ok(told) = sentinel.next().await {
                    self.heard(&told).await;
                }
            }
            sentinels.doubt();
            sleep(jittered(pauses.after_connection(since.elapsed()))).await;
        }
    }

    /// A sentinel says that the master is there.
    async fn heard(&self, told: &Address) {
        if self.master().is_some_and(|known| known == told.place()) {
            return;
        }
        let verify = async { self.verify(&mut told.open(|_| ()).await?).await };
        if let Ok(Ok(())) = timeout(VERIFY_TIMEOUT, verify).await {
            self.found(told);
        }
    }
}
