//! Suggests the rate of a limit from logs.
//!
//! The logs are read twice: to measure the [`demand`] of each client and to find the [`abusers`], and to replay the
//! [`candidates`](candidate) that follow from it.

mod abusers;
mod candidate;
mod crowd;
mod demand;
mod error;
mod options;
mod proposal;
mod snippet;
#[cfg(test)]
mod tests;
mod top;
mod variants;
mod window;

use serde::Serialize;

use self::abusers::AbuserCounts;
pub use self::abusers::Sign;
pub use self::candidate::Candidate;
use self::candidate::candidates;
use self::crowd::Crowd;
use self::demand::Demand;
pub use self::error::SuggestError;
pub use self::options::{FAILURES, SuggestOptions};
use self::proposal::propose;
use self::snippet::snippet;
use self::top::TopClient;
use self::variants::Variants;
use self::window::windows;
use super::engine::Engine;
use super::read::{LogFiles, ReadSummary};
use crate::report::counted::requests;
use crate::report::people::People;
use crate::report::responses::Responses;
use crate::report::tally::Tally;
use tidegate_config::LimitEntry;
use tidegate_limit::Quota;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::rules::Rules;

/// Suggested rates.
#[derive(Clone, Debug, Serialize)]
pub struct Suggestion {
    /// The limit: its route and its name.
    pub limit: String,
    /// The tier, if the limit has tiers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The share of the other clients that the proposed rate may reject.
    pub tolerate: f64,
    /// The clients of the limit in the logs.
    pub clients: usize,
    /// The requests that the limit counts.
    pub requests: u64,
    /// The abusers among the clients.
    pub abusers: AbuserCounts,
    /// The most permits of a client in each interval.
    pub demand: Vec<Demand>,
    /// The suggested limits.
    pub candidates: Vec<Candidate>,
    /// The proposed candidate.
    pub proposed: Candidate,
    /// The clients that the proposed rate rejects most.
    pub top: Vec<TopClient>,
    /// The limit in the rule file, with the proposed rate.
    pub snippet: String,
    /// Notes about the log for the reader.
    pub notes: Vec<String>,
}

/// Suggests rates for a limit. `accept` decides whether the lines of the logs are read well enough. `find_entry` returns the
/// entry of the limit in the rule file.
///
/// # Errors
/// A log cannot be read, the limit or the tier does not exist, or no request is counted by the limit.
pub fn suggest<E: From<SuggestError>>(
    rules: &Rules,
    options: &SuggestOptions,
    find_entry: impl FnOnce(&Limit) -> Option<LimitEntry>,
    files: &LogFiles,
    accept: impl FnOnce(&ReadSummary) -> Result<(), E>,
) -> Result<Suggestion, E> {
    let variants = Variants::of(rules, options)?;
    let windows = windows(&variants.present);
    let measured: Vec<_> = windows.iter().filter_map(demand::quota).collect();
    let demanding = variants.with_quotas(&measured);
    let people = People::new(options.groups.clone());
    let responses = Responses::new(options.failures.clone(), people.clone());
    let (engine, summary, excluded) = replay(Engine::new(&demanding).counting_responses(responses), options, files)?;
    accept(&summary)?;
    let counted = engine.tallies().next().map_or(0, Tally::requests);
    let mut notes = engine.notes(Some(&options.limit));
    notes.extend(notes_of_recordings(&variants, &engine, &summary, options));
    if counted == 0 {
        let causes = notes.iter().map(|note| format!("\n{note}")).collect();
        return Err(SuggestError::NoRequests(options.limit.clone(), causes).into());
    }
    let crowd = Crowd::new(engine.client_responses(), windows.len(), people, counted);
    notes.extend(notes_of_clients(&crowd, options, excluded));
    let demand = windows.iter().enumerate();
    let demand = demand.map(|(at, window)| Demand::new(at, window, crowd.responses(), &crowd.abusers));
    let demand: Vec<_> = demand.collect();
    let Variants { limit, present, .. } = &variants;
    let shown = Some(*present).filter(|quota| !quota.is_adopted());
    let bounds = (options.tolerate, limit.permits.max());
    let mut candidates = candidates(&windows, &demand, present, shown, bounds);
    let quotas: Vec<Quota> = candidates.iter().map(|candidate| candidate.quota).collect();
    let with_candidates = variants.with_quotas(&quotas);
    let (engine, ..) = replay(Engine::new(&with_candidates), options, files)?;
    for (candidate, tally) in candidates.iter_mut().zip(engine.tallies()) {
        candidate.measure(tally, &crowd, options.tolerate);
    }
    let proposed = propose(&candidates, present.interval(), crowd.abuser_counts().total() > 0);
    let top = engine.tallies().nth(proposed).map(|tally| top::top(tally, &crowd)).unwrap_or_default();
    let proposed = candidates.get(proposed).cloned().ok_or(SuggestError::NoQuota)?;
    let tier = variants.tier.clone();
    let snippet = snippet(limit, tier.as_deref(), find_entry(limit), &proposed);
    Ok(Suggestion {
        limit: options.limit.clone(),
        tier,
        tolerate: options.tolerate,
        clients: crowd.clients,
        requests: counted,
        abusers: crowd.abuser_counts(),
        demand,
        candidates,
        proposed,
        top,
        snippet,
        notes,
    })
}

