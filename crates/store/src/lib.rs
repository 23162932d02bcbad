//! Stores for rate limit buckets: in memory, or in a Redis that several gateways share.
//!
//! A store makes all charges of a list or none, atomically. A shadow charge is made if the live charges are made and
//! its own limit grants it.
//!
//! Without the feature `redis`, only a store in memory can be opened.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

// Some items and arguments are used only with Redis.
#![cfg_attr(
    not(feature = "redis"),
    allow(dead_code, unreachable_pub, unused_imports, unused_variables, clippy::needless_pass_by_value)
)]

mod budgets;
mod builder;
#[cfg(feature = "redis")]
mod cancel;
mod fallback;
mod in_flight;
mod memory;
#[cfg(feature = "redis")]
mod multi_slot;
#[cfg(feature = "redis")]
mod negative_cache;
mod operations;
mod post_paid;
mod receipts;
#[cfg(feature = "redis")]
mod redis;
mod reports;
#[cfg(test)]
pub mod testing;
#[cfg(feature = "tls")]
pub mod tls;
pub mod transfer;

use std::sync::Arc;

use tokio::time::Instant;

pub use self::budgets::Reservation;
pub use self::builder::MemoryStoreBuilder;
#[cfg(feature = "redis")]
use self::cancel::has_reservation;
pub use self::in_flight::{Full, InFlightSlot, RouteSlots, SlotRequest, TakenWithSlot};
pub use self::memory::{Memory, Usage};
#[cfg(feature = "redis")]
pub use self::negative_cache::NegativeCache;
pub use self::operations::inspection::Inspection;
pub use self::operations::limiters::{LimiterRef, SetRate};
pub use self::operations::overrides::{
    MAX_OVERRIDES, OverridesVersion, PutOverride, RestoredOverrides, StoredOverride, StoredOverrides,
};
pub use self::receipts::{OnceId, RECEIPT_TTL_MILLIS, ReturnedOnce, TakenOnce};
#[cfg(feature = "redis")]
pub use self::redis::{
    AuditMark, FleetMember, MAX_AUDIT_ENTRIES, MAX_FLEET_TEXT, RejectedMinute, StoredCommands, redis_keys,
};
#[cfg(feature = "redis")]
pub use self::redis::{Redis, RedisStoreBuilder};
use tidegate_limit::clock::{Clock, SystemClock};
use tidegate_metrics::Metrics;
use tidegate_rules::charge::{Charge, ChargeKind, ClientId, Decision, Granted, Limiter, Outcome, Turn};
use tidegate_rules::settings::store::{RedisUrl, StoreSettings};

pub use tidegate_rules::settings::store::BadRedisUrl;
use tidegate_rules::settings::store::BucketNames;

/// A store for buckets. Cheap to clone: clones share the buckets, so that several limiters and layers can use one
/// store.
///
/// ```
/// # use tidegate_store as tidegate_layer;
/// use tidegate_layer::Store;
///
/// let store = Store::memory(); // or Store::redis("redis://127.0.0.1:6379")?
/// let same = store.clone();
/// ```
#[derive(Clone, Debug)]
pub struct Store(Backend);

/// The implementation of a [`Store`].
#[derive(Clone, Debug)]
pub enum Backend {
    /// Buckets in this process: limits are exact for one gateway, and are lost when it exits.
    Memory(Arc<Memory>),
    /// Buckets in Redis: limits are exact for all gateways together.
    #[cfg(feature = "redis")]
    Redis(Arc<NegativeCache<Redis>>),
}

/// Matches the implementation of a store, and evaluates the expression of that implementation: `backend!(store,
/// |memory| ..., |redis| ...)`. The expressions are no closures, so they can `await` and return from the function.
macro_rules! backend {
    ($store:expr, |$memory:pat_param| $in_memory:expr, |$redis:pat_param| $in_redis:expr) => {
        match &$store.0 {
            Backend::Memory($memory) => $in_memory,
            #[cfg(feature = "redis")]
            Backend::Redis($redis) => $in_redis,
        }
    };
}
use backend;

