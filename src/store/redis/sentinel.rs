//! Redis Sentinel: who knows where the master is.
//!
//! The sentinels are asked one after the other, first the one that answered last. What one of them says is a rumour until the
//! Redis there says that it is a master.

use std::fmt::Display;
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
/// What sentinels tell everybody about a new master.
const NEW_MASTER: &str = "+switch-master";

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
    asked: Mutex<Option<(Instant, Result<Address, String>)>>,
}

/// A sentinel that tells of new masters.
pub(super) struct Followed<'s> {
    sentinels: &'s Sentinels,
    sentinel: &'s Address,
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
    pub(super) async fn ask(&self) -> Result<Address, String> {
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

    /// From now on another one is asked first.
    pub(super) fn doubt(&self) {
        self.first.fetch_add(1, Ordering::Relaxed);
    }

    /// Finds a sentinel to follow.
    ///
    /// # Errors
    /// The one whose turn it is cannot be followed.
    pub(super) async fn follow(&self) -> Result<Followed<'_>, String> {
        let sentinel = self.at(self.first.load(Ordering::Relaxed));
        let news = Arc::new(Notify::new());
        let note = Arc::clone(&news);
        let on_push = move |push: &PushInfo| {
            if matches!(push.kind, PushKind::Message | PushKind::Disconnection) {
                note.notify_one();
            }
        };
        let subscribe = async {
            let mut connection = sentinel.open(on_push).await?;
            connection.subscribe(NEW_MASTER).await?;
            Ok(connection)
        };
        let connection = in_time(subscribe).await.map_err(|error| failed(sentinel, &error))?;
        // Somebody may have become the master before anybody heard of it.
        news.notify_one();
        Ok(Followed { sentinels: self, sentinel, connection, news })
    }

    async fn ask_in_turn(&self) -> Result<Address, String> {
        let first = self.first.load(Ordering::Relaxed);
        let (mut answer, mut failures) = (false, Vec::new());
        for index in first..first + self.sentinels.len() {
            let sentinel = self.at(index);
            let ask = async { self.told_on(&mut sentinel.open(|_| ()).await?).await };
            match in_time(ask).await {
                Ok(Some(master)) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok(master);
                }
                Ok(None) => answer = true,
                Err(error) => failures.push(failed(sentinel, &error)),
            }
        }
        // The same whoever was asked first.
        failures.sort();
        Err(match answer {
            true => self.unknown(),
            false => format!("no sentinel of {} answers: {}", self.sentinels.len(), failures.join(", ")),
        })
    }

    async fn told_on(&self, sentinel: &mut MultiplexedConnection) -> RedisResult<Option<Address>> {
        let mut ask = cmd("SENTINEL");
        let told: Option<(String, u16)> =
            ask.arg("get-master-addr-by-name").arg(&self.name).query_async(sentinel).await?;
        Ok(told.map(|(host, port)| self.master.moved_to(host, port)))
    }

    fn at(&self, index: usize) -> &Address {
        &self.sentinels[index % self.sentinels.len()]
    }

    fn unknown(&self) -> String {
        format!("no sentinel knows a master called `{}`", self.name)
    }
}

// === impl Followed ===

impl Followed<'_> {
    /// Where the master is: once a second, and whenever there is a new one.
    ///
    /// # Errors
    /// The sentinel does not answer any more, or knows no master of this name.
    pub(super) async fn next(&mut self) -> Result<Address, String> {
        _ = timeout(ASK_EVERY, self.news.notified()).await;
        match in_time(self.sentinels.told_on(&mut self.connection)).await {
            Ok(Some(master)) => Ok(master),
            Ok(None) => Err(failed(self.sentinel, &self.sentinels.unknown())),
            Err(error) => Err(failed(self.sentinel, &error)),
        }
    }
}

fn failed(sentinel: &Address, error: &impl Display) -> String {
    format!("{} {error}", sentinel.place())
}

async fn in_time<T>(ask: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = || RedisError::from((ErrorKind::Io, "no answer in time"));
    timeout(ASK_TIMEOUT, ask).await.unwrap_or_else(|_| Err(late()))
}
