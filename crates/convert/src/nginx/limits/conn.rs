//! `limit_conn`: bounds of requests in flight. nginx counts each request, also the requests of an HTTP/2 connection.

use super::Zone;
use super::key::Key;
use crate::draft::value::{Map, Value};
use crate::nginx::Conversion;
use crate::nginx::scope::Scope;
use crate::nginx::syntax::Directive;

/// The bounds of `concurrency`.
const MAX_SLOTS: u64 = 1_000_000;

impl<'c> Conversion<'c, '_> {
    /// Returns the bounds of requests in flight of a route.
    pub(in crate::nginx) fn concurrency(&mut self, scope: &Scope<'c>) -> Map {
        let mut bounds = Map::default();
        if let Some(dry_run) = scope.last("limit_conn_dry_run").filter(|_| scope.is_on("limit_conn_dry_run")) {
            self.notes.lost(dry_run, "`concurrency` has no dry run: it is left out, and nothing is counted");
            scope.all("limit_conn").into_iter().for_each(|directive| self.notes.lost(directive, "see the dry run"));
            return bounds;
        }
        for directive in scope.all("limit_conn") {
            self.limit_conn(directive, scope, &mut bounds);
        }
        if let (Some(status), false) = (scope.last("limit_conn_status"), bounds.is_empty()) {
            match (status.arg(0), bounds.get("per_client").is_some(), bounds.get("max").is_some()) {
                (Some("429"), true, false) | (Some("503"), false, true) => self.notes.same(status, ""),
                _ => self.notes.lost(status, "the status is 429 for a client, and 503 for the route"),
            }
        }
        bounds
    }

    fn limit_conn(&mut self, directive: &'c Directive, scope: &Scope<'c>, bounds: &mut Map) {
        let name = directive.arg(0).unwrap_or_default();
        let number = directive.arg(1).and_then(|number| number.parse().ok());
        let zone = self.zones.connections.get(name).copied();
        let (Some(zone), Some(number)) = (zone, number.filter(|number| (1..=MAX_SLOTS).contains(number))) else {
            self.notes.lost(directive, "its zone is not defined, or its number is not within 1 and 1000000");
            return;
        };
        let branches = self.keys_of(zone, scope);
        match branches.as_deref() {
            Ok([]) => self.notes.same(directive, "without effect: the key of its zone is always empty"),
            Ok([key]) => self.bound(directive, zone, key, number, bounds),
            Ok(_) => self.notes.lost(zone.directive, "the key has several forms, and `concurrency` has no conditions"),
            Err(reason) => self.notes.lost(zone.directive, format!("the key is not supported: {reason}")),
        }
        if !matches!(branches.as_deref(), Ok([_] | [])) {
            self.notes.lost(directive, "the key of its zone is not supported");
        }
    }

    fn bound(&mut self, directive: &'c Directive, zone: Zone<'c>, key: &Key, number: u64, bounds: &mut Map) {
        let number = number.saturating_mul(u64::from(self.replicas.get())).min(MAX_SLOTS);
        let slot = if key.client.is_empty() { "max" } else { "per_client" };
        if bounds.get(slot).is_some() {
            self.notes.lost(directive, "a route has one bound for a client, and one for all requests");
            return;
        }
        bounds.set(slot, Value::Number(number));
        if !key.client.is_empty() && key.client != ["ip"] {
            bounds.set_list("client", key.client.iter().map(String::as_str));
        }
        if key.when != crate::draft::Match::default() || key.on_missing_client.is_some() {
            self.notes
                .stricter(directive, "`concurrency` has no conditions: it also counts requests with an empty key");
        }
        if self.replicas.get() > 1 {
            self.notes.looser(
                directive,
                "the bounds of all replicas are one, which the clients of one replica can use alone",
            );
        }
        for (verdict, reason) in &key.differences {
            self.notes.add(zone.directive, *verdict, reason);
        }
        self.notes.same(zone.directive, "");
        self.notes.same(directive, "`concurrency`");
        let zone = directive.arg(0).unwrap_or_default().to_owned();
        self.zones.counting.entry(zone).or_default().push(directive);
    }

    /// Notes the zones that several routes use: each route counts its own requests in flight.
    pub(in crate::nginx) fn note_counting(&mut self) {
        for uses in std::mem::take(&mut self.zones.counting).into_values().filter(|uses| uses.len() > 1) {
            for directive in uses {
                self.notes
                    .looser(directive, "nginx counts the routes of a zone together; here, each route counts its own");
            }
        }
    }
}
