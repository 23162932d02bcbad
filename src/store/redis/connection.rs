//! A node of Redis, and the connections to it. Each is kept by a task, its connection manager, which opens it, and opens it
//! again when it breaks.
//!
//! Callers clone the connection and share it; they never wait for one that is known to be down. So while a node is away a
//! decision fails at once, and it is the manager alone that keeps trying, with growing pauses. A node that is slow for
//! everybody is down, too, until it answers a probe in time ([`Breaker`]).

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{PushInfo, PushKind, RedisError, RedisResult, cmd};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::address::Address;
use super::breaker::{Breaker, Pauses, jittered};
use super::eviction::Eviction;
use super::keys::SharedSecret;
use super::locator::Locator;
use super::membership::{ANNOUNCE_EVERY, Membership, Presence};
use super::outages::{Outage, Outages};
use super::script::{Invoker, failure};
use crate::store::StoreError;
use crate::store::fallback::Fallback;
use crate::store::settings::{KeySecret, RedisSettings, RedisUrl};

/// The longest an attempt to connect may take, with everything that belongs to it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// While a node is away, attempts of this gateway to connect to it are so far apart.
const APART: Duration = Duration::from_millis(50);
/// How often it is charged with what was granted without it while it is there.
const SETTLE_EVERY: Duration = Duration::from_millis(100);

/// A Redis that has buckets: where it is, how it is connected to, and whether it can be reached, as far as all connections to
/// it have found.
#[derive(Debug)]
pub(super) struct Node {
    url: RedisUrl,
    locator: Locator,
    secret: Arc<SharedSecret>,
    membership: Membership,
    outages: Outages,
    eviction: Eviction,
    /// When it may be tried again.
    next_attempt: Mutex<Option<Instant>>,
}

/// A connection that works as far as is known.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) redis: MultiplexedConnection,
    pub(super) script: Invoker,
    pub(super) secret: KeySecret,
    /// Host and port of the server.
    address: String,
    /// Notified when it has ended; no two connections have the same.
    ended: Arc<Notify>,
}

/// Keeps a connection open; its task ends with it.
#[derive(Debug)]
pub(super) struct ConnectionManager {
    kept: Arc<Kept>,
    task: JoinHandle<()>,
}

/// What a connection manager and its task share.
#[derive(Debug)]
struct Kept {
    status: watch::Sender<ConnectionStatus>,
    breaker: Mutex<Breaker>,
}

/// What is known of a connection that is kept.
#[derive(Clone, Debug)]
pub(super) enum ConnectionStatus {
    /// The first attempt since the last connection broke is under way.
    Connecting,
    Up(Connection),
    /// The last attempt failed, or the node is not to be asked at present, for this cause.
    Down(String),
}

// === impl Node ===

impl Node {
    /// # Errors
    /// The URL is none that leads to a Redis.
    pub(super) fn new(
        settings: &RedisSettings,
        secret: Arc<SharedSecret>,
        membership: Membership,
    ) -> RedisResult<Self> {
        let locator = Locator::new(settings)?;
        let outages = membership.outages(settings.url.clone());
        let url = settings.url.clone();
        let (eviction, next_attempt) = Default::default();
        Ok(Self { url, locator, secret, membership, outages, eviction, next_attempt })
    }

    /// Its address.
    pub(super) fn url(&self) -> &RedisUrl {
        &self.url
    }

    /// What decides while it does not.
    pub(super) fn fallback(&self) -> &Fallback {
        self.membership.fallback()
    }

    /// Why it cannot be connected to at present.
    pub(super) fn outage(&self) -> Option<String> {
        self.outages.cause()
    }

    /// With sentinels, where its master was last.
    pub(super) fn master(&self) -> Option<String> {
        self.locator.master()
    }

    /// Opens a connection to the node's present address. With a breaker, the node must answer a probe.
    async fn connect(&self, breaker: Option<&Mutex<Breaker>>) -> Result<Connection, String> {
        let located = self.locator.locate().await?;
        let connected = self.connect_to(&located.address, breaker).await;
        match &connected {
            Ok(_) => self.locator.found(&located),
            Err(error) => return Err(self.locator.not_found(&located, error)),
        }
        connected
    }

