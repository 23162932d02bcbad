//! The filters of a listener that limit requests.

use std::collections::HashSet;

use super::At;
use super::guards::Guard;
use crate::ratelimit::domain::Domain;

/// The filters of a connection manager that limit requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Filters<'a> {
    pub(super) global: Vec<Global<'a>>,
    pub(super) local: Vec<At<'a>>,
    /// The filters that reject requests, and are lost.
    pub(super) guards: Vec<Guard<'a>>,
}

/// A filter that asks a rate limit service.
#[derive(Clone, Debug)]
pub(super) struct Global<'a> {
    pub(super) domain: &'a str,
    pub(super) stage: u64,
    pub(super) on_store_failure: &'static str,
    /// The status of rejected requests.
    pub(super) status: u64,
}

impl<'a> Filters<'a> {
    /// Returns a filter for each domain, as if a listener had them with their defaults.
    pub(super) fn of_domains(domains: &'a [Domain]) -> Self {
        let filter =
            |domain: &'a Domain| Global { domain: &domain.name, stage: 0, on_store_failure: "allow", status: 429 };
        let mut names = HashSet::new();
        let global = domains.iter().filter(|domain| names.insert(&domain.name)).map(filter).collect();
        Self { global, ..Self::default() }
    }

    /// Reads a filter that asks a rate limit service.
    pub(super) fn add_global(&mut self, config: At<'a>) {
        let denies = config.flag("failure_mode_deny");
        self.global.push(Global {
            domain: config.text("domain").unwrap_or_default(),
            stage: config.get("stage").and_then(|stage| stage.node.number()).unwrap_or(0),
            on_store_failure: if denies { "deny" } else { "allow" },
            status: status(config, "rate_limited_status"),
        });
    }

    /// Returns the status of rejected requests.
    pub(super) fn status(&self) -> u64 {
        let local = self.local.iter().map(|filter| status(*filter, "status"));
        let mut all = self.global.iter().map(|filter| filter.status).chain(local);
        all.find(|status| *status != 429).unwrap_or(429)
    }
}

/// Returns the status of rejected requests. Envoy ignores statuses below 400.
pub(super) fn status(config: At<'_>, key: &str) -> u64 {
    let code = config.at(&[key, "code"]).and_then(|code| code.node.number());
    code.filter(|code| (400..600).contains(code)).unwrap_or(429)
}
