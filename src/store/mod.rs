//! Where buckets are kept and decided on: in this process, or in a Redis that gateways share.
//!
//! A store takes a list of charges and makes all of them or none, atomically, where the buckets are. Shadow charges only
//! watch: each is made if the live ones are and its own limit grants it.

mod adopted;
mod builder;
mod fallback;
mod limiters;
mod memory;
mod multi_slot;
mod negative_cache;
mod redis;
pub mod settings;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(feature = "gateway")]
pub(crate) mod transfer;

use std::sync::Arc;

pub use self::builder::{MemoryBuilder, RedisBuilder};
pub(crate) use self::limiters::{LimiterRef, SetRate};
pub use self::memory::{Memory, Usage};
pub use self::negative_cache::NegativeCache;
pub use self::redis::Redis;
#[cfg(feature = "gateway")]
pub(crate) use self::redis::redis_keys;
pub use self::settings::BadRedisUrl;
use self::settings::{RedisUrl, StoreSettings};
use crate::clock::{SystemClock, Timestamp};
use crate::limit::{Charge, ClientId, Decision, Granted, Limiter, Outcome};
use crate::metrics::Metrics;

/// A address for buckets. Cheap to clone; clones share the buckets, so any number of limiters and layers may have one.
///
/// ```
/// use tidegate::{RateLimiter, Store};
///
/// let store = Store::memory(); // or Store::redis("redis://127.0.0.1:6379")?
/// let mails = RateLimiter::new(store.clone(), "mails")?;
/// let texts = RateLimiter::new(store, "texts")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum Store {
    /// Buckets in this process: exact for one gateway, gone with it.
    Memory(Arc<Memory>),
    /// Buckets in Redis: exact for all gateways together.
    Redis(Arc<NegativeCache<Redis>>),
}

/// Why the store did not decide. Whether it counted the request anyway is unknown after [`StoreError::Timeout`] and
/// [`StoreError::Broken`]; the request is never sent again, since a permit lost is better than one granted twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No answer before the store's deadline.
    #[error("no answer in time")]
    Timeout,
    /// No connection.
    #[error("no connection")]
    Unreachable,
    /// The connection broke before the answer came.
    #[error("connection broke")]
    Broken,
    /// Redis answered with an error; its first word, such as `OOM` or `READONLY`.
    #[error("redis answers {0}")]
    ErrorReply(String),
    /// The hash slot is at another node of the cluster, and nothing ran.
    #[error("slot {slot} is at {address}")]
    Redirected {
        /// The slot.
        slot: u16,
        /// The other node's host and port.
        address: String,
        /// For this call alone: the slot is on its way there.
        is_ask: bool,
    },
    /// Redis answered with something that the script does not return.
    #[error("answer of another shape than the script's")]
    UnexpectedReply,
    /// A limiter that others configure lacks its rate, interval or type.
    #[error("limiter is not initialised")]
    NotInitialised,
    /// A limiter that others configure is OVERALL where the rule says PER_CLIENT, or the other way round.
    #[error("limiter is of another mode than the rule says")]
    ModeDiffers,
    /// The embedded store has no room for another limiter of the library.
    #[error("no room for another limiter")]
    Full,
}

/// The errors that a Redis answers to all commands while it is in a certain state.
const UNAVAILABLE_REPLIES: [&str; 8] =
    ["READONLY", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "NOAUTH", "WRONGPASS"];

/// A request that is refused by what is known already.
#[derive(Debug)]
pub(crate) struct KnownRefusal {
    /// What the store's clock shows.
    pub(crate) now: Timestamp,
    /// What is known of each charge; nothing is of those that the store was not asked for.
    pub(crate) decisions: Vec<Option<Decision>>,
}

/// Why a store cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("store `{0}` cannot be opened: {1}")]
pub struct OpenError(RedisUrl, String);

