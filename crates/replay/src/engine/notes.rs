//! Notes about the inputs that the replay could not take into account.

use super::Engine;
use super::inputs::host_routes;
use crate::report::counted::requests;
use tidegate_rules::limits::cost::{Cost, JsonCost};
use tidegate_rules::limits::rule::Limit;

/// The number of routes that a note names.
const MAX_NAMED: usize = 3;

impl Engine<'_> {
    /// Returns what the replay could not take into account. If `limit` is set, the notes about all limits have this name.
    pub(crate) fn notes(&self, limit: Option<&str>) -> Vec<String> {
        let mut notes = Vec::new();
        for note in self.limit_notes(limit) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes.extend(self.cost_notes(limit));
        let missing = self.missing_fields();
        notes.extend(missing.map(|name| format!("the log has no field `{name}`, which the rules read")));
        notes.extend(self.host_note());
        let by_credentials = self.routes.iter().filter(|_| self.lacks_identity && self.totals.requests > 0);
        for replayed in by_credentials.filter(|replayed| !replayed.route.matcher.identity.is_empty()) {
            let name = &replayed.route.name;
            notes.push(format!(
                "route {name} matches credentials, which logs lack: only requests with its name are replayed there"
            ));
        }
        if self.routes.iter().any(|replayed| replayed.route.concurrency.is_some()) {
            notes.push("`concurrency` is not replayed: the log has no durations".to_owned());
        }
        let matchers = || self.routes.iter().map(|replayed| &replayed.route.matcher);
        if matchers().any(|matcher| matcher.scheme.is_some()) {
            notes.push("all requests count as `scheme: https`: the log has no schemes".to_owned());
        }
        if matchers().any(|matcher| !matcher.listeners.is_empty()) {
            notes.push("no request matches a route with `listener`: the log has no names of listeners".to_owned());
        }
        notes
    }

    /// Returns the requests that limits do not count. Routes share some limits, so notes repeat.
    fn limit_notes(&self, shown: Option<&str>) -> Vec<String> {
        let mut notes = Vec::new();
        let limits = self.routes.iter().flat_map(|replayed| {
            let limits = replayed.route.limits.iter().zip(&replayed.needs).zip(&replayed.tallies);
            limits.map(|((limit, needs), tally)| (limit, needs, self.tallies.at(*tally)))
        });
        for (limit, needs, tally) in limits {
            let name = shown.unwrap_or(&tally.name);
            let uncounted = tally.unknown + tally.unverified;
            if uncounted > 0 {
                let (requests, lacking) = (requests(uncounted), needs.lacking(limit));
                notes.push(format!("limit {name} does not count {requests}: {lacking}"));
            }
            if tally.overflowed {
                notes.push(format!("limit {name}: too many clients for the store, and some share a bucket"));
            }
        }
        notes
    }

    /// Returns the limits whose cost is in bodies.
    fn cost_notes(&self, shown: Option<&str>) -> Vec<String> {
        let limits = self.routes.iter().flat_map(|replayed| replayed.route.limits.iter().zip(&replayed.tallies));
        let note = |(limit, tally): (&Limit, &usize)| {
            let name = shown.unwrap_or(&self.tallies.at(*tally).name);
            match &limit.permits {
                Cost::Json(JsonCost { pointer, default, .. }) => Some(format!(
                    "limit {name} counts each request with its default cost, {default}: no log has bodies, with `json:{pointer}`"
                )),
                Cost::Fixed(_) | Cost::Header(_) | Cost::Usage(_) => None,
            }
        };
        limits.filter_map(note).collect()
    }

    /// Returns the requests without the host that rules need.
    fn host_note(&self) -> Option<String> {
        if self.without_host == 0 || !self.inputs.reads_host() {
            return None;
        }
        let names: Vec<_> = host_routes(self.rules).map(|route| &*route.name).collect();
        let named = names.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(MAX_NAMED);
        let read = match (names.len(), more) {
            (0, _) => "limits read".to_owned(),
            (1, _) => format!("route {named} matches"),
            (_, 0) => format!("routes {named} match"),
            _ => format!("routes {named} and {more} more match"),
        };
        let requests = requests(self.without_host);
        let verb = if self.without_host == 1 { "has" } else { "have" };
        Some(format!("{requests} of the log {verb} no host, which {read}: set it with --host"))
    }
}
