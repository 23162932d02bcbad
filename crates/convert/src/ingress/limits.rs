//! `limit-rps`, `limit-rpm` and `limit-connections`. The controller writes `limit_req` and `limit_conn` for them, with a zone
//! for each Ingress: all of its paths share the buckets of a client.

use ipnet::IpNet;

use super::Conversion;
use super::manifest::Ingress;
use crate::draft::value::{Map, Value};
use crate::draft::{Limit, LimitUse, Match, Mode, Route};
use crate::nginx::client::network;
use crate::nginx::limits::law::Law;
use crate::report::Verdict;

/// The requests above the rate, as a multiple of the rate.
const DEFAULT_MULTIPLIER: u64 = 5;

/// The most requests in flight of a rule file.
const MAX_SLOTS: u64 = 1_000_000;

/// The limits of an Ingress.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    shared: Vec<String>,
    per_client: Option<u64>,
}

impl Conversion<'_> {
    /// Adds the shared limits of an Ingress.
    pub(super) fn limits(&mut self, ingress: &Ingress<'_>) -> Limits {
        let exempt = self.exempt(ingress);
        let mut limits = Limits::default();
        for (name, suffix, per_second) in [("limit-rps", "rps", 1_000), ("limit-rpm", "rpm", 1_000 / 60)] {
            let Some(number) = ingress.number(name) else { continue };
            let thousandths = if per_second == 1_000 {
                number.checked_mul(1_000)
            } else {
                number.checked_mul(1_000).map(|all| all / 60)
            };
            let Some(rate) = thousandths.filter(|rate| *rate > 0) else {
                self.lost(ingress, name, "the rate is not within the bounds of the rule file");
                continue;
            };
            let burst = number.saturating_mul(self.multiplier(ingress));
            let law = Law { rate, burst, delay: burst };
            limits.shared.push(self.rate_limit(ingress, (name, suffix), law, &exempt));
        }
        if let Some(number) = ingress.number("limit-connections") {
            limits.per_client = Some(number.saturating_mul(self.replicas.get().into()).min(MAX_SLOTS));
            self.note_replicas(ingress, "limit-connections");
            if !exempt.is_empty() {
                let reason = "`concurrency` has no exemptions: it also counts the clients of the list";
                self.note(ingress, "limit-connections", Verdict::Stricter, reason);
            }
            let count = ingress.rules.iter().map(|rule| rule.paths.len()).sum::<usize>();
            if count > 1 {
                let reason = "nginx counts the paths of the Ingress together; here, each route counts its own";
                self.note(ingress, "limit-connections", Verdict::Looser, reason);
            }
            self.same(ingress, "limit-connections", "`concurrency`");
        }
        limits
    }

    fn multiplier(&mut self, ingress: &Ingress<'_>) -> u64 {
        self.same(ingress, "limit-burst-multiplier", "`burst`");
        ingress.number("limit-burst-multiplier").unwrap_or(DEFAULT_MULTIPLIER)
    }

    /// Adds a shared limit, and returns its name.
    fn rate_limit(
        &mut self,
        ingress: &Ingress<'_>,
        (name, suffix): (&str, &str),
        law: Law,
        exempt: &[IpNet],
    ) -> String {
        let not =
            if exempt.is_empty() { Vec::new() } else { vec![Match { clients: exempt.to_vec(), ..Match::default() }] };
        let line = ingress.annotation(name).map_or(1, |entry| entry.line);
        let mut limit = Limit {
            name: self.draft.limit_name(&format!("{}-{suffix}", ingress.name)),
            mode: Mode::PerClient,
            client: vec!["ip".to_owned()],
            when: Match { not, ..Match::default() },
            place: Some(ingress.resource.place(line)),
            ..Limit::default()
        };
        for reason in law.apply(&mut limit, self.replicas.get()) {
            self.note(ingress, name, Verdict::Stricter, reason);
        }
        self.note_replicas(ingress, name);
        let status =
            self.defaults.limit_status.map_or_else(|| "429 instead of 503".to_owned(), |status| status.to_string());
        self.same(ingress, name, format!("`gcra`; rejections have the status {status}"));
        let name = limit.name.clone();
        self.draft.limits.push(limit);
        name
    }

    fn note_replicas(&mut self, ingress: &Ingress<'_>, name: &str) {
        if self.replicas.get() > 1 {
            let reason = "the limits of all replicas are one, which a client of one replica can use alone";
            self.note(ingress, name, Verdict::Looser, reason);
        }
    }

    /// Returns the networks of clients without limits.
    fn exempt(&mut self, ingress: &Ingress<'_>) -> Vec<IpNet> {
        let mut exempt = Vec::new();
        for name in ["limit-whitelist", "limit-allowlist"] {
            let Some(text) = ingress.text(name) else { continue };
            match text.split(',').map(|text| network(text.trim())).collect::<Option<Vec<_>>>() {
                Some(networks) => {
                    exempt.extend(networks);
                    self.same(ingress, name, "`when` of the limits");
                }
                None => self.lost(ingress, name, "not a list of networks"),
            }
        }
        exempt
    }
}

// === impl Limits ===

impl Limits {
    /// Sets the limits of a route.
    pub(super) fn set(&self, route: &mut Route, status: Option<u32>) {
        route.limits = self.shared.iter().cloned().map(LimitUse::Shared).collect();
        if let Some(number) = self.per_client {
            route.concurrency = Map::of([("per_client", Value::Number(number))]);
        }
        if let Some(status) = status.filter(|status| *status != 429 && !self.shared.is_empty()) {
            route.reject = Map::of([
                ("status", status.into()),
                ("content_type", "text/plain; charset=utf-8".into()),
                ("body", "too many requests".into()),
            ]);
        }
    }
}