/// The error of a store that did not decide.
///
/// After [`StoreError::Timeout`] and [`StoreError::Broken`] it is unknown whether the request was charged. The request
/// is never sent again, since losing a permit is better than granting it twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No reply before the store's deadline.
    #[error("no answer in time")]
    Timeout,
    /// There is no connection, and none could be opened before the deadline.
    #[error("no connection")]
    Unreachable,
    /// The connection broke before the reply arrived.
    #[error("connection broke")]
    Broken,
    /// Redis returned an error, for example because it is out of memory. The value is its first word, such as `OOM`.
    #[error("Redis returned {0}")]
    ErrorReply(String),
    /// The buckets were moving to another node of the cluster until the deadline. Nothing ran.
    #[error("{0}")]
    Redirected(Redirection),
    /// Redis returned a reply that the script never returns.
    #[error("unexpected reply from the script")]
    UnexpectedReply,
    /// A limiter that other programs configure lacks its rate, interval or type.
    #[error("limiter is not initialised")]
    NotInitialised,
    /// A limiter that other programs configure is OVERALL and its rule says PER_CLIENT, or the other way round.
    #[error("mode of the limiter differs from the rule")]
    ModeDiffers,
    /// The store in this process has 65,536 limiters of the library with a rate or permits in use, and no capacity for
    /// another one.
    #[error("no capacity for another limiter")]
    Full,
}

/// The node of a cluster that has the buckets of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("hash slot {hash_slot} is on {address}")]
pub struct Redirection {
    /// The hash slot.
    #[doc(hidden)]
    pub hash_slot: u16,
    /// The host and port of the other node.
    #[doc(hidden)]
    pub address: String,
    /// Whether Redis replied ASK: only this call goes to the other node, since the hash slot is migrating there.
    #[doc(hidden)]
    pub is_ask: bool,
}

/// The errors that Redis returns to all commands while it is in a certain state.
const UNAVAILABLE_REPLIES: [&str; 8] =
    ["READONLY", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "NOAUTH", "WRONGPASS"];

/// The error of a store whose settings are not valid: its URL, its prefix, or the URL of a sentinel or node. An
/// unreachable Redis is not an error. The message contains no password.
#[derive(Clone, Debug, thiserror::Error)]
#[error("store `{0}` cannot be opened: {1}")]
pub struct StoreOpenError(RedisUrl, String);

impl Store {
    /// Opens the store. A store in Redis connects at its first use, and opens even if Redis is unreachable.
    ///
    /// # Errors
    /// The URL is not a valid Redis URL, or Redis is not built in.
    #[doc(hidden)]
    pub fn open(settings: &StoreSettings, metrics: Arc<Metrics>) -> Result<Self, StoreOpenError> {
        Self::open_with_clock(settings, metrics, None)
    }

