//! A node of Redis: how a connection to it is opened, and what is found out and settled before it is used.

mod breaker;
mod connection;
mod eviction;
mod membership;
mod outages;
mod owned_hash_slots;

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{PushInfo, PushKind, RedisError, RedisResult, cmd};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::breaker::Breaker;
pub(super) use self::connection::ConnectionManager;
use self::eviction::EvictionCheck;
pub(super) use self::membership::Membership;
use self::membership::{ANNOUNCE_EVERY, SettlementResult};
use self::outages::Outages;
pub(super) use self::outages::UpGauge;
pub(super) use self::owned_hash_slots::{OwnedHashSlots, no_slots};
use super::locator::{Address, Locator};
use super::script::keys::SharedSecret;
use super::script::{Invoker, store_error};
use crate::limit::{ClientId, Limiter};
use crate::metrics::NodeMetrics;
use crate::store::StoreError;
use crate::store::settings::{KeySecret, RedisSettings, RedisUrl};

/// The longest an attempt to connect may take, with everything that belongs to it.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// While a node is away, attempts of this gateway to connect to it are so far apart.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(50);
/// How often it is charged with what was granted without it while it is there.
const SETTLE_EVERY: Duration = Duration::from_millis(100);
/// The same after nothing could be charged: what is owed is owed to other nodes, or to slots that move.
const SETTLE_EVERY_IDLE: Duration = Duration::from_millis(500);

/// A Redis that has buckets: where it is, how it is connected to, and whether it can be reached, as far as all connections to
/// it have found.
#[derive(Debug)]
pub(super) struct Node {
    url: RedisUrl,
    /// Its number among the nodes that this gateway has heard of.
    number: usize,
    locator: Locator,
    slots: OwnedHashSlots,
    secret: Arc<SharedSecret>,
    membership: Arc<Membership>,
    outages: Outages,
    metrics: NodeMetrics,
    eviction: EvictionCheck,
    /// Held by the task that charges it while it is there.
    settling: tokio::sync::Mutex<()>,
    /// Held by whoever tries it again while it is away: when the next attempt may begin.
    next_attempt: tokio::sync::Mutex<Option<Instant>>,
    /// Changes whenever an attempt has succeeded.
    reconnected: watch::Sender<()>,
}

/// A connection that works as far as is known.
#[derive(Clone)]
pub(super) struct NodeConnection {
    pub(super) redis: MultiplexedConnection,
    pub(super) script: Invoker,
    /// That of all nodes: whoever learns it anew tells all connections.
    secret: Arc<SharedSecret>,
    /// Counts what is asked on it.
    pub(super) metrics: NodeMetrics,
    /// Host and port of the server.
    address: String,
    /// Notified when it has ended; no two connections have the same.
    ended: Arc<Notify>,
}

