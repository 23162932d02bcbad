//! A node of Redis: opens its connections, checks them, and charges local grants before they are used.

mod breaker;
mod connection;
mod eviction;
mod membership;
mod outages;
mod owned_hash_slots;
mod refusals;
mod self_test;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use self::membership::{ANNOUNCE_EVERY, LateChargeResult};
use self::outages::Outages;
pub(super) use self::outages::UpGauge;
pub(super) use self::owned_hash_slots::{OwnedHashSlots, no_slots};
use self::refusals::Refusals;
use self::self_test::SelfTestResult;
use super::locator::{Address, Locator};
use super::script::keys::SharedSecret;
use super::script::{Invoker, store_error};
use crate::StoreError;
use tidegate_metrics::NodeMetrics;
use tidegate_rules::charge::{ClientId, Limiter};
use tidegate_rules::settings::store::{KeySecret, RedisSettings, RedisUrl};

/// The timeout for an attempt to connect, including all checks.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The minimum time between two attempts of this gateway to connect to an unreachable node.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(50);
/// The time between charges of local grants while the node is reachable.
const CHARGE_EVERY: Duration = Duration::from_millis(100);
/// The same if nothing could be charged: the buckets are on other nodes or in migrating hash slots.
const CHARGE_EVERY_IDLE: Duration = Duration::from_millis(500);

/// The time between self-tests while the node refuses calls.
const RETEST_EVERY: Duration = Duration::from_millis(500);

/// A Redis with buckets: its address, how to connect to it, and whether it is reachable, as found by all connections
/// to it.
#[derive(Debug)]
pub(super) struct Node {
    url: RedisUrl,
    /// The number of the node, in the order in which this gateway found the nodes.
    number: usize,
    locator: Locator,
    slots: OwnedHashSlots,
    secret: Arc<SharedSecret>,
    membership: Arc<Membership>,
    outages: Arc<Outages>,
    refusals: Refusals,
    metrics: NodeMetrics,
    eviction: EvictionCheck,
    /// Held by the task that charges local grants while the node is reachable.
    charging_lock: tokio::sync::Mutex<()>,
    /// Held by the task that reconnects to an unreachable node. Contains the earliest time of the next attempt.
    next_attempt: tokio::sync::Mutex<Option<Instant>>,
    /// Changes after every successful attempt.
    reconnected: watch::Sender<()>,
}

/// A connection that has not failed yet.
#[derive(Clone)]
pub(super) struct NodeConnection {
    pub(super) redis: MultiplexedConnection,
    pub(super) script: Invoker,
    /// Shared by all nodes, so that all connections use a new secret immediately.
    secret: Arc<SharedSecret>,
    /// Counts the calls on this connection.
    pub(super) metrics: NodeMetrics,
    /// The host and port of the server.
    address: Arc<str>,
    /// Unique for each connection.
    end: Arc<ConnectionEnd>,
}

#[derive(Default)]
struct ConnectionEnd {
    has_ended: AtomicBool,
    /// Notified when the connection has ended.
    ended: Notify,
}

#[derive(Clone, Debug)]
pub(super) enum ConnectionStatus {
    /// The first attempt since the start or since the last connection broke.
    Connecting,
    Up(NodeConnection),
    /// The last attempt failed or the node is not usable, with the cause.
    Down(String),
}

// === impl Node ===

impl Node {
    /// Creates the only node of a store without a cluster.
    ///
    /// # Errors
    /// The URL is not a valid Redis URL.
    pub(super) fn new(
        settings: &RedisSettings,
        secret: Arc<SharedSecret>,
        membership: Arc<Membership>,
    ) -> RedisResult<Self> {
        let url = settings.url.clone();
        Ok(Self::with(url, 0, Locator::new(settings)?, OwnedHashSlots::all(), secret, membership))
    }