    /// Opens a connection, and finds out what has to be known before it is used.
    async fn connect_to(&self, address: &Address, breaker: Option<&Mutex<Breaker>>) -> Result<Connection, String> {
        let connect = async {
            let ended = Arc::new(Notify::new());
            let mut redis = address.open(note_end(Arc::clone(&ended))).await?;
            self.locator.verify(&mut redis).await?;
            let secret = self.secret.fetch(&mut redis).await?;
            let script = Invoker::of(redis.clone()).await?;
            Ok(Connection { redis, script, secret, address: address.host_and_port(), ended })
        };
        let mut connection = match timeout(CONNECT_TIMEOUT, connect).await {
            Ok(connected) => connected.map_err(|error: RedisError| error.to_string())?,
            Err(_) => return Err("no answer in time".into()),
        };
        if let Some(breaker) = breaker {
            self.probe(&mut connection, breaker).await?;
        }
        self.rejoin(&mut connection).await.map_err(|error| error.to_string())?;
        Ok(connection)
    }

    /// Opens a connection to a node that was away: in turn with others, and only if it answers in time. What it is owed is
    /// charged last: whatever is granted without it later would be charged only after the next outage.
    async fn try_again(&self, breaker: &Mutex<Breaker>) -> Result<Connection, String> {
        let turn = {
            let (mut next, now) = (self.next_attempt.lock(), Instant::now());
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + APART);
            turn
        };
        sleep_until(turn).await;
        let connection = self.connect(Some(breaker)).await?;
        // It is there: whoever comes next need not wait.
        *self.next_attempt.lock() = None;
        Ok(connection)
    }

    async fn probe(&self, connection: &mut Connection, breaker: &Mutex<Breaker>) -> Result<(), String> {
        let sent = Instant::now();
        let answer = timeout(CONNECT_TIMEOUT, cmd("PING").exec_async(&mut connection.redis)).await;
        let answer = answer.map_or(Err(StoreError::Timeout), |answer| answer.map_err(|error| failure(&error)));
        answer.map_err(|error| error.to_string())?;
        breaker.lock().probed(sent.elapsed())
    }

    /// Charges what was granted without this node before it is asked anything else.
    async fn rejoin(&self, connection: &mut Connection) -> Result<(), StoreError> {
        match self.announce(connection, Presence::Rejoins).await {
            Err(error) if error.condemns_connection() => return Err(error),
            // A Redis that may not hear of gateways can decide all the same.
            _ => {}
        }
        self.membership.pay(&mut connection.script, &connection.secret).await
    }

    /// Announces this gateway every 5 s. Errors are ignored: decisions find them.
    async fn stay(&self, mut connection: Connection) {
        self.eviction.look(&self.url, &mut connection.redis).await;
        loop {
            sleep(ANNOUNCE_EVERY).await;
            _ = self.announce(&mut connection, Presence::Stays).await;
        }
    }

    /// Charges what is granted without this node while it is there: by another connection that is down, or since a decision
    /// failed for a reason that is no outage.
    async fn settle(&self, mut connection: Connection) {
        loop {
            self.fallback().owes().await;
            loop {
                // Those who fail together are charged together.
                sleep(SETTLE_EVERY).await;
                if self.membership.pay(&mut connection.script, &connection.secret).await.is_ok() {
                    break;
                }
            }
        }
    }

    /// Returns when the connection has ended, the node is at another address, or the connection was given up.
    async fn use_until_end(&self, connection: Connection, status: &watch::Sender<ConnectionStatus>) {
        let mut seen = status.subscribe();
        tokio::select! {
            () = connection.ended.notified() => {}
            () = self.locator.moved_from(&connection.address) => {}
            _ = seen.wait_for(|status| !matches!(status, ConnectionStatus::Up(_))) => return,
            () = self.stay(connection.clone()) => {}
            () = self.settle(connection.clone()) => {}
        }
        status.send_replace(ConnectionStatus::Connecting);
    }

    async fn announce(&self, connection: &mut Connection, presence: Presence) -> Result<(), StoreError> {
        let announced = timeout(CONNECT_TIMEOUT, self.membership.announce(&mut connection.script, presence)).await;
        announced.unwrap_or(Err(StoreError::Timeout))
    }
}

// === impl Connection ===

impl Connection {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ended, &other.ended)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

// === impl ConnectionManager ===

impl ConnectionManager {
    /// Connects at once. Must be called on a Tokio runtime, which it lives on.
    pub(super) fn start(node: Arc<Node>, timeout: Duration) -> Self {
        let breaker = Mutex::new(Breaker::new(timeout, Instant::now()));
        let kept = Arc::new(Kept { status: watch::Sender::new(ConnectionStatus::Connecting), breaker });
        let keep = keep_connected(Arc::clone(&node), Arc::clone(&kept));
        let task = tokio::spawn(async move {
            tokio::select! { () = keep => {}, () = node.locator.watch() => {} }
        });
        Self { kept, task }
    }