/// What is known of a connection that is kept.
#[derive(Clone, Debug)]
pub(super) enum ConnectionStatus {
    /// The first attempt since the last connection broke is under way.
    Connecting,
    Up(NodeConnection),
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
        membership: Arc<Membership>,
    ) -> RedisResult<Self> {
        let url = settings.url.clone();
        Ok(Self::with(url, 0, Locator::new(settings)?, OwnedHashSlots::all(), secret, membership))
    }

    /// One of several, which is there as long as it has slots.
    pub(super) fn of_cluster(
        address: Address,
        number: usize,
        slots: OwnedHashSlots,
        metrics: NodeMetrics,
        secret: Arc<SharedSecret>,
        membership: Arc<Membership>,
    ) -> Self {
        let scheme = if address.is_tls() { "rediss" } else { "redis" };
        let url = RedisUrl::new(format!("{scheme}://{}", address.host_and_port()));
        Self { metrics, ..Self::with(url, number, Locator::fixed(address), slots, secret, membership) }
    }

    fn with(
        url: RedisUrl,
        number: usize,
        locator: Locator,
        slots: OwnedHashSlots,
        secret: Arc<SharedSecret>,
        membership: Arc<Membership>,
    ) -> Self {
        let outages = membership.outages(url.clone());
        let (metrics, eviction, settling, next_attempt, reconnected) = Default::default();
        Self {
            url,
            number,
            locator,
            slots,
            secret,
            membership,
            outages,
            metrics,
            eviction,
            settling,
            next_attempt,
            reconnected,
        }
    }

    /// Its address.
    pub(super) fn url(&self) -> &RedisUrl {
        &self.url
    }

    /// Its number among the nodes that this gateway has heard of.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The slots that it has.
    pub(super) fn slots(&self) -> &OwnedHashSlots {
        &self.slots
    }

    /// How a node of a cluster is reached.
    pub(super) fn address(&self) -> &Address {
        self.locator.address()
    }

    /// Why it cannot be connected to at present.
    pub(super) fn outage(&self) -> Option<String> {
        self.outages.cause()
    }

    /// With sentinels, where its master was last.
    pub(super) fn master(&self) -> Option<String> {
        self.locator.master()
    }

    /// Charges what was granted while nobody could be asked for the slots that it has.
    pub(super) async fn charge_debts_now(&self) {
        if self.membership.fallback().is_owing() {
            _ = timeout(CONNECT_TIMEOUT, self.connect(None)).await;
        }
    }

    /// Opens a connection to the node's present address. With a breaker, the node must answer a probe.
    async fn connect(&self, breaker: Option<&Mutex<Breaker>>) -> Result<NodeConnection, String> {
        let moves = self.locator.moves();
        let located = self.locator.locate().await?;
        match self.connect_to(&located.address, breaker).await {
            Ok(connection) if self.locator.on_verified(&located, &moves) => Ok(connection),
            Ok(_) => Err("the master has moved meanwhile".to_owned()),
            Err(error) => Err(self.locator.on_connect_failed(&located, &error)),
        }
    }

    /// Opens a connection, and finds out what has to be known before it is used.
    async fn connect_to(&self, address: &Address, breaker: Option<&Mutex<Breaker>>) -> Result<NodeConnection, String> {
        let connect = async {
            let ended = Arc::new(Notify::new());
            let mut redis = address.open(notify_on_end(Arc::clone(&ended))).await?;
            self.locator.verify(&mut redis).await?;
            self.fetch_secret(address, &mut redis).await?;
            let secret = Arc::clone(&self.secret);
            let script = Invoker::new(redis.clone()).await?;
            let (metrics, address) = (self.metrics.clone(), address.host_and_port());
            Ok(NodeConnection { redis, script, secret, metrics, address, ended })
        };
        let time_limit = breaker.map_or(CONNECT_TIMEOUT, |breaker| breaker.lock().probe_timeout());
        let mut connection = match timeout(time_limit, connect).await {
            Ok(connected) => connected.map_err(|error: RedisError| error.to_string())?,
            Err(_) => return Err("no answer in time".into()),
        };
        if let Some(breaker) = breaker {
            self.probe(&mut connection, breaker).await?;
        }
        self.rejoin(&mut connection).await.map_err(|error| error.to_string())?;
        Ok(connection)
    }

    /// Learns the secret of the client hashes, which one node of a cluster has.
    async fn fetch_secret(&self, address: &Address, redis: &mut MultiplexedConnection) -> RedisResult<()> {
        let Err(error) = self.secret.fetch(redis).await else { return Ok(()) };
        match (error.redirect_node(), self.secret.known()) {
            (Some(_), Some(_)) => Ok(()),
            (Some((place, _)), None) => match address.named_node(place) {
                Some(there) => self.secret.fetch(&mut there.open(|_| ()).await?).await,
                None => Err(error),
            },
            (None, _) => Err(error),
        }
    }

    /// Opens a connection to a node that was away: one attempt at a time, and only if it answers in time. What it is owed is
    /// charged last, so that little is granted without it afterwards.
    async fn reconnect(&self, breaker: &Mutex<Breaker>) -> Result<NodeConnection, String> {
        let mut next = self.next_attempt.lock().await;
        if let Some(next) = *next {
            sleep_until(next).await;
        }
        *next = Some(Instant::now() + ATTEMPT_INTERVAL);
        let connection = self.connect(Some(breaker)).await?;
        // It is there: whoever comes next need not wait.
        *next = None;
        self.reconnected.send_replace(());
        Ok(connection)
    }

    /// Changes whenever another connection to it is open again after an outage.
    fn reconnected(&self) -> watch::Receiver<()> {
        self.reconnected.subscribe()
    }

    /// Asks until an answer shows how fast it is.
    async fn probe(&self, connection: &mut NodeConnection, breaker: &Mutex<Breaker>) -> Result<(), String> {
        let time_limit = breaker.lock().probe_timeout();
        loop {
            let sent = Instant::now();
            let answer = timeout(time_limit, cmd("PING").exec_async(&mut connection.redis)).await;
            let answer = answer.map_or(Err(StoreError::Timeout), |answer| answer.map_err(|error| store_error(&error)));
            answer.map_err(|error| error.to_string())?;
            if let Some(verdict) = breaker.lock().record_probe(sent.elapsed()) {
                return verdict;
            }
        }
    }

    /// Charges what was granted without this node before it is asked anything else.
    async fn rejoin(&self, connection: &mut NodeConnection) -> Result<(), StoreError> {
        match self.announce(connection).await {
            Err(error) if error.breaks_connection() => return Err(error),
            // A Redis that may not hear of gateways can decide all the same.
            _ => {}
        }
        self.charge_debts(connection).await.map(|_| ())
    }

    async fn charge_debts(&self, connection: &mut NodeConnection) -> Result<SettlementResult, StoreError> {
        let owns = |limiter: &Limiter, client: Option<&ClientId>| self.slots.has(limiter, client);
        let secret = connection.secret()?;
        let paid = self.membership.charge_debts(&mut connection.script, &secret, owns).await?;
        if !paid.is_all {
            self.slots.request_refresh();
        }
        Ok(paid)
    }

    /// From time to time announces this gateway, and looks whether the secret is still the same: a Redis may lose its data
    /// and keep its connections. Errors are ignored: decisions find them.
    async fn run_heartbeat(&self, mut connection: NodeConnection) {
        self.eviction.warn_once(&self.url, &mut connection.redis).await;
        loop {
            sleep(ANNOUNCE_EVERY).await;
            _ = self.announce(&mut connection).await;
            _ = timeout(CONNECT_TIMEOUT, self.secret.fetch(&mut connection.redis)).await;
        }
    }

    /// Charges what is granted without this node while it is there: by another connection that is down, or since a decision
    /// failed for a reason that is no outage; and what is owed to slots that it gets. One connection does so for all. Returns
    /// when that gets no answer, as one that nobody asks on in a network that is silent: whoever is reconnected could not pay as long as
    /// it tries to.
    async fn settle_debts(&self, mut connection: NodeConnection) -> StoreError {
        let _settling = self.settling.lock().await;
        let (mut new_debts, mut additions) = (self.membership.fallback().new_debts(), self.slots.additions());
        loop {
            let paid = self.charge_debts(&mut connection).await;
            if let Err(error @ (StoreError::Timeout | StoreError::Broken)) = paid {
                return error;
            }
            let is_fruitless = paid.as_ref().map_or(true, |paid| paid.permits == 0);
            let earliest = Instant::now() + if is_fruitless { SETTLE_EVERY_IDLE } else { SETTLE_EVERY };
            if paid.is_ok_and(|paid| paid.is_all) {
                tokio::select! {
                    _ = additions.changed() => continue,
                    _ = new_debts.changed() => {}
                }
            }
            // Those who fail together are charged together.
            sleep_until(earliest.max(Instant::now() + SETTLE_EVERY)).await;
        }
    }

    /// Returns when the connection has ended, the node is at another address, or the connection was given up.
    async fn run_until_closed(&self, connection: NodeConnection, status: &watch::Sender<ConnectionStatus>) {
        let mut seen = status.subscribe();
        tokio::select! {
            () = connection.ended.notified() => {}
            () = self.locator.wait_until_moved(&connection.address) => {}
            _ = seen.wait_for(|status| !matches!(status, ConnectionStatus::Up(_))) => return,
            () = self.run_heartbeat(connection.clone()) => {}
            error = self.settle_debts(connection.clone()) => {
                status.send_replace(ConnectionStatus::Down(error.to_string()));
                return;
            }
        }
        status.send_replace(ConnectionStatus::Connecting);
    }

    async fn announce(&self, connection: &mut NodeConnection) -> Result<(), StoreError> {
        let announced = timeout(CONNECT_TIMEOUT, self.membership.announce(&mut connection.script)).await;
        announced.unwrap_or(Err(StoreError::Timeout))
    }
}

// === impl NodeConnection ===

impl NodeConnection {
    /// The secret of the client hashes.
    ///
    /// # Errors
    /// It is not known, as it is before any node has answered.
    pub(super) fn secret(&self) -> Result<KeySecret, StoreError> {
        self.secret.known().ok_or(StoreError::Unreachable)
    }

    /// The same, whose next call is about a slot that the node is just being given.
    pub(super) fn asking(&self) -> Self {
        Self { script: self.script.asking(), ..self.clone() }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ended, &other.ended)
    }
}

impl std::fmt::Debug for NodeConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Notifies of the end of a connection.
fn notify_on_end(ended: Arc<Notify>) -> impl Fn(&PushInfo) + Send + Sync {
    move |push| {
        if push.kind == PushKind::Disconnection {
            ended.notify_one();
        }
    }
}
