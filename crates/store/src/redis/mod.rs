//! The store in Redis. A script decides many requests in one call, over a connection for each worker.
//!
//! A decision has one deadline for waiting for the connection and the reply. A call that may have run is never sent
//! again.
//!
//! | module | purpose |
//! |---|---|
//! | `routing` | finds the node of a bucket and follows redirections |
//! | `dispatch/` | the queue of a worker for a node, and the task that sends the queued decisions |
//! | `topology/` | the nodes; in a cluster, the hash slots of each node |
//! | `node/` | a node: its connections and outages, and the local grants to charge when it has recovered |
//! | `locator/` | the address of a node: fixed, or found by sentinels |
//! | `script/` | the arguments and replies of the script |
//! | `inspection`, `reset`, `cached_reset`, `reset_log` | read and remove buckets for operators |
//! | `shared`, `overrides`, `rejected`, `audit`, `fleet`, `commands` | the data of operators that gateways share |
//! | `post_paid` | marks limits that were checked before their costs were known |
//! | `in_flight`, `leases`, `with_slot` | leases of requests in flight |
//! | `receipts` | decisions that are made once for an id |
//! | `builder` | opens stores from code |
//! | `adopted` | logs limiters of other programs that cannot be evaluated |
//! | `limiters` | the operations of Redisson's `RateLimiter` |

mod adopted;
mod audit;
mod backoff;
mod budgets;
mod builder;
mod cached_reset;
mod commands;
mod dispatch;
mod fleet;
mod hash_slots;
mod in_flight;
mod inspection;
mod leases;
mod limiters;
mod locator;
mod node;
mod overrides;
mod post_paid;
mod receipts;
mod rejected;
mod reset;
mod reset_log;
mod routing;
mod script;
mod shared;
mod topology;
mod with_slot;

use std::sync::Arc;

use deadpool_redis::redis::{Cmd, FromRedisValue, RedisError, Value, cmd, from_redis_value};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::Instant;

use self::adopted::AdoptedFailures;
pub use self::audit::{AuditMark, MAX_AUDIT_ENTRIES};
use self::budgets::OpenBudgets;
pub use self::builder::RedisStoreBuilder;
pub use self::commands::StoredCommands;
use self::dispatch::{DispatcherContext, Dispatchers};
pub use self::fleet::{FleetMember, MAX_FLEET_TEXT};
use self::hash_slots::{hash_slot_of, hash_slot_of_key};
use self::in_flight::Keeper;
use self::leases::Leases;
use self::node::{CONNECT_TIMEOUT, Membership, Node, NodeConnection};
pub use self::rejected::RejectedMinute;
use self::reset_log::ResetLog;
use self::routing::Call;
use self::script::buckets::Buckets;
use self::script::keys::{self, SharedSecret};
use self::script::store_error;
use self::topology::Topology;
use super::StoreError;
use super::fallback::Fallback;
use super::in_flight::InFlight;
use super::negative_cache::Remote;
use super::post_paid::PostPaidLimits;
use tidegate_limit::clock::{Clock, Timestamp, poll_time};
use tidegate_limit::random::random;
use tidegate_metrics::Metrics;
use tidegate_rules::charge::{Charge, Granted, Outcome};
use tidegate_rules::settings::store::{BucketNames, KeySecret, RedisSettings, RedisUrl};

/// A store with its buckets in Redis.
#[derive(Debug)]
pub struct Redis {
    context: Arc<DispatcherContext>,
    url: RedisUrl,
    topology: Arc<Topology>,
    fallback: Arc<Fallback>,
    secret: Arc<SharedSecret>,
    names: BucketNames,
    /// The hash tag of the keys that operators use.
    shared_tag: Arc<str>,
    reset_log: Arc<ResetLog>,
    adopted: Arc<AdoptedFailures>,
    post_paid: Arc<PostPaidLimits>,
    dispatchers: Arc<Dispatchers>,
    in_flight: Arc<InFlight>,
    /// The leases of this worker's requests.
    leases: Arc<Leases>,
    keeper: Keeper,
    /// The budgets in which this worker's requests have reservations.
    budgets: Arc<OpenBudgets>,
}

