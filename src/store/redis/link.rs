//! A connection to Redis that is kept: one task opens it, and opens it again when it breaks.
//!
//! Callers clone the live connection and share it; they never wait for one that is known to be down. So while Redis is
//! away a decision fails at once, and it is this task alone that keeps trying, with growing pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{AsyncTypedCommands, ExistenceCheck, RedisError, SetOptions};
use deadpool_redis::{Connection, Pool, PoolError};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::library;
use super::outage::{Down, Outage};
use super::pipeline::Pipeline;
use super::wire::Wire;
use crate::store::StoreError;
use crate::store::settings::{KeySecret, RedisSettings, RedisUrl};

/// The longest an attempt to connect may take, with everything that belongs to it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// What callers hold of a link.
#[derive(Debug)]
pub(super) struct Link {
    state: watch::Receiver<State>,
    broken: Arc<Broken>,
}

/// A connection that works as far as is known.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) secret: KeySecret,
    generation: u64,
    /// Does this Redis keep functions for us?
    pub(super) keeps_functions: bool,
    /// What decisions go over, until a lane takes it.
    wire: Arc<Mutex<Option<Wire>>>,
}

#[derive(Clone, Debug)]
enum State {
    /// The first attempt since the last connection broke is under way.
    Connecting,
    Up(Live),
    /// The last attempt failed.
    Down,
}

/// How callers tell the keeper that a connection does not work.
#[derive(Debug, Default)]
struct Broken {
    generation: AtomicU64,
    notify: Notify,
}

/// The secret of the client hashes, shared by all links: the rule file's, or the text that lies in Redis.
#[derive(Debug)]
pub(super) struct SharedSecret {
    configured: Option<KeySecret>,
    key: String,
    kept: ArcSwapOption<String>,
}

/// The task behind a link.
struct Keeper {
    pool: Pool,
    url: RedisUrl,
    secret: Arc<SharedSecret>,
    outage: Arc<Outage>,
    state: watch::Sender<State>,
    broken: Arc<Broken>,
}

// === impl Link ===

impl Link {
    /// Starts a link; it connects at once. Must be called on a Tokio runtime, which it lives on.
    pub(super) fn start(pool: Pool, settings: &RedisSettings, secret: Arc<SharedSecret>, outage: Arc<Outage>) -> Self {
        let (sender, state) = watch::channel(State::Connecting);
        let broken = Arc::new(Broken::default());
        let url = settings.url.clone();
        let keeper = Keeper { pool, url, secret, outage, state: sender, broken: Arc::clone(&broken) };
        tokio::spawn(keeper.run());
        Self { state, broken }
    }

    /// The live connection, waiting for it only while it is first being opened, after one that is known to be broken too.
    pub(super) async fn live(&self) -> Result<Live, StoreError> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| matches!(state, State::Down) || self.is_usable(state)).await;
        match settled.as_deref() {
            Ok(State::Up(live)) => Ok(live.clone()),
            _ => Err(StoreError::Unreachable),
        }
    }

    /// Waits for the connection and for what `call` asks on it, all until then. A connection that failed, or did not
    /// answer in time, is never used again.
    pub(super) async fn within<T>(
        &self,
        deadline: Instant,
        call: impl AsyncFnOnce(&mut Live) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut used = None;
        let asked = async { call(used.insert(self.live().await?)).await };
        let answer = timeout_at(deadline, asked).await.unwrap_or(Err(StoreError::Timeout));
        if let Err(error) = &answer {
            self.report(used.as_ref(), error);
        }
        answer
    }

    /// The next connection for decisions, of which each live connection has one, however long it takes; nothing if there
    /// will be none any more.
    pub(super) async fn pipeline(&self) -> Option<Pipeline> {
        let mut state = self.state.clone();
        loop {
            let live = match &*state.wait_for(|state| self.is_usable(state)).await.ok()? {
                State::Up(live) => Some(live.clone()),
                State::Connecting | State::Down => None,
            };
            let wire = live.as_ref().and_then(|live| live.wire.lock().take());
            if let (Some(live), Some(wire)) = (live, wire) {
                return Some(Pipeline::new(wire, live));
            }
            state.changed().await.ok()?;
        }
    }

    /// Did the last attempt to connect fail?
    pub(super) fn is_down(&self) -> bool {
        matches!(*self.state.borrow(), State::Down)
    }

    fn is_usable(&self, state: &State) -> bool {
        matches!(state, State::Up(live) if !self.is_broken(live))
    }

    /// Is it known that this connection does not work?
    pub(super) fn is_broken(&self, live: &Live) -> bool {
        self.broken.generation.load(Ordering::SeqCst) >= live.generation
    }

    /// Says what went wrong on a connection. If it does not work, it is dropped and never used again: a late answer meets
    /// nobody.
    pub(super) fn report(&self, live: Option<&Live>, error: &StoreError) {
        if let Some(live) = live
            && error.condemns_connection()
        {
            self.broken.generation.fetch_max(live.generation, Ordering::SeqCst);
            self.broken.notify.notify_one();
        }
    }
}