    /// Creates a node of a cluster. It is connected to while it has hash slots.
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
        let refusals = Refusals::new(Arc::clone(&outages));
        let (metrics, eviction, charging_lock, next_attempt, reconnected) = Default::default();
        Self {
            url,
            number,
            locator,
            slots,
            secret,
            membership,
            outages,
            refusals,
            metrics,
            eviction,
            charging_lock,
            next_attempt,
            reconnected,
        }
    }

    pub(super) fn url(&self) -> &RedisUrl {
        &self.url
    }

    /// Returns the number of the node, in the order in which this gateway found the nodes.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Returns the hash slots of the node.
    pub(super) fn slots(&self) -> &OwnedHashSlots {
        &self.slots
    }

    /// Returns the address of a node of a cluster.
    pub(super) fn address(&self) -> &Address {
        self.locator.address()
    }

    /// Returns why the node is unreachable, if it is.
    pub(super) fn outage(&self) -> Option<String> {
        self.outages.cause()
    }

    /// Returns the last known address of the master, if the store uses sentinels.
    pub(super) fn master(&self) -> Option<String> {
        self.locator.master()
    }

    /// Charges local grants in the node's hash slots that no node could be charged with before.
    pub(super) async fn charge_local_grants_now(&self) {
        if self.membership.fallback().has_uncharged_grants() {
            _ = timeout(CONNECT_TIMEOUT, self.connect(None)).await;
        }
    }

    /// Opens a connection to the node's current address. With a breaker, the node must also pass a probe.
    async fn connect(&self, breaker: Option<&Mutex<Breaker>>) -> Result<NodeConnection, String> {
        let moves = self.locator.moves();
        let located = self.locator.locate().await?;
        match self.connect_to(&located.address, breaker).await {
            Ok(connection) if self.locator.on_verified(&located, &moves) => Ok(connection),
            Ok(_) => Err("the master has moved in the meantime".to_owned()),
            Err(error) => Err(self.locator.on_connect_failed(&located, &error)),
        }
    }

    /// Opens a connection, and makes the checks that precede its use.
    async fn connect_to(&self, address: &Address, breaker: Option<&Mutex<Breaker>>) -> Result<NodeConnection, String> {
        let connect = async {
            let end = Arc::new(ConnectionEnd::default());
            let mut redis = address.open(notify_on_end(Arc::clone(&end))).await?;
            self.locator.verify(&mut redis).await?;
            self.fetch_secret(address, &mut redis).await?;
            self.secret.get().map(|secret| self.membership.fallback().share_secret(secret));
            let secret = Arc::clone(&self.secret);
            let script = Invoker::new(redis.clone(), self.refusals.calls()).await?;
            let (metrics, address) = (self.metrics.clone(), address.host_and_port().into());
            Ok(NodeConnection { redis, script, secret, metrics, address, end })
        };
        let time_limit = breaker.map_or(CONNECT_TIMEOUT, |breaker| breaker.lock().probe_timeout());
        let mut connection = match timeout(time_limit, connect).await {
            Ok(connected) => connected.map_err(|error: RedisError| error.to_string())?,
            Err(_) => return Err("no answer in time".into()),
        };
        if let Some(breaker) = breaker {
            self.probe(&mut connection, breaker).await?;
        }
        self.test(&mut connection).await?;
        self.rejoin(&mut connection).await.map_err(|error| error.to_string())?;
        Ok(connection)
    }

    /// Reads the secret of the client hashes, which is on one node of a cluster.
    async fn fetch_secret(&self, address: &Address, redis: &mut MultiplexedConnection) -> RedisResult<()> {
        let Err(error) = self.secret.fetch(redis).await else { return Ok(()) };
        match (error.redirect_node(), self.secret.get()) {
            (Some(_), Some(_)) => Ok(()),
            (Some((named, _)), None) => match address.named_node(named) {
                Some(there) => self.secret.fetch(&mut there.open(|_| ()).await?).await,
                None => Err(error),
            },
            (None, _) => Err(error),
        }
    }

    /// Opens a connection to a node that was unreachable. There is one attempt at a time. Local grants are charged
    /// last, so that few permits are granted locally afterwards.
    async fn reconnect(&self, breaker: &Mutex<Breaker>) -> Result<NodeConnection, String> {
        let mut next = self.next_attempt.lock().await;
        if let Some(next) = *next {
            sleep_until(next).await;
        }
        *next = Some(Instant::now() + ATTEMPT_INTERVAL);
        let connection = self.connect(Some(breaker)).await?;
        // The node is reachable, so the next attempt need not wait.
        *next = None;
        self.reconnected.send_replace(());
        Ok(connection)
    }

    /// Returns a receiver that changes whenever another connection is open again after an outage.
    fn reconnected(&self) -> watch::Receiver<()> {
        self.reconnected.subscribe()
    }

    /// Sends probes until the breaker has a verdict.
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

    /// Runs the self-test, and records whether the node refuses calls. Limiters of the library return errors to their
    /// programs instead.
    ///
    /// # Errors
    /// The connection cannot be used, with the cause.
    async fn test(&self, connection: &mut NodeConnection) -> Result<(), String> {
        if self.membership.fallback().gateway().is_none() {
            return Ok(());
        }
        let Some(tag) = self.slots.own_tag(self.membership.self_test_tag()) else { return Ok(()) };
        let tested = timeout(CONNECT_TIMEOUT, self_test::run(&mut connection.script, &tag)).await;
        self.refusals.record_test(tested.unwrap_or_else(|_| SelfTestResult::Failed(StoreError::Timeout.to_string())))
    }

    /// Repeats the self-test while the node refuses calls. One connection does this for all. Returns the cause if the
    /// connection cannot be used any more.
    async fn watch_refusals(&self, mut connection: NodeConnection) -> String {
        let _testing = self.refusals.testing.lock().await;
        loop {
            self.refusals.wait_until_suspected().await;
            if let Err(cause) = self.test(&mut connection).await {
                return cause;
            }
            sleep(RETEST_EVERY).await;
        }
    }

    /// Charges local grants to the node before its first decision.
    async fn rejoin(&self, connection: &mut NodeConnection) -> Result<(), StoreError> {
        match self.announce(connection).await {
            Err(error) if error.breaks_connection() => return Err(error),
            // A Redis without permission for the set of gateways can still decide.
            _ => {}
        }
        self.charge_local_grants(connection).await.map(|_| ())
    }

    async fn charge_local_grants(&self, connection: &mut NodeConnection) -> Result<LateChargeResult, StoreError> {
        let owns = |limiter: &Limiter, client: Option<&ClientId>| self.slots.has(limiter, client);
        let secret = connection.secret()?;
        let charged = self.membership.charge_local_grants(&mut connection.script, &secret, owns).await?;
        if !charged.is_all {
            self.slots.request_refresh();
        }
        Ok(charged)
    }

    /// Announces this gateway at intervals, and re-reads the secret: a Redis can lose its data without losing its
    /// connections. Ignores errors, since decisions will fail too.
    async fn run_heartbeat(&self, mut connection: NodeConnection) {
        self.eviction.warn_once(&self.url, &mut connection.redis).await;
        loop {
            sleep(ANNOUNCE_EVERY).await;
            _ = self.announce(&mut connection).await;
            _ = timeout(CONNECT_TIMEOUT, self.secret.fetch(&mut connection.redis)).await;
        }
    }

    /// Charges new local grants while the node is reachable. They come from other connections that are down, from
    /// decisions that failed without an outage, and from hash slots that the node gains. One connection does this for
    /// all. Returns if it gets no reply, so that another connection can charge them.
    async fn charge_new_grants(&self, mut connection: NodeConnection) -> StoreError {
        let _charging = self.charging_lock.lock().await;
        let (mut new_grants, mut additions) = (self.membership.fallback().new_grants(), self.slots.additions());
        loop {
            let charged = self.charge_local_grants(&mut connection).await;
            if let Err(error @ (StoreError::Timeout | StoreError::Broken)) = charged {
                return error;
            }
            let is_fruitless = charged.as_ref().map_or(true, |charged| charged.permits == 0);
            let earliest = Instant::now() + if is_fruitless { CHARGE_EVERY_IDLE } else { CHARGE_EVERY };
            if charged.is_ok_and(|charged| charged.is_all) {
                tokio::select! {
                    _ = additions.changed() => continue,
                    _ = new_grants.changed() => {}
                }
            }
            // Waits, so that one late charge has several grants.
            sleep_until(earliest.max(Instant::now() + CHARGE_EVERY)).await;
        }
    }

    /// Returns when the connection has ended or was discarded, or the node is at another address.
    async fn run_until_closed(&self, connection: NodeConnection, status: &watch::Sender<ConnectionStatus>) {
        let mut seen = status.subscribe();
        tokio::select! {
            biased; // The end of a connection is no outage, although calls on it fail.
            () = connection.end.ended.notified() => {}
            () = self.locator.wait_until_moved(&connection.address) => {}
            _ = seen.wait_for(|status| !matches!(status, ConnectionStatus::Up(_))) => return,
            () = self.run_heartbeat(connection.clone()) => {}
            cause = self.watch_refusals(connection.clone()) => {
                status.send_replace(ConnectionStatus::Down(cause));
                return;
            }
            error = self.charge_new_grants(connection.clone()) => if error != StoreError::Broken {
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
    /// Returns the secret of the client hashes.
    ///
    /// # Errors
    /// The secret is unknown, since no node has replied yet.
    pub(super) fn secret(&self) -> Result<KeySecret, StoreError> {
        self.secret.get().ok_or(StoreError::Unreachable)
    }

    /// Returns a clone for one call to a hash slot that is migrating to this node.
    pub(super) fn asking(&self) -> Self {
        Self { script: self.script.asking(), ..self.clone() }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.end, &other.end)
    }

    /// Returns `true` until the connection has ended.
    fn is_open(&self) -> bool {
        !self.end.has_ended.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for NodeConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Returns a callback that records the end of the connection.
fn notify_on_end(end: Arc<ConnectionEnd>) -> impl Fn(&PushInfo) + Send + Sync {
    move |push| {
        if push.kind == PushKind::Disconnection {
            end.has_ended.store(true, Ordering::Relaxed);
            end.ended.notify_one();
        }
    }
}