impl Store {
    /// Opens the store. One in Redis connects when it is first used, and starts without Redis too.
    ///
    /// # Errors
    /// The URL of Redis is none.
    pub fn open(settings: &StoreSettings, metrics: Arc<Metrics>) -> Result<Self, OpenError> {
        Ok(match settings {
            StoreSettings::Memory { key_secret } => {
                Self::Memory(Arc::new(Memory::new(Arc::new(SystemClock::new()), *key_secret)))
            }
            StoreSettings::Redis(settings) => {
                let redis = Redis::new(settings, Arc::clone(&metrics));
                let redis = redis.map_err(|error| OpenError(settings.url.clone(), error.to_string()))?;
                Self::Redis(Arc::new(NegativeCache::new(redis, metrics)))
            }
        })
    }

    /// The same buckets for a thread of its own, which shares no connection with others.
    pub fn for_worker(&self) -> Self {
        match self {
            Self::Memory(memory) => Self::Memory(Arc::clone(memory)),
            Self::Redis(redis) => Self::Redis(Arc::new(redis.with_store(redis.store().for_worker()))),
        }
    }

    /// From now on these limits are in force, for which an embedded store keeps room, and no longer those that were.
    pub(crate) fn set_active_limits<'l>(
        &self,
        limiters: impl Iterator<Item = &'l Arc<Limiter>>,
        were: impl Iterator<Item = &'l Arc<Limiter>>,
    ) {
        if let Self::Memory(memory) = self {
            memory.set_active_limits(limiters.map(|limiter| &**limiter), were.map(|limiter| &**limiter));
        }
    }

    /// How many buckets an embedded store has of this limit.
    pub(crate) fn usage(&self, limiter: &Arc<Limiter>) -> Option<Usage> {
        match self {
            Self::Memory(memory) => Some(memory.usage(limiter)),
            Self::Redis(_) => None,
        }
    }

    /// Looks after what no request may come to look after; to be called now and then.
    pub(crate) fn run_maintenance(&self) {
        if let Self::Memory(memory) = self {
            memory.run_maintenance();
        }
    }

    /// Is it known without asking that these charges will not all be granted? Of an embedded store, nothing is known that
    /// asking would not tell as fast.
    pub(crate) fn known_refusal(&self, charges: &[Charge]) -> Option<KnownRefusal> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => redis.known_refusal(charges),
        }
    }

    /// What stands for a client in its keys; nothing for those that are written as they are.
    pub(crate) fn key_of(&self, client: &ClientId) -> Option<u128> {
        let ClientId::Value(value) = client else { return None };
        match self {
            Self::Memory(memory) => Some(memory.key_of(value)),
            Self::Redis(redis) => redis.store().key_of(value),
        }
    }

    /// Marks the owner of this store as a gateway, which has a share of each limit while the store is away.
    pub(crate) fn announce_as_gateway(&self) {
        if let Self::Redis(redis) = self {
            redis.store().fallback().announce_as_gateway();
        }
    }

    /// Opens connections before the first decision needs them, on the Tokio runtime this is called on.
    pub fn connect(&self) {
        if let Self::Redis(redis) = self {
            redis.store().connect();
        }
    }

    /// What it is, for messages: `memory`, or its address without the password.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Memory(_) => "memory".to_owned(),
            Self::Redis(redis) => redis.store().url().to_string(),
        }
    }

    /// Where it counts; `None` if it counts nothing.
    pub(crate) fn metrics(&self) -> Option<&Arc<Metrics>> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.metrics()),
        }
    }

    /// Why it cannot be reached, if it is known that it cannot.
    pub(crate) fn outage(&self) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => redis.store().outage(),
        }
    }

    /// With sentinels, where the master was last.
    #[cfg(feature = "gateway")]
    pub(crate) fn master(&self) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => redis.store().master(),
        }
    }

    /// How many gateways share it, as far as is known.
    #[cfg(feature = "gateway")]
    pub(crate) fn gateways(&self) -> Option<u32> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.store().fallback().gateways()),
        }
    }

    /// How many permits were granted without it that it has not been charged with yet.
    #[cfg(feature = "gateway")]
    pub(crate) fn owed(&self) -> Option<u64> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.store().fallback().owed()),
        }
    }

    /// Would a decision be made at present? Asked by health checks.
    pub async fn is_up(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(redis) => redis.store().is_up().await,
        }
    }

    /// Makes all charges or none, at the store's present.
    ///
    /// # Errors
    /// The store could not decide; see [`StoreError`].
    pub async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        match self {
            Self::Memory(memory) => memory.take(charges),
            Self::Redis(redis) => multi_slot::take(redis, charges, None).await,
        }
    }

    /// Makes all charges or none, as if the store's clock showed `now`; for tests and for replaying the past.
    ///
    /// # Errors
    /// The store could not decide; see [`StoreError`].
    pub async fn take_at(&self, charges: &[Charge], now: Timestamp) -> Result<Outcome, StoreError> {
        match self {
            Self::Memory(memory) => memory.take_at(charges, now),
            Self::Redis(redis) => multi_slot::take(redis, charges, Some(now)).await,
        }
    }
}

