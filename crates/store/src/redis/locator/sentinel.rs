//! The sentinels of a master: queries them for its address, and subscribes to one of them to learn of changes.
//!
//! They are queried one after the other, starting with the last one that replied. A reply may be outdated or wrong, so
//! the caller has to verify it.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{ErrorKind, PushInfo, PushKind, RedisError, RedisResult, cmd};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout};

use super::address::Address;
use tidegate_rules::settings::store::SentinelSettings;

/// The timeout for connecting to a sentinel and for its reply. Then the next sentinel is queried.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval of queries to a sentinel with a subscription. They detect dead connections.
const QUERY_EVERY: Duration = Duration::from_secs(1);
/// Events that may change the address. The sentinel that leads a failover publishes `+promoted-slave` when the new
/// master is ready, and `+switch-master` only after it has reconfigured the other replicas.
const EVENTS: [&str; 2] = ["+switch-master", "+promoted-slave"];

/// The sentinels of a master.
#[derive(Debug)]
pub(super) struct Sentinels {
    /// How to reach the master; without its host and port.
    master: Address,
    name: String,
    sentinels: Vec<Address>,
    /// The index of the sentinel to query first.
    first: AtomicUsize,
    /// The last result and its time. Locked during a query.
    last_result: Mutex<Option<(Instant, Result<Located, String>)>>,
}

/// The address for a connection.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub address: Address,
    /// The index of the sentinel that named this address.
    pub named_by: Option<usize>,
}

/// A subscription to the events of a sentinel.
pub(super) struct Subscription<'s> {
    sentinels: &'s Sentinels,
    index: usize,
    connection: MultiplexedConnection,
    event: Arc<Notify>,
}

// === impl Sentinels ===

impl Sentinels {
    /// Creates the sentinels of a master, which have not been queried yet.
    ///
    /// # Errors
    /// A URL is not valid, there are no URLs, or the master has no name.
    pub(super) fn new(settings: &SentinelSettings, master: Address) -> RedisResult<Self> {
        let address = |url| Address::new(url, &settings.tls, settings.password_file.as_deref());
        let sentinels = settings.urls.iter().map(address).collect::<RedisResult<Vec<_>>>()?;
        let name = master.host().to_owned();
        if sentinels.is_empty() || name.is_empty() {
            let message = "needs at least one sentinel and the name of a master";
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, message)));
        }
        Ok(Self { master, name, sentinels, first: AtomicUsize::new(0), last_result: Mutex::default() })
    }

    /// Returns the address from the first sentinel that knows the master. Concurrent callers share one query, unless
    /// it ended before they called.
    pub(super) async fn find_master(&self) -> Result<Located, String> {
        let since = Instant::now();
        let mut last_result = self.last_result.lock().await;
        match &*last_result {
            Some((at, result)) if *at > since => result.clone(),
            _ => {
                let result = self.query_all().await;
                *last_result = Some((Instant::now(), result.clone()));
                result
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        self.sentinels.len()
    }

    /// Queries this sentinel first in future.
    pub(super) fn prefer(&self, index: usize) {
        self.first.store(index, Ordering::Relaxed);
    }

    /// Queries the next sentinel first in future, if this one was the first.
    pub(super) fn demote(&self, index: usize) {
        let next = (index + 1) % self.sentinels.len();
        _ = self.first.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Subscribes to the events of the first sentinel.
    ///
    /// # Errors
    /// The sentinel failed. The next call tries the next sentinel.
    pub(super) async fn subscribe(&self) -> Result<Subscription<'_>, String> {
        let index = self.first.load(Ordering::Relaxed);
        let sentinel = &self.sentinels[index];
        let event = Arc::new(Notify::new());
        let note = Arc::clone(&event);
        let on_push = move |push: &PushInfo| {
            if matches!(push.kind, PushKind::Message | PushKind::Disconnection) {
                note.notify_one();
            }
        };
        let subscribe = async {
            let mut connection = sentinel.open(on_push).await?;
            connection.subscribe(&EVENTS).await?;
            Ok(connection)
        };
        let connection = in_time(subscribe).await.map_err(|error| {
            self.demote(index);
            failed(sentinel, &error)
        })?;
        // The master may have moved before the subscription started.
        event.notify_one();
        Ok(Subscription { sentinels: self, index, connection, event })
    }

    async fn query_all(&self) -> Result<Located, String> {
        let first = self.first.load(Ordering::Relaxed);
        let (mut is_answered, mut failures) = (false, Vec::new());
        for index in (0..self.sentinels.len()).map(|step| (first + step) % self.sentinels.len()) {
            let sentinel = &self.sentinels[index];
            let ask = async { self.query_master(&mut sentinel.open(|_| ()).await?).await };
            match in_time(ask).await {
                Ok(Some(address)) => {
                    self.prefer(index);
                    return Ok(Located { address, named_by: Some(index) });
                }
                Ok(None) => is_answered = true,
                Err(error) => failures.push(failed(sentinel, &error)),
            }
        }
        // Sorted, so that the text does not depend on the first sentinel: a changed text is logged again.
        failures.sort();
        let failures = failures.join(", ");
        Err(match is_answered {
            true if failures.is_empty() => format!("no sentinel knows a master called `{}`", self.name),
            true => format!("no sentinel knows a master called `{}`; {failures}", self.name),
            false => format!("no sentinel of {} answers: {failures}", self.sentinels.len()),
        })
    }

    async fn query_master(&self, sentinel: &mut MultiplexedConnection) -> RedisResult<Option<Address>> {
        let mut ask = cmd("SENTINEL");
        let address: Option<(String, u16)> =
            ask.arg("get-master-addr-by-name").arg(&self.name).query_async(sentinel).await?;
        Ok(address.map(|(host, port)| self.master.moved_to(host, port)))
    }
}

// === impl Subscription ===

impl Subscription<'_> {
    /// Waits for an event, at most one second, and queries the address of the master.
    ///
    /// # Errors
    /// The sentinel does not reply, or does not know the master.
    pub(super) async fn next(&mut self) -> Result<Located, String> {
        _ = timeout(QUERY_EVERY, self.event.notified()).await;
        let result = in_time(self.sentinels.query_master(&mut self.connection)).await;
        let fault = match result {
            Ok(Some(address)) => return Ok(Located { address, named_by: Some(self.index) }),
            Ok(None) => format!("knows no master called `{}`", self.sentinels.name),
            Err(error) => error.to_string(),
        };
        self.sentinels.demote(self.index);
        Err(failed(&self.sentinels.sentinels[self.index], &fault))
    }
}

fn failed(sentinel: &Address, error: &impl Display) -> String {
    format!("{}: {error}", sentinel.host_and_port())
}

async fn in_time<T>(ask: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = |_| Err(io::Error::other("no answer in time").into());
    timeout(QUERY_TIMEOUT, ask).await.unwrap_or_else(late)
}
