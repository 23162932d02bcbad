//! Methods of public types that only tests and benchmarks call.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{ManualClock, Timestamp};
use crate::config::Config;
use crate::limit::{Charge, ClientId, Granted, Outcome};
use crate::limit::{Inspection, Limiter};
use crate::metrics::Metrics;
use crate::rule::LimitLocation;
use crate::rules::Rules;
use crate::settings::store::StoreSettings;
use crate::store::{Store, StoreError, StoreOpenError};

/// Methods of [`Store`] that are not public.
pub trait StoreInternals: Sized {
    /// Opens the store with these settings.
    ///
    /// # Errors
    /// See [`StoreOpenError`].
    fn open(settings: &StoreSettings, metrics: Arc<Metrics>) -> Result<Self, StoreOpenError>;

    /// Makes all charges or none.
    fn take(&self, charges: &[Charge]) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Returns permits to the store.
    fn give_back(&self, granted: &[Granted]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the state of a charge's bucket.
    fn inspect(&self, charge: &Charge) -> impl Future<Output = Result<Inspection, StoreError>> + Send;

    /// Resets the bucket of a charge.
    fn reset(&self, charge: &Charge) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Resets all buckets of a limit.
    fn reset_limit(&self, limiter: &Arc<Limiter>) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Returns the hash of a client in keys.
    fn client_hash(&self, client: &ClientId) -> Option<u128>;

    /// Returns `true` if a cached refusal rejects this charge.
    fn has_known_refusal(&self, charge: &Charge) -> bool;

    /// Returns `true` if the buckets are in Redis.
    fn is_redis(&self) -> bool;
}

impl StoreInternals for Store {
    fn open(settings: &StoreSettings, metrics: Arc<Metrics>) -> Result<Self, StoreOpenError> {
        Self::open(settings, metrics)
    }

    async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        self.take(charges).await
    }

    async fn give_back(&self, granted: &[Granted]) -> Result<(), StoreError> {
        self.give_back(granted).await
    }

    async fn inspect(&self, charge: &Charge) -> Result<Inspection, StoreError> {
        self.inspect(charge).await
    }

    async fn reset(&self, charge: &Charge) -> Result<bool, StoreError> {
        self.reset(charge).await
    }

    async fn reset_limit(&self, limiter: &Arc<Limiter>) -> Result<u64, StoreError> {
        self.reset_limit(limiter).await
    }

    fn client_hash(&self, client: &ClientId) -> Option<u128> {
        self.key_of(client)
    }

    fn has_known_refusal(&self, charge: &Charge) -> bool {
        self.known_refusal(std::slice::from_ref(charge)).is_some()
    }

    fn is_redis(&self) -> bool {
        self.is_redis()
    }
}

/// A store with a manual clock, which each call sets.
#[derive(Clone, Debug)]
pub struct ReplayStore {
    /// The store.
    pub store: Store,
    clock: Arc<ManualClock>,
}

impl ReplayStore {
    /// Opens the store with these settings.
    ///
    /// # Errors
    /// See [`StoreOpenError`].
    pub fn open(settings: &StoreSettings) -> Result<Self, StoreOpenError> {
        let clock = Arc::new(ManualClock::default());
        let store =
            Store::open_with_clock(settings, Arc::new(Metrics::of_gateway(&[])), Some(Arc::clone(&clock) as _))?;
        Ok(Self { store, clock })
    }

    /// Sets the clock.
    pub fn set_time(&self, now: Timestamp) {
        self.clock.set(now);
    }

    /// Makes all charges or none at this time.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn take_at(&self, charges: &[Charge], now: Timestamp) -> Result<Outcome, StoreError> {
        self.set_time(now);
        self.store.take(charges).await
    }

    /// Returns permits to the store at this time.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn give_back_at(&self, granted: &[Granted], now: Timestamp) -> Result<(), StoreError> {
        self.set_time(now);
        self.store.give_back(granted).await
    }
}

/// Access to the fields of [`Config`], which are not public.
pub trait ConfigInternals {
    /// Returns the rules.
    fn rules(&self) -> &Rules;

    /// Returns all settings as text, except for the order of the routes.
    fn describe(&self) -> String;

    /// Sets how often certificate files are checked for changes.
    fn set_certificate_check_interval(&mut self, interval: Duration);
}

impl ConfigInternals for Config {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn describe(&self) -> String {
        let Self {
            listen,
            max_connections,
            admin,
            admin_tokens,
            show_clients,
            dashboard,
            access_log,
            buckets,
            store,
            dns_servers,
            upstreams,
            included: _,
            identities,
            verifier: _,
            rules,
            secrets: _,
            warnings: _,
        } = self;
        let mut routes: Vec<_> = rules.routes.iter().cloned().collect();
        // Lines are no values.
        let limits = routes.iter_mut().flat_map(|route| &mut route.limits);
        limits.for_each(|limit| limit.location = LimitLocation::default());
        let other_rules = (&rules.requests, &rules.addresses, &rules.fields, &rules.credentials, identities);
        format!(
            "{listen:?}{max_connections}{admin:?}{admin_tokens:?}{show_clients}{dashboard:?}{access_log:?}{buckets:?}{store:?}{dns_servers:?}{upstreams:?}{routes:?}{other_rules:?}"
        )
    }

    fn set_certificate_check_interval(&mut self, interval: Duration) {
        let listeners = self.listen.iter_mut().filter_map(|entry| entry.tls.as_mut());
        listeners.for_each(|tls| tls.check_interval = interval);
        let upstreams = self.upstreams.values_mut().filter_map(|upstream| upstream.tls.as_mut());
        upstreams.for_each(|tls| tls.check_interval = interval);
    }
}