impl Store {
    /// Makes all charges or none, if that can be done here and now; nothing if somebody has to be asked.
    pub(crate) fn take_immediately(&self, charges: &[Charge]) -> Option<Result<Outcome, StoreError>> {
        match self {
            Self::Memory(memory) => Some(memory.take(charges)),
            Self::Redis(_) => None,
        }
    }

    /// Makes all charges or none while the store does not decide: by this gateway's share of their limits.
    ///
    /// # Errors
    /// The store is in this process, where nothing is to be shared out, or does not know the limiter.
    pub(crate) fn take_locally(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        match self {
            Self::Memory(_) => Err(StoreError::Unreachable),
            Self::Redis(redis) => redis.store().fallback().take(charges),
        }
    }

    /// Gives back what [`take_locally`](Self::take_locally) granted.
    pub(crate) fn give_back_locally(&self, granted: &[Granted]) {
        if let Self::Redis(redis) = self {
            redis.store().fallback().give_back(granted);
        }
    }

    /// Gives back what was granted to a request that no upstream received. Never sent twice: a permit that stays lost returns by
    /// itself, one that is given back twice is granted twice.
    ///
    /// # Errors
    /// The store could not be asked, and the permits return by themselves.
    pub async fn give_back(&self, granted: &[Granted]) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.give_back(granted);
                Ok(())
            }
            Self::Redis(redis) => multi_slot::give_back(redis, granted, None).await,
        }
    }

    /// [`give_back`](Self::give_back), as if the store's clock showed `now`; for tests.
    ///
    /// # Errors
    /// The store could not be asked.
    pub async fn give_back_at(&self, granted: &[Granted], now: Timestamp) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.give_back_at(granted, now);
                Ok(())
            }
            Self::Redis(redis) => multi_slot::give_back(redis, granted, Some(now)).await,
        }
    }
}

impl StoreError {
    /// Is it about a limiter that others configure, and about no other?
    pub(crate) fn is_about_adopted(&self) -> bool {
        matches!(self, Self::NotInitialised | Self::ModeDiffers)
    }

    /// Is the connection on which this happened of no more use? Answers may still come on it that nobody waits for, what it
    /// leads to is no master any more, or says the same to everybody at present.
    fn breaks_connection(&self) -> bool {
        match self {
            Self::Timeout | Self::Broken | Self::UnexpectedReply => true,
            Self::ErrorReply(word) => UNAVAILABLE_REPLIES.contains(&word.as_str()),
            Self::Unreachable | Self::Redirected { .. } | Self::Full | Self::NotInitialised | Self::ModeDiffers => {
                false
            }
        }
    }

    /// Is the bucket at another node, or on its way there? Nothing ran.
    fn is_redirected(&self) -> bool {
        matches!(self, Self::Redirected { .. }) || self.is_migrating()
    }

    /// Is the slot on its way from one node to another?
    fn is_migrating(&self) -> bool {
        match self {
            Self::Redirected { is_ask, .. } => *is_ask,
            Self::ErrorReply(word) => word == "TRYAGAIN",
            _ => false,
        }
    }

    /// The error as a label: a word of ours.
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
            Self::ErrorReply(word) => match word.as_str() {
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