    /// What is known of the connection, now and whenever that changes.
    pub(super) fn status(&self) -> watch::Receiver<ConnectionStatus> {
        self.kept.status.subscribe()
    }

    /// The connection, waiting for it only while it is first being opened, after one that is known to be broken too.
    async fn connection(&self) -> Result<Connection, StoreError> {
        let mut status = self.kept.status.subscribe();
        let settled = status.wait_for(|status| !matches!(status, ConnectionStatus::Connecting)).await;
        match settled.as_deref() {
            Ok(ConnectionStatus::Up(connection)) => Ok(connection.clone()),
            _ => Err(StoreError::Unreachable),
        }
    }

    /// Waits for the connection and for what `call` asks on it, all until then. A connection that failed, or did not
    /// answer in time, is never used again.
    pub(super) async fn within<T>(
        &self,
        deadline: Instant,
        call: impl AsyncFnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut used = None;
        let asked = async { call(used.insert(self.connection().await?)).await };
        let answer = timeout_at(deadline, asked).await.unwrap_or(Err(StoreError::Timeout));
        if let (Some(connection), Err(error)) = (&used, &answer) {
            self.report(connection, error);
        }
        answer
    }

    /// Says what went wrong on a connection. One that does not work is not used again: a late answer meets nobody.
    pub(super) fn report(&self, connection: &Connection, error: &StoreError) {
        match error {
            StoreError::Broken | StoreError::Shape => self.give_up(connection, ConnectionStatus::Connecting),
            // Nobody waits for a node that has nothing to say to anybody.
            error if error.condemns_connection() => self.give_up(connection, ConnectionStatus::Down(error.to_string())),
            _ => {}
        }
    }

    /// Says how long an answer took. Nobody waits for a node that is slow for everybody.
    pub(super) fn answered(&self, connection: &Connection, took: Duration) {
        if let Some(cause) = self.kept.breaker.lock().answered(Instant::now(), took) {
            self.give_up(connection, ConnectionStatus::Down(cause));
        }
    }

    fn give_up(&self, connection: &Connection, instead: ConnectionStatus) {
        self.kept.status.send_if_modified(|status| {
            let is_current = matches!(status, ConnectionStatus::Up(current) if current.is(connection));
            if is_current {
                *status = instead;
            }
            is_current
        });
    }
}

impl Drop for ConnectionManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Notifies of the end of a connection.
fn note_end(ended: Arc<Notify>) -> impl Fn(&PushInfo) + Send + Sync {
    move |push| {
        if push.kind == PushKind::Disconnection {
            ended.notify_one();
        }
    }
}

async fn keep_connected(node: Arc<Node>, kept: Arc<Kept>) {
    let (status, mut pauses, mut outage) = (&kept.status, Pauses::default(), None::<Outage<'_>>);
    let mut moves = node.locator.moves();
    let mut connected = node.connect(None).await;
    loop {
        let pause = match connected {
            Ok(connection) => {
                outage.take().into_iter().for_each(Outage::over);
                let since = Instant::now();
                status.send_replace(ConnectionStatus::Up(connection.clone()));
                moves.mark_unchanged();
                node.use_until_end(connection, status).await;
                pauses.after_connection(since.elapsed())
            }
            Err(error) => {
                outage.get_or_insert_with(|| node.outages.begin(&error)).failed(&error);
                status.send_replace(ConnectionStatus::Down(error));
                pauses.after_failure()
            }
        };
        if !pause.is_zero() {
            status.send_if_modified(|status| {
                let is_new = matches!(status, ConnectionStatus::Connecting);
                if is_new {
                    *status = ConnectionStatus::Down(StoreError::Broken.to_string());
                }
                is_new
            });
        }
        if let ConnectionStatus::Down(cause) = &*status.borrow() {
            outage.get_or_insert_with(|| node.outages.begin(cause));
        }
        let attempt = async {
            sleep(jittered(pause)).await;
            match outage {
                Some(_) => node.try_again(&kept.breaker).await,
                None => node.connect(None).await,
            }
        };
        connected = tokio::select! {
            biased;
            connected = attempt => connected,
            // The master was verified at another address just now: no pause and no turn.
            Ok(()) = moves.changed() => node.connect(outage.is_some().then_some(&kept.breaker)).await,
        };
    }
}