    /// Opens a store with another clock than the system's or Redis's. For tests and benchmarks.
    ///
    /// # Errors
    /// The URL is not a valid Redis URL, or Redis is not built in.
    #[doc(hidden)]
    pub fn open_with_clock(
        settings: &StoreSettings,
        metrics: Arc<Metrics>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Result<Self, StoreOpenError> {
        Ok(match settings {
            StoreSettings::Memory { key_secret } => {
                let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
                Self(Backend::Memory(Arc::new(Memory::new(clock, *key_secret))))
            }
            #[cfg(feature = "redis")]
            StoreSettings::Redis(settings) => {
                let redis = Redis::new(settings, Arc::clone(&metrics), clock);
                let redis = redis.map_err(|error| StoreOpenError(settings.url.clone(), error.to_string()))?;
                Self(Backend::Redis(Arc::new(NegativeCache::new(redis, metrics))))
            }
            #[cfg(not(feature = "redis"))]
            StoreSettings::Redis(settings) => {
                return Err(StoreOpenError(settings.url.clone(), "Redis is not built in (feature `redis`)".to_owned()));
            }
        })
    }

    /// Returns a store with the same buckets for another thread, with its own connections.
    pub fn for_worker(&self) -> Self {
        backend!(self, |memory| Self(Backend::Memory(Arc::clone(memory))), |redis| {
            Self(Backend::Redis(Arc::new(redis.with_store(redis.store().for_worker()))))
        })
    }

    /// Returns `true` if both are handles of one open store.
    #[doc(hidden)]
    pub fn has_same_buckets(&self, other: &Self) -> bool {
        backend!(
            self,
            |own| matches!(&other.0, Backend::Memory(other) if Arc::ptr_eq(own, other)),
            |own| matches!(&other.0, Backend::Redis(other) if Arc::ptr_eq(own, other))
        )
    }

    /// Replaces the active limits, for which an embedded store reserves capacity.
    #[doc(hidden)]
    pub fn set_active_limits<'l>(
        &self,
        limiters: impl Iterator<Item = &'l Arc<Limiter>>,
        previous: impl Iterator<Item = &'l Arc<Limiter>>,
    ) {
        backend!(
            self,
            |memory| memory.set_active_limits(limiters.map(|limiter| &**limiter), previous.map(|limiter| &**limiter)),
            |_| {}
        );
    }

    /// Returns the number of buckets that an embedded store has for this limit.
    #[doc(hidden)]
    pub fn usage(&self, limiter: &Arc<Limiter>) -> Option<Usage> {
        backend!(self, |memory| Some(memory.usage(limiter)), |_| None)
    }

    /// Does the periodic maintenance that does not depend on requests.
    #[doc(hidden)]
    pub fn run_maintenance(&self) {
        backend!(self, |memory| memory.run_maintenance(), |_| {});
    }

    /// Returns the cached refusals of these charges, if there is one; the other decisions are unknown. An embedded store has
    /// no cache, since a decision is as fast.
    #[doc(hidden)]
    pub fn known_refusal(&self, charges: &[Charge]) -> Option<Outcome> {
        backend!(self, |_| None, |redis| redis.known_refusal(charges))
    }

    /// Returns `true` if a decision about these charges without I/O would probably refuse them. They must take no
    /// permits.
    #[doc(hidden)]
    pub fn may_refuse(&self, charges: &[Charge]) -> bool {
        backend!(self, |memory| memory.take(charges).is_ok_and(|outcome| !outcome.granted()), |redis| {
            charges.iter().any(|charge| redis.refuses(charge))
        })
    }

    /// Returns the hash of a client in Redis keys; `None` if the key contains the client itself.
    #[doc(hidden)]
    pub fn key_of(&self, client: &ClientId) -> Option<u128> {
        let ClientId::Value(value) = client else { return None };
        backend!(self, |memory| Some(memory.key_of(value)), |redis| redis.store().key_of(value))
    }

    /// Announces the owner of this store as a gateway, which gets a share of each limit while the store is
    /// unreachable.
    #[doc(hidden)]
    pub fn announce_as_gateway(&self) {
        backend!(self, |_| {}, |redis| redis.store().fallback().announce_as_gateway());
    }

    /// Releases the slots of ended requests, before the runtime of the worker ends.
    #[doc(hidden)]
    pub async fn release_last_slots(&self) {
        backend!(self, |_| {}, |redis| redis.store().release_last_leases().await);
    }

    /// Returns the prefix and the hash tags by which this store names the buckets of rules.
    #[doc(hidden)]
    pub fn bucket_names(&self) -> BucketNames {
        backend!(self, |_| BucketNames::default(), |redis| redis.store().bucket_names().clone())
    }

    /// Returns `true` if the buckets are in Redis.
    #[doc(hidden)]
    pub fn is_redis(&self) -> bool {
        backend!(self, |_| false, |_| true)
    }