/// Replays the logs without the excluded addresses. Returns the number of their requests, too.
fn replay<'r>(
    mut engine: Engine<'r>,
    options: &SuggestOptions,
    files: &LogFiles,
) -> Result<(Engine<'r>, ReadSummary, u64), SuggestError> {
    let (mut number, mut excluded) = (0, 0);
    let summary = files.read(engine.fields(), |request, upcoming, _, recorded| {
        let is_excluded = |address| options.exclude.iter().any(|network| network.contains(&address));
        if request.client.is_some_and(is_excluded) {
            excluded += 1;
            return;
        }
        number += 1;
        engine.load(upcoming);
        engine.replay(request, number, recorded);
        _ = engine.take_verdicts();
    })?;
    engine.end();
    Ok((engine, summary, excluded))
}

/// Returns what recordings mean for the limit.
fn notes_of_recordings(
    variants: &Variants<'_>,
    engine: &Engine<'_>,
    summary: &ReadSummary,
    options: &SuggestOptions,
) -> Vec<String> {
    let recordings = &summary.recordings;
    let mut notes = recordings.notes();
    notes.extend(recordings.sample_notes(variants.rules, |limit| limit == options.limit));
    notes.extend(recordings.lacking_notes(&variants.only_limit(), engine.missing_fields()));
    notes
}

/// Returns how clients are counted, if it is unusual.
fn notes_of_clients(crowd: &Crowd, options: &SuggestOptions, excluded: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if excluded > 0 {
        notes.push(format!("{} of excluded addresses left out", requests(excluded)));
    } else if !options.exclude.is_empty() {
        notes.push("no request comes from an excluded address".to_owned());
    }
    let unused = options.groups.iter().filter(|(network, _)| !crowd.responses().has_group(*network));
    notes.extend(unused.map(|(network, _)| format!("no client of the limit is an address of {network}")));
    let failing = crowd.abusers.failing;
    if failing > 0 {
        let clients = crowd.clients;
        notes.push(format!(
            "most requests of {failing} of {clients} clients failed, which does not distinguish abusers: set --failures"
        ));
    }
    let AbuserCounts { by_responses, by_demand } = crowd.abuser_counts();
    if by_responses > 0 && by_demand > 0 {
        let clients =
            if by_demand == 1 { "1 client is an abuser" } else { &format!("{by_demand} clients are abusers") };
        notes.push(format!(
            "{clients} only by demand: if many people share such an address (NAT), use --group or --exclude"
        ));
    }
    notes
}
