//! Redis Sentinel: who knows where the master is.
//!
//! The sentinels are asked one after the other, first the one that answered last. What they say is not relied upon: whoever
//! connects to the Redis there finds out whether it is a master.

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
use crate::store::settings::SentinelSettings;

/// The longest that a sentinel may take, to connect and to answer: then the next is asked.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);
/// A sentinel that is followed tells of a new master by itself. It is asked all the same, to find out whether it is there.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// When it pays to ask: there is a new master; and, told by the sentinel that replaces it, it knows that it is one. In between,
/// other replicas are told of it.
const NEWS: [&str; 2] = ["+switch-master", "+promoted-slave"];

/// The sentinels of a master.
#[derive(Debug)]
pub(super) struct Sentinels {
    /// The master, at no place yet.
    master: Address,
    name: String,
    sentinels: Vec<Address>,
    /// Who is asked first.
    first: AtomicUsize,
    /// What the last round of questions led to, and when it was over.
    asked: Mutex<Option<(Instant, Result<Located, String>)>>,
}

/// Where a connection is to lead.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub(super) address: Address,
    /// The number of the sentinel that says so.
    pub(super) told_by: Option<usize>,
}

/// A sentinel that tells of new masters.
pub(super) struct Followed<'s> {
    sentinels: &'s Sentinels,
    index: usize,
    connection: MultiplexedConnection,
    news: Arc<Notify>,
}

// === impl Sentinels ===

impl Sentinels {
    /// # Errors
    /// A URL is none that leads to a sentinel, or there is none, or the master has no name.
    pub(super) fn new(settings: &SentinelSettings, master: Address) -> RedisResult<Self> {
        let address = |url| Address::new(url, &settings.tls, settings.password_file.as_deref());
        let sentinels = settings.urls.iter().map(address).collect::<RedisResult<Vec<_>>>()?;
        let name = master.host().to_owned();
        if sentinels.is_empty() || name.is_empty() {
            let what = "there must be a sentinel, and a name of a master";
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, what)));
        }
        Ok(Self { master, name, sentinels, first: AtomicUsize::new(0), asked: Mutex::default() })
    }

    /// Where the master is, by the first of them who knows. Who comes while others ask has their answer, if it is newer.
    pub(super) async fn ask(&self) -> Result<Located, String> {
        let since = Instant::now();
        let mut asked = self.asked.lock().await;
        match &*asked {
            Some((at, told)) if *at > since => told.clone(),
            _ => {
                let told = self.ask_in_turn().await;
                *asked = Some((Instant::now(), told.clone()));
                told
            }
        }
    }

    /// How many they are.
    pub(super) fn count(&self) -> usize {
        self.sentinels.len()
    }

    /// From now on this one is asked first.
    pub(super) fn trust(&self, index: usize) {
        self.first.store(index, Ordering::Relaxed);
    }

    /// From now on the one after this is asked first, unless that has changed already.
    pub(super) fn doubt(&self, index: usize) {
        let next = (index + 1) % self.sentinels.len();
        _ = self.first.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Finds a sentinel to follow.
    ///
    /// # Errors
    /// The one whose turn it is cannot be followed.
    pub(super) async fn follow(&self) -> Result<Followed<'_>, String> {
        let index = self.first.load(Ordering::Relaxed);
        let sentinel = &self.sentinels[index];
        let news = Arc::new(Notify::new());
        let note = Arc::clone(&news);
        let on_push = move |push: &PushInfo| {
            if matches!(push.kind, PushKind::Message | PushKind::Disconnection) {
                note.notify_one();
            }
        };
        let subscribe = async {
            let mut connection = sentinel.open(on_push).await?;
            connection.subscribe(&NEWS).await?;
            Ok(connection)
        };
        let connection = in_time(subscribe).await.map_err(|error| {
            self.doubt(index);
            failed(sentinel, &error)
        })?;
        // Somebody may have become the master before anybody heard of it.
        news.notify_one();
        Ok(Followed { sentinels: self, index, connection, news })
    }

    async fn ask_in_turn(&self) -> Result<Located, String> {
        let first = self.first.load(Ordering::Relaxed);
        let (mut is_answered, mut failures) = (false, Vec::new());
        for index in (0..self.sentinels.len()).map(|step| (first + step) % self.sentinels.len()) {
            let sentinel = &self.sentinels[index];
            let ask = async { self.told_on(&mut sentinel.open(|_| ()).await?).await };
            match in_time(ask).await {
                Ok(Some(address)) => {
                    self.trust(index);
                    return Ok(Located { address, told_by: Some(index) });
                }
                Ok(None) => is_answered = true,
                Err(error) => failures.push(failed(sentinel, &error)),
            }
        }
        // The same whoever was asked first.
        failures.sort();
        let failures = failures.join(", ");
        Err(match is_answered {
            true if failures.is_empty() => format!("no sentinel knows a master called `{}`", self.name),
            true => format!("no sentinel knows a master called `{}`; {failures}", self.name),
            false => format!("no sentinel of {} answers: {failures}", self.sentinels.len()),
        })
    }

    async fn told_on(&self, sentinel: &mut MultiplexedConnection) -> RedisResult<Option<Address>> {
        let mut ask = cmd("SENTINEL");
        let told: Option<(String, u16)> =
            ask.arg("get-master-addr-by-name").arg(&self.name).query_async(sentinel).await?;
        Ok(told.map(|(host, port)| self.master.moved_to(host, port)))
    }
}

// === impl Followed ===

impl Followed<'_> {
    /// Where the master is: once a second, and whenever there is a new one.
    ///
    /// # Errors
    /// The sentinel does not answer any more, or knows no master of this name.
    pub(super) async fn next(&mut self) -> Result<Located, String> {
        _ = timeout(ASK_EVERY, self.news.notified()).await;
        let told = in_time(self.sentinels.told_on(&mut self.connection)).await;
        let fault = match told {
            Ok(Some(address)) => return Ok(Located { address, told_by: Some(self.index) }),
            Ok(None) => format!("knows no master called `{}`", self.sentinels.name),
            Err(error) => error.to_string(),
        };
        self.sentinels.doubt(self.index);
        Err(failed(&self.sentinels.sentinels[self.index], &fault))
    }
}

fn failed(sentinel: &Address, error: &impl Display) -> String {
    format!("{}: {error}", sentinel.place())
}

async fn in_time<T>(ask: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = |_| Err(io::Error::other("no answer in time").into());
    timeout(ASK_TIMEOUT, ask).await.unwrap_or_else(late)
}