    /// Opens connections before the first decision needs them, on the current Tokio runtime. A store in this process has
    /// none.
    ///
    /// # Panics
    /// The store is in Redis, and the caller is outside a Tokio runtime.
    pub fn connect(&self) {
        backend!(self, |_| {}, |redis| redis.store().connect());
    }

    /// Returns the store's name for messages: `memory`, or its address without the password.
    #[doc(hidden)]
    pub fn address(&self) -> String {
        backend!(self, |_| "memory".to_owned(), |redis| redis.store().url().to_string())
    }

    /// Returns the metrics that the store counts in; `None` if it counts nothing.
    #[doc(hidden)]
    pub fn metrics(&self) -> Option<&Arc<Metrics>> {
        backend!(self, |_| None, |redis| Some(redis.metrics()))
    }

    /// Returns why the store is unreachable, if it is known to be.
    #[doc(hidden)]
    pub fn outage(&self) -> Option<String> {
        backend!(self, |_| None, |redis| redis.store().outage())
    }

    /// Returns `true` if all connections of this worker are open and no outage is known.
    #[doc(hidden)]
    pub fn is_connected(&self) -> bool {
        backend!(self, |_| true, |redis| redis.store().is_connected())
    }

    /// Returns the last known address of the master, if the store uses sentinels.
    #[doc(hidden)]
    pub fn master(&self) -> Option<String> {
        backend!(self, |_| None, |redis| redis.store().master())
    }

    /// Returns the number of gateways that share the store, as last counted.
    #[doc(hidden)]
    pub fn gateways(&self) -> Option<u32> {
        backend!(self, |_| None, |redis| Some(redis.store().fallback().gateways()))
    }

    /// Returns the number of permits that were granted locally and are not charged to the store yet.
    #[doc(hidden)]
    pub fn owed_permits(&self) -> Option<u64> {
        backend!(self, |_| None, |redis| Some(redis.store().fallback().owed_permits()))
    }

    /// Returns `true` if the store can decide now, for health checks. Takes at most the store's timeout.
    pub async fn is_up(&self) -> bool {
        backend!(self, |_| true, |redis| redis.store().is_up().await)
    }

    /// Makes all charges or none, at the store's current time.
    ///
    /// # Errors
    /// The store could not decide; see [`StoreError`].
    #[doc(hidden)]
    pub async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        backend!(self, |memory| memory.take(charges), |redis| {
            match has_reservation(charges) {
                true => self.reserve(charges).await,
                false => multi_slot::take(redis, charges).await,
            }
        })
    }

    /// Like [`take`](Self::take), with an earlier deadline than the store's. A reply after it is handled like a reply after the
    /// store's deadline.
    ///
    /// # Errors
    /// The store could not decide; see [`StoreError`].
    #[doc(hidden)]
    pub async fn take_until(&self, charges: &[Charge], deadline: Instant) -> Result<Outcome, StoreError> {
        backend!(self, |memory| memory.take(charges), |redis| {
            let deadline = deadline.min(negative_cache::Remote::deadline(redis.store()));
            multi_slot::take_until(redis, charges, deadline).await
        })
    }
}

impl Store {
    /// Makes all charges or none without waiting. Returns `None` if the store has to be asked.
    #[doc(hidden)]
    pub fn take_immediately(&self, charges: &[Charge]) -> Option<Result<Outcome, StoreError>> {
        backend!(self, |memory| Some(memory.take(charges)), |_| None)
    }

    /// Makes all charges or none by this gateway's share of their limits, while the store does not decide.
    ///
    /// # Errors
    /// The store is in this process, so that there are no shares, or the rate of a limiter is unknown.
    #[doc(hidden)]
    pub fn take_locally(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        backend!(self, |_| Err(StoreError::Unreachable), |redis| redis.store().fallback().take(charges))
    }

