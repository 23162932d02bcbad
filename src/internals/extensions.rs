//! Methods of public types that only tests and benchmarks call.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::{Config, Service};
use tidegate_limit::clock::{ManualClock, Timestamp};
use tidegate_metrics::Metrics;
use tidegate_rules::charge::{Charge, Granted, Outcome};
use tidegate_rules::limits::rule::LimitLocation;
use tidegate_rules::rules::Rules;
use tidegate_rules::settings::store::StoreSettings;
use tidegate_service::{NamedLimit, RuleLimit};
use tidegate_store::{Store, StoreError, StoreOpenError};

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
            talkers,
            dashboard,
            access_log,
            buckets,
            store,
            dns_servers,
            upstreams,
            included: _,
            teams: _,
            service,
            identities,
            verifier: _,
            rules,
            secrets: _,
            warnings: _,
        } = self;
        let mut routes: Vec<_> = rules.routes.iter().cloned().collect();
        // Lines are no values.
        routes.iter_mut().for_each(|route| route.inherited = Arc::default());
        let limits = routes.iter_mut().flat_map(|route| &mut route.limits);
        limits.for_each(|limit| limit.location = LimitLocation::default());
        let other_rules = (&rules.requests, &rules.addresses, &rules.fields, &rules.credentials, identities);
        format!(
            "{listen:?}{max_connections}{admin:?}{admin_tokens:?}{show_clients}{talkers}{dashboard:?}{access_log:?}{buckets:?}{store:?}{dns_servers:?}{upstreams:?}{routes:?}{other_rules:?}{:?}",
            service.as_ref().map(describe_service)
        )
    }

    fn set_certificate_check_interval(&mut self, interval: Duration) {
        let listeners = self.listen.iter_mut().filter_map(|entry| entry.tls.as_mut());
        let service = self.service.iter_mut().filter_map(|service| service.grpc.as_mut()?.tls.as_mut());
        listeners.chain(service).for_each(|tls| tls.check_interval = interval);
        let upstreams = self.upstreams.values_mut().filter_map(|upstream| upstream.tls.as_mut());
        upstreams.for_each(|tls| tls.check_interval = interval);
    }
}

/// Returns the addresses of a service, and its limits without their lines.
fn describe_service(Service { grpc, http, files: _, control_plane, domains }: &Service) -> String {
    let limit = |NamedLimit { name, rule_name, rule, limit, .. }: NamedLimit<'_>| {
        let rule = RuleLimit { location: LimitLocation::default(), ..rule.clone() };
        format!("{name}{rule_name:?}{rule:?}{:?}", limit.map(|limit| &limit.limiter))
    };
    let domains = domains.iter().map(|domain| (domain.name(), domain.rule_limits().map(limit).collect::<Vec<_>>()));
    let plane = control_plane.as_ref().map(|plane| (&plane.target, &plane.node, plane.is_required, &plane.tls));
    format!("{grpc:?}{http:?}{plane:?}{:?}", domains.collect::<Vec<_>>())
}