impl Redis {
    /// Creates a store that connects at its first use. Decides by Redis's clock unless another clock is given.
    ///
    /// # Errors
    /// The URL is not a valid Redis URL.
    pub fn new(
        settings: &RedisSettings,
        metrics: Arc<Metrics>,
        manual_clock: Option<Arc<dyn Clock>>,
    ) -> Result<Self, RedisError> {
        let (secret, fallback) = (SharedSecret::new(settings), Fallback::new(settings.min_gateways));
        let (secret, fallback) = (Arc::new(secret), Arc::new(fallback));
        let membership = Membership::new(Arc::clone(&fallback), &settings.prefix, Arc::clone(&metrics));
        let reset_log = Arc::clone(membership.reset_log());
        let topology = Arc::new(Topology::new(settings, Arc::clone(&secret), membership)?);
        let context =
            Arc::new(DispatcherContext::new(settings.timeout, manual_clock, u64::from_le_bytes(random()), metrics));
        let pool_size = settings.pool_size.max(1);
        let dispatchers = Arc::new(Dispatchers::new(Arc::clone(&context), Arc::clone(&topology), pool_size));
        Ok(Self {
            context,
            url: settings.url.clone(),
            topology,
            fallback,
            secret,
            names: settings.bucket_names(),
            shared_tag: settings.bucket_names().tag("@operators").into(),
            reset_log,
            adopted: Arc::default(),
            post_paid: Arc::default(),
            dispatchers,
            in_flight: Arc::default(),
            leases: Arc::default(),
            keeper: Keeper::default(),
            budgets: Arc::default(),
        })
    }

    /// Returns a store with the same buckets and its own connections, which belong to the runtime that uses them
    /// first. So the requests of a worker never change threads.
    pub fn for_worker(&self) -> Self {
        self.with_dispatchers(Arc::new(self.dispatchers.for_worker()))
    }

    /// Returns a store with the same buckets and these connections.
    fn with_dispatchers(&self, dispatchers: Arc<Dispatchers>) -> Self {
        let (context, topology, secret) =
            (Arc::clone(&self.context), Arc::clone(&self.topology), Arc::clone(&self.secret));
        let (fallback, adopted) = (Arc::clone(&self.fallback), Arc::clone(&self.adopted));
        let (post_paid, in_flight) = (Arc::clone(&self.post_paid), Arc::clone(&self.in_flight));
        Self {
            context,
            url: self.url.clone(),
            topology,
            fallback,
            secret,
            names: self.names.clone(),
            shared_tag: Arc::clone(&self.shared_tag),
            reset_log: Arc::clone(&self.reset_log),
            adopted,
            post_paid,
            dispatchers,
            in_flight,
            leases: Arc::default(),
            keeper: Keeper::default(),
            budgets: Arc::default(),
        }
    }

    /// Returns the hash of a client in keys; `None` until the secret was read from Redis.
    pub fn key_of(&self, value: &[u8]) -> Option<u128> {
        Some(self.secret.get()?.hash(value))
    }

    /// Returns the names of the buckets of rules.
    pub fn bucket_names(&self) -> &BucketNames {
        &self.names
    }

    /// Returns the store that decides while Redis does not.
    pub fn fallback(&self) -> &Fallback {
        &self.fallback
    }

    /// Returns the address of Redis.
    pub fn url(&self) -> &RedisUrl {
        &self.url
    }

    /// Returns the last known address of the master, if the store uses sentinels.
    pub fn master(&self) -> Option<String> {
        self.topology.master()
    }

    /// Returns why Redis is unreachable, if it is known to be.
    pub fn outage(&self) -> Option<String> {
        self.topology.outage()
    }

    /// Returns `true` if all connections of this worker are open and no outage is known.
    pub fn is_connected(&self) -> bool {
        self.dispatchers.are_connected() && self.outage().is_none()
    }

    /// Opens connections before the first decision needs them, on the current Tokio runtime.
    pub fn connect(&self) {
        let (topology, dispatchers) = (Arc::clone(&self.topology), Arc::clone(&self.dispatchers));
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        tokio::spawn(async move {
            let nodes = topology.nodes(deadline).await.unwrap_or_default();
            nodes.iter().for_each(|node| _ = dispatchers.dispatcher_for(node));
        });
    }