    /// Charges a bucket for an event of the past, so that the charge cannot be refused. Permits that the bucket lacks
    /// are its debt: later requests wait until it is paid. Returns the new state of the bucket, or `None` if the store
    /// did not reply. Permits that it has certainly not charged are charged to this gateway's share, and later to the
    /// store. Other permits may be lost, since nothing is charged twice.
    #[doc(hidden)]
    pub async fn charge_outcome(&self, charge: &Charge) -> Option<Decision> {
        backend!(
            self,
            |memory| {
                let charge = Charge { kind: ChargeKind::Unconditional, turn: Turn::Any, ..charge.clone() };
                memory.take(&[charge]).ok()?.decisions.into_iter().next()
            },
            |redis| {
                let charged = multi_slot::charge_unconditionally(redis, charge).await;
                let charge_later = |multi_slot::FailedCharge { error, permits }| {
                    tracing::debug!(%error, "failed to charge the outcome of a request");
                    if !error.may_have_charged() {
                        redis.store().fallback().charge_later(&Charge { permits, ..charge.clone() });
                    }
                };
                charged.map_err(charge_later).ok()
            }
        )
    }

    /// Gives back permits that [`take_locally`](Self::take_locally) granted.
    #[doc(hidden)]
    pub fn give_back_locally(&self, granted: &[Granted]) {
        backend!(self, |_| {}, |redis| redis.store().fallback().give_back(granted));
    }

    /// Gives back the permits of a request that no upstream received. Never repeated: permits that are not given back
    /// become available again with time, but permits that are given back twice are granted twice.
    ///
    /// # Errors
    /// The store did not reply. The permits become available again with time.
    #[doc(hidden)]
    pub async fn give_back(&self, granted: &[Granted]) -> Result<(), StoreError> {
        backend!(
            self,
            |memory| {
                memory.give_back(granted);
                Ok(())
            },
            |redis| multi_slot::give_back(redis, granted).await
        )
    }
}

impl StoreError {
    /// Returns `true` if the charges may have been made.
    #[doc(hidden)]
    pub fn may_have_charged(&self) -> bool {
        matches!(self, Self::Timeout | Self::Broken | Self::UnexpectedReply)
    }

    /// Returns `true` if the error concerns only a limiter that other programs configure.
    #[doc(hidden)]
    pub fn is_about_adopted(&self) -> bool {
        matches!(self, Self::NotInitialised | Self::ModeDiffers)
    }

    /// Returns `true` if the connection must not be used again: a late reply may still arrive on it, its server is no
    /// longer the master, or its server rejects all commands at present.
    fn breaks_connection(&self) -> bool {
        match self {
            Self::Timeout | Self::Broken | Self::UnexpectedReply => true,
            Self::ErrorReply(code) => UNAVAILABLE_REPLIES.contains(&code.as_str()),
            Self::Unreachable | Self::Redirected { .. } | Self::Full | Self::NotInitialised | Self::ModeDiffers => {
                false
            }
        }
    }

    /// Returns `true` if the bucket is on another node or is migrating. Nothing ran.
    fn is_redirected(&self) -> bool {
        matches!(self, Self::Redirected { .. }) || self.is_migrating()
    }

    /// Returns `true` if the hash slot is migrating from one node to another.
    fn is_migrating(&self) -> bool {
        match self {
            Self::Redirected(Redirection { is_ask, .. }) => *is_ask,
            Self::ErrorReply(code) => code == "TRYAGAIN",
            _ => false,
        }
    }

    /// Returns the error as a label: one of a fixed set.
    #[doc(hidden)]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Broken => "broken",
            Self::Redirected { .. } => "elsewhere",
            Self::UnexpectedReply => "shape",
            Self::Full => "full",
            Self::NotInitialised => "not_initialised",
            Self::ModeDiffers => "mode_differs",
            Self::ErrorReply(code) => match code.as_str() {
                "OOM" => "oom",
                "READONLY" => "readonly",
                "LOADING" => "loading",
                "BUSY" => "busy",
                "NOAUTH" | "WRONGPASS" | "NOPERM" => "denied",
                "NOREPLICAS" | "MASTERDOWN" | "CLUSTERDOWN" => "down",
                _ => "answer",
            },
        }
    }
}