// === impl Live ===

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("generation", &self.generation).finish_non_exhaustive()
    }
}

// === impl Keeper ===

impl Keeper {
    async fn run(self) {
        tokio::select! {
            () = self.keep() => {}
            () = self.state.closed() => {}
        }
    }

    async fn keep(&self) {
        let mut generation = 0;
        let mut pause = FIRST_PAUSE;
        let (mut failed, mut down) = (0_u64, None::<Down<'_>>);
        loop {
            match self.connect().await {
                Ok((object, live)) => {
                    down.take().into_iter().for_each(Down::over);
                    (failed, pause) = (0, FIRST_PAUSE);
                    generation += 1;
                    self.state.send_replace(State::Up(Live { generation, ..live }));
                    self.until_broken(generation).await;
                    // Taken out of the pool, the connection ends with its last user.
                    drop(Connection::take(object));
                    self.state.send_replace(State::Connecting);
                }
                Err(error) => {
                    down.get_or_insert_with(|| self.outage.begin(&self.url, &error)).failed();
                    failed += 1;
                    self.state.send_replace(State::Down);
                    sleep(jittered(pause, failed)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn connect(&self) -> Result<(Connection, Live), String> {
        let connect = async {
            let mut object = self.pool.get().await.map_err(|error| match error {
                PoolError::Backend(error) => error.to_string(),
                error => error.to_string(),
            })?;
            let secret = self.secret.fetch(&mut object).await.map_err(|error| error.to_string())?;
            let keeps_functions = library::are_kept(&mut object).await;
            let wire = Arc::new(Mutex::new(Some(Wire::open(self.url.expose()).await?)));
            let connection = (*object).clone();
            Ok((object, Live { connection, secret, generation: 0, keeps_functions, wire }))
        };
        timeout(CONNECT_TIMEOUT, connect).await.unwrap_or_else(|_| Err("no answer in time".into()))
    }

    async fn until_broken(&self, generation: u64) {
        while self.broken.generation.load(Ordering::SeqCst) < generation {
            self.broken.notify.notified().await;
        }
    }
}

/// Half to all of the pause, so that many gateways do not come back at the same moment.
fn jittered(pause: Duration, salt: u64) -> Duration {
    let mut byte = [0; 1];
    if getrandom::fill(&mut byte).is_err() {
        byte = [salt.to_le_bytes()[0]];
    }
    pause / 2 + pause * u32::from(byte[0]) / 512
}

// === impl SharedSecret ===

impl SharedSecret {
    pub(super) fn new(settings: &RedisSettings) -> Self {
        let key = format!("{}tidegate:key_secret", settings.prefix);
        Self { configured: settings.key_secret, key, kept: ArcSwapOption::empty() }
    }

    /// The secret, as far as it is known.
    pub(super) fn known(&self) -> Option<KeySecret> {
        self.configured.or_else(|| Some(KeySecret::derive(self.kept.load().as_ref()?.as_bytes())))
    }

    /// The secret that all gateways on this Redis use. The first of them puts it there; a Redis that has lost it is
    /// given it again, and whoever comes later follows.
    async fn fetch(&self, redis: &mut MultiplexedConnection) -> Result<KeySecret, RedisError> {
        if let Some(secret) = self.configured {
            return Ok(secret);
        }
        let ours = self.kept.load_full().unwrap_or_else(|| Arc::new(KeySecret::random().to_hex()));
        let if_absent = SetOptions::default().conditional_set(ExistenceCheck::NX);
        redis.set_options(&self.key, ours.as_str(), if_absent).await?;
        let kept = redis.get(&self.key).await?.unwrap_or_else(|| ours.to_string());
        let secret = KeySecret::derive(kept.as_bytes());
        self.kept.store(Some(Arc::new(kept)));
        Ok(secret)
    }
}