    /// Returns `true` if all nodes reply.
    pub async fn is_up(&self) -> bool {
        let deadline = self.deadline();
        let Ok(nodes) = self.topology.nodes(deadline).await else { return false };
        let ping = async |connection: &mut NodeConnection| {
            cmd("PING").exec_async(&mut connection.redis).await.map_err(|error| store_error(&error))
        };
        let ping = async |node: &Arc<Node>| {
            self.dispatchers.dispatcher_for(node).connection().call(deadline, ping).await.is_ok()
        };
        join_all(nodes.iter().map(ping)).await.into_iter().all(|is_up| is_up)
    }

    async fn decide(&self, charges: &[Charge], deadline: Instant) -> Result<Outcome, StoreError> {
        let Some(first) = charges.first() else {
            return Ok(Outcome::with_granted(self.context.estimated_now(), Vec::new(), true));
        };
        let since = poll_time();
        let hash_slot = self.hash_slot(first).unwrap_or_default(); // the one node without a cluster has them all
        let mut decided = self.decide_in_slot(hash_slot, charges, None, deadline).await;
        self.record_decision(charges, since, &mut decided);
        decided
    }

    fn record_decision(&self, charges: &[Charge], since: Instant, decided: &mut Result<Outcome, StoreError>) {
        if let Ok(outcome) = decided {
            self.context.metrics.store_decided(poll_time().saturating_duration_since(since));
            outcome.align_waits(charges);
        }
        self.adopted.record(charges, decided.as_ref().err());
    }

    /// Sends a command for one key.
    async fn query<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T, StoreError> {
        let answer = self.call_owner(hash_slot_of_key(key), self.deadline(), command).await?;
        from_redis_value(answer).map_err(|_| StoreError::UnexpectedReply)
    }

    /// Gives back permits to buckets of one hash slot, and ends reservations in it.
    async fn undo(&self, granted: &[Granted]) -> Result<(), StoreError> {
        let (reservations, granted) = split_reservations(granted);
        for settled in reservations {
            // Boxed, so that the type of this future, which is part of the type of each request, is not deeper.
            self.take_one(&settled, self.deadline()).boxed().await?;
        }
        let granted = &granted[..];
        let Some(first) = granted.first() else { return Ok(()) };
        let hash_slot = hash_slot_of(&first.charge.limiter, first.charge.client.as_ref());
        self.call_owner(hash_slot, self.deadline(), &Undo { granted, now: self.context.manual_now() }).await
    }
}

impl Remote for Redis {
    fn hash_slot(&self, charge: &Charge) -> Option<u16> {
        self.topology.is_cluster().then(|| hash_slot_of(&charge.limiter, charge.client.as_ref()))
    }

    fn clock(&self, charge: &Charge) -> usize {
        self.hash_slot(charge).map_or(0, |hash_slot| self.topology.node_number(hash_slot))
    }

    fn has_manual_clock(&self) -> bool {
        self.context.manual_clock.is_some()
    }

    fn deadline(&self) -> Instant {
        poll_time() + self.context.timeout
    }

    fn call_count(&self) -> u64 {
        self.dispatchers.call_count()
    }

    async fn take(&self, charges: &[Charge], deadline: Instant) -> Result<Outcome, StoreError> {
        self.decide(charges, deadline).await
    }

    async fn take_one(&self, charge: &Charge, deadline: Instant) -> Result<Outcome, StoreError> {
        let since = poll_time();
        let mut decided = self.decide_one(charge, deadline).await;
        self.record_decision(std::slice::from_ref(charge), since, &mut decided);
        decided
    }

    async fn give_back(&self, granted: &[Granted]) -> Result<(), StoreError> {
        self.undo(granted).await
    }

    async fn time(&self, charge: &Charge) -> Result<Timestamp, StoreError> {
        let node =
            self.topology.node_of(hash_slot_of(&charge.limiter, charge.client.as_ref()), self.deadline()).await?;
        let time = async |connection: &mut NodeConnection| connection.script.time().await;
        self.dispatchers.dispatcher_for(&node).connection().call(self.deadline(), time).await
    }
}

/// Calls `each` with the keys of a charge's bucket; `key` is their buffer. For benchmarks.
pub fn redis_keys(charge: &Charge, secret: &KeySecret, key: &mut String, each: impl FnMut(&str)) {
    keys::for_each(&charge.limiter, std::slice::from_ref(&charge.client), secret, key, each);
}

/// A command for one key.
impl Call for Cmd {
    type Reply = Value;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Value, StoreError> {
        connection.script.send(self.clone()).await.map_err(|error| store_error(&error))
    }
}

