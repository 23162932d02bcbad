//! Suggests the rate of a limit from logs.
//!
//! The logs are read twice: to measure the [`demand`] of each client, and to replay the [`candidates`](candidate) that
//! follow from it.

mod candidate;
mod demand;

use std::sync::Arc;

use serde::Serialize;

use self::candidate::{Candidate, candidates, propose};
use self::demand::{Demand, INTERVALS};
use super::engine::Engine;
use super::read::{LogFiles, ReadError, ReadSummary};
use super::report::RejectedClient;
use tidegate_limit::Quota;
use tidegate_rules::charge::Limiter;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::route::Routes;
use tidegate_rules::rules::Rules;

/// Suggested rates.
#[derive(Clone, Debug, Serialize)]
pub struct Suggestion {
    /// The limit: its route and its name.
    pub limit: String,
    /// The share of the other clients that the proposed rate may reject.
    pub tolerate: f64,
    /// The clients of the limit in the logs.
    pub clients: usize,
    /// The requests that the limit counts.
    pub requests: u64,
    /// The most requests of a client in each interval.
    pub demand: Vec<Demand>,
    /// The suggested limits.
    pub candidates: Vec<Candidate>,
    /// The proposed candidate.
    pub proposed: Candidate,
    /// The clients that the proposed rate rejects most.
    pub top: Vec<RejectedClient>,
    /// The keys of the limit in the rule file.
    pub snippet: String,
    /// Notes about the log for the reader.
    pub notes: Vec<String>,
}

/// A rate cannot be suggested.
#[derive(Debug, thiserror::Error)]
pub enum SuggestError {
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No limit has this name. The second text lists the limits.
    #[error("no limit `{0}`; the limits are {1}")]
    UnknownLimit(String, String),
    /// The log has no request that this limit counts. The second text is a hint, or empty.
    #[error("no request of the logs is counted by `{0}`{1}")]
    NoRequests(String, String),
}

/// Suggests rates for a limit, given as its route and its name, `@` for a shared limit. `accept` decides whether the
/// lines of the logs are read well enough.
///
/// # Errors
/// A log cannot be read, the limit does not exist, or no request is counted by the limit.
pub fn suggest<E: From<SuggestError>>(
    rules: &Rules,
    name: &str,
    tolerate: f64,
    files: &LogFiles,
    accept: impl FnOnce(&ReadSummary) -> Result<(), E>,
) -> Result<Suggestion, E> {
    let limit = find(rules, name)?;
    let quotas = INTERVALS.iter().filter_map(|interval| demand::quota(*interval));
    let demanding = with_quotas(rules, name, &quotas.collect::<Vec<_>>());
    let (engine, summary) = replay(&demanding, files)?;
    accept(&summary)?;
    let demand = INTERVALS.iter().enumerate().map(|(limit, interval)| Demand::new(*interval, engine.peaks(limit)));
    let demand: Vec<_> = demand.collect();
    let (clients, requests) = engine.tallies().next().map_or((0, 0), |tally| (tally.clients(), tally.requests()));
    let mut notes = engine.report().notes;
    notes.extend(summary.recordings.notes());
    notes.extend(summary.recordings.sample_notes(rules, |limit| limit == name));
    notes.extend(summary.recordings.lacking_notes(&demanding, engine.missing_fields()));
    if requests == 0 {
        let causes = notes.iter().map(|note| format!("\n{note}")).collect();
        return Err(SuggestError::NoRequests(name.to_owned(), causes).into());
    }
    let mut candidates = candidates(&demand, clients, tolerate);
    let quotas: Vec<_> = candidates.iter().filter_map(Candidate::quota).collect();
    let with_candidates = with_quotas(rules, name, &quotas);
    let (engine, _) = replay(&with_candidates, files)?;
    for (candidate, tally) in candidates.iter_mut().zip(engine.tallies()) {
        candidate.measure(tally, (clients, requests), tolerate);
    }
    let proposed = propose(&candidates, limit.limiter.quota.interval());
    let top = engine.tallies().nth(proposed).map(crate::report::tally::Tally::top).unwrap_or_default();
    let proposed = candidates[proposed].clone();
    let snippet = proposed.snippet(limit);
    Ok(Suggestion {
        limit: name.to_owned(),
        tolerate,
        clients,
        requests,
        demand,
        candidates,
        proposed,
        top,
        snippet,
        notes,
    })
}

fn find<'r>(rules: &'r Rules, name: &str) -> Result<&'r Limit, SuggestError> {
    let name_of = |(route, limit): (&str, &Limit)| format!("{route}/{}", limit.name);
    let found = rules.limits().find(|entry| name_of(*entry) == name);
    found.map(|(_, limit)| limit).ok_or_else(|| {
        let names: Vec<_> = rules.limits().map(name_of).collect();
        SuggestError::UnknownLimit(name.to_owned(), names.join(", "))
    })
}

fn replay<'r>(rules: &'r Rules, files: &LogFiles) -> Result<(Engine<'r>, ReadSummary), SuggestError> {
    let mut engine = Engine::new(rules);
    let mut number = 0;
    let summary = files.read(engine.fields(), |request, upcoming, _, recorded| {
        number += 1;
        engine.load(upcoming);
        engine.replay(request, number, recorded);
        _ = engine.take_verdicts();
    })?;
    engine.end();
    Ok((engine, summary))
}

/// Replaces a limit by shadows with these quotas, and removes all other limits.
fn with_quotas(rules: &Rules, name: &str, quotas: &[Quota]) -> Rules {
    let with_quota = |limit: &Limit, (index, quota): (usize, &Quota)| {
        let limiter = Limiter::new(format!("{{tidegate:suggest}}:{index:03}"), limit.mode(), *quota);
        let name = format!("{index:03}");
        Limit { name, limiter: Arc::new(limiter), shadow: true, is_shared: true, wait_policy: None, ..limit.clone() }
    };
    let routes = rules.routes.iter().map(|route| {
        let is_named = |limit: &&Limit| format!("{}/{}", limit.owner(&route.name), limit.name) == name;
        let limits = match route.limits.iter().find(is_named) {
            Some(limit) => quotas.iter().enumerate().map(|quota| with_quota(limit, quota)).collect(),
            None => Vec::new(),
        };
        tidegate_rules::route::Route { limits, concurrency: None, ..route.clone() }
    });
    let routes = Routes::new(routes.collect()).with_conditions(rules.when.iter().map(|when| &when.matcher));
    Rules { routes, ..rules.clone() }
}