/// A call that gives back permits.
struct Undo<'g> {
    granted: &'g [Granted],
    now: Option<Timestamp>,
}

impl Call for Undo<'_> {
    type Reply = ();

    async fn run(&self, connection: &mut NodeConnection) -> Result<(), StoreError> {
        undo(connection, self.granted, self.now).await
    }
}

/// Returns the charges that cancel the reservations among these grants, and the other grants.
fn split_reservations(granted: &[Granted]) -> (Vec<Charge>, Vec<Granted>) {
    let others = granted.iter().filter(|grant| grant.charge.kind.reservation().is_none()).cloned();
    (granted.iter().filter_map(|grant| grant.charge.settled(0)).collect(), others.collect())
}

/// Gives back permits. Reservations must be cancelled instead: their buckets were not charged.
async fn undo(connection: &mut NodeConnection, granted: &[Granted], now: Option<Timestamp>) -> Result<(), StoreError> {
    let mut buckets = Buckets::default();
    let mut indexed: Vec<_> = granted.iter().map(|grant| (buckets.add(&grant.charge), grant)).collect();
    indexed.sort_by_key(|(index, _)| *index);
    let number = |grant: &Granted| format!("{} {}", grant.charge.permits, grant.at.as_millis());
    let numbers: Vec<String> = indexed.iter().map(|(_, grant)| number(grant)).collect();
    // Time slots of `leaky_bucket` may be later than the decision; windows are not.
    let near = granted.iter().map(|grant| grant.at).min().unwrap_or_default();
    let secret = connection.secret()?;
    let add = |call: &mut Cmd| {
        call.arg(buckets.number_of_keys());
        buckets.each_key(&secret, |key| _ = call.arg(key));
        call.arg("give_back").arg(buckets.limiter_args(near)).arg(numbers.join(" "));
        call.arg(now.map(|now| now.as_millis().to_string()));
    };
    connection.script.run(add).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;
    use tidegate_limit::calendar::{Calendar, Unit};
    use tidegate_limit::{Algorithm, Mode, Quota};
    use tidegate_rules::charge::Limiter;
    use tidegate_rules::settings::store::RedisUrl;

    /// A Redis server that exits when dropped.
    struct Server(Child);

    impl Server {
        fn start(port: u16) -> Option<Self> {
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Self)
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    fn charge(name: &str, algorithm: Algorithm) -> Charge {
        let quota = Quota::new(3, 60_000, algorithm).expect("a quota");
        Charge::new(Arc::new(Limiter::new(name.into(), Mode::Overall, quota)), None, 1)
    }

    #[tokio::test]
    async fn wrong_estimate_of_redis_time_is_corrected() {
        // Below the ports that the kernel assigns to clients and to listeners without a port.
        let first = 16_000 + u16::try_from(std::process::id() % 4_000).expect("a port");
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let port = (first..first + 1_000).find(is_free).expect("a free port");
        let Some(_server) = Server::start(port) else {
            assert!(std::env::var_os("REQUIRE_REDIS").is_none(), "redis-server cannot be started");
            return;
        };
        let url = RedisUrl::new(format!("redis://127.0.0.1:{port}"));
        let settings = RedisSettings { timeout: Duration::from_secs(10), ..RedisSettings::new(url) };
        let redis = Redis::new(&settings, Arc::new(Metrics::new()), None).expect("a store");
        while !redis.is_up().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let day = Algorithm::FixedWindow(Calendar::new(Unit::Day, "Europe/Rome").expect("a calendar"));
        let charges = [charge("bucket", Algorithm::TokenBucket), charge("day", day)];
        for (guess, remaining) in [(0, 2), (4_000_000_000_000, 1)] {
            redis.context.clock_offset.record(Timestamp::from_millis(guess));
            let outcome = redis.take(&charges, redis.deadline()).await.expect("a decision");
            let decisions: Vec<_> =
                outcome.decisions.iter().map(|decision| (decision.granted, decision.remaining)).collect();
            assert_eq!(decisions, [(true, remaining); 2]);
            assert!(redis.context.clock_offset.redis_now().millis_since(outcome.now) < 60_000, "not corrected");
            redis.context.clock_offset.record(Timestamp::from_millis(guess));
            redis.give_back(&outcome.granted_charges(&charges[..1])).await.expect("given back");
            redis.take(&charges[..1], redis.deadline()).await.expect("a decision");
        }
    }
}
