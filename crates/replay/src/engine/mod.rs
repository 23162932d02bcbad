//! Runs requests through the rules in virtual time.

pub(crate) mod decider;
pub(crate) mod inputs;
mod notes;
pub(crate) mod waiting;

use hashbrown::HashSet;
use http::StatusCode;
use http::header::{HOST, HeaderMap, HeaderName};

use super::report::Report;
use crate::engine::decider::Decider;
use crate::engine::inputs::{Inputs, Needs, reads_host};
use crate::engine::waiting::Waiting;
use crate::log::batch::ParsedRequest;
use crate::log::recorded::RecordedValues;
use crate::report::decided::{Decided, Origin};
use crate::report::responses::{ClientResponses, Responses};
use crate::report::tallies::Tallies;
use crate::report::tally::Tally;
use tidegate_limit::calendar::schedule::Minute;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::ClientId;
use tidegate_rules::client::ClientError;
use tidegate_rules::condition::Condition;
use tidegate_rules::evaluation::{Answer, Evaluation, Event, Step, Subject};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::facts::{Facts, HostRequirement, NO_CERTIFICATE};
use tidegate_rules::request::identity::IdentityValue;
use tidegate_rules::route::Route;
use tidegate_rules::rules::{Charges, LimitCheck, MissingInput, Rules};

/// The rules, their store, and the statistics of their limits.
#[derive(Debug)]
pub(crate) struct Engine<'r> {
    rules: &'r Rules,
    decider: Decider,
    waiting: Waiting<'r>,
    inputs: Inputs,
    routes: Vec<ReplayedRoute<'r>>,
    tallies: Tallies<'r>,
    totals: Report,
    /// The times of the first and the last request.
    span: Option<(u64, u64)>,
    /// Requests that waited and have been decided since the last event.
    decided: Vec<Decided<'r>>,
    verdicts: Vec<Verdict>,
    /// The requests without a host, and without the name of a route.
    without_host: u64,
    /// Whether a request had no verified credentials that a replay can use.
    lacks_identity: bool,
}

/// A route, and what the replay needs to know about its limits.
#[derive(Debug)]
struct ReplayedRoute<'r> {
    route: &'r Route,
    /// The positions of its limits in the statistics.
    tallies: Vec<usize>,
    needs: Vec<Needs>,
    /// Whether each limit needs only input that all logs contain.
    needs_nothing: bool,
    may_wait: bool,
    charges_by_response: bool,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The number of the request, as given to [`Engine::replay`].
    pub number: u64,
    /// The position of its route.
    pub route: Option<usize>,
    /// Whether the limits admit the request. Other reasons for a rejection do not count.
    pub admitted: bool,
    /// The limits that reject the request: a bit for each of the first 64 positions in the route.
    pub rejected_by: u64,
    /// The position of the limit that rejects the request for the longest time.
    pub limit: Option<usize>,
}

/// Why a limit does not count a request.
#[derive(Clone, Copy)]
enum Lack {
    /// The log lacks the client or the rate.
    Unknown,
    /// The log lacks the verified credentials.
    Unverified,
    /// The gateway has not decided either: another limit rejected the request before its credentials were verified.
    Undecided,
}

/// Why no limit decides about a request.
enum Undecided {
    Invalid,
    Unmatched,
    WithoutLimits,
}

impl<'r> Engine<'r> {
    pub(crate) fn new(rules: &'r Rules) -> Self {
        let mut tallies = Tallies::default();
        let mut replayed = |route: &'r Route| {
            let positions = route.limits.iter().map(|limit| tallies.add(&route.name, limit)).collect();
            ReplayedRoute::new(route, positions)
        };
        let routes = rules.routes.iter().map(&mut replayed).collect();
        Self {
            rules,
            decider: Decider::new(),
            waiting: Waiting::default(),
            inputs: Inputs::new(rules),
            routes,
            tallies,
            totals: Report::default(),
            span: None,
            decided: Vec::new(),
            verdicts: Vec::new(),
            without_host: 0,
            lacks_identity: false,
        }
    }

    /// Also counts the responses to each client. All limits must identify clients in the same way.
    pub(crate) fn counting_responses(mut self, responses: Responses) -> Self {
        self.tallies.count_responses(responses);
        self
    }

    /// Returns the header fields that the rules read.
    pub(crate) fn fields(&self) -> HashSet<HeaderName> {
        self.inputs.names().cloned().collect()
    }

    /// Returns the fields that the rules read and the log did not have. A log without requests lacks none.
    pub(super) fn missing_fields(&self) -> impl Iterator<Item = &HeaderName> {
        self.inputs.missing().filter(|_| self.totals.requests > 0)
    }

    /// Iterates over the statistics of the limits, in the order of the rule file.
    pub(super) fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.tallies.iter()
    }

    /// Returns the responses to each client, with the most permits that it needed in each limit.
    pub(super) fn client_responses(&self) -> ClientResponses {
        self.tallies.client_responses()
    }

    /// Returns the name of a limit of a route.
    pub(crate) fn limit_name(&self, route: usize, limit: usize) -> Option<&'r str> {
        self.routes[route].route.limits.get(limit).map(|limit| limit.name.as_str())
    }

    /// Returns the name of a route.
    pub(crate) fn route_name(&self, route: usize) -> &'r str {
        &self.routes[route].route.name
    }

    /// Loads the statistics of some of the next requests into the cache. So the processor waits once for all of them.
    pub(crate) fn load(&self, upcoming: &[ParsedRequest]) {
        let addresses = upcoming.iter().filter_map(|request| request.client);
        let networks = addresses.map(|address| ClientId::Address(self.rules.addresses.network(address)));
        self.tallies.load(networks);
    }

    /// Decides a request. The requests have to be in the order of their times. `recorded` are the values that recordings
    /// have.
    pub(crate) fn replay(&mut self, request: &ParsedRequest, number: u64, recorded: &RecordedValues) {
        self.totals.requests += 1;
        self.advance(request.time);
        self.record_decided();
        let is_in_order = self.decider.set_time(request.time);
        self.totals.late += u64::from(!is_in_order);
        let first = self.span.map_or(request.time, |(first, _)| first.min(request.time));
        self.span = Some((first, self.decider.now()));
        let no_headers = HeaderMap::new();
        let headers = request.headers.as_deref().unwrap_or(&no_headers);
        self.inputs.record(headers, recorded);
        if let Err(undecided) = self.decide(request, headers, recorded, number) {
            match undecided {
                Undecided::Invalid => self.totals.invalid += 1,
                Undecided::Unmatched => self.totals.unmatched += 1,
                Undecided::WithoutLimits => self.totals.allowed += 1,
            }
            self.verdicts.push(Verdict { number, route: None, admitted: true, rejected_by: 0, limit: None });
        }
        self.record_decided();
    }

    /// Ends all waits, after the last request.
    pub(crate) fn end(&mut self) {
        self.advance(u64::MAX);
        self.record_decided();
    }

    /// Removes and returns the decisions since the last call.
    pub(crate) fn take_verdicts(&mut self) -> std::vec::Drain<'_, Verdict> {
        self.verdicts.drain(..)
    }

    /// Returns the statistics of the requests. The caller adds the numbers of lines.
    pub(crate) fn report(&self) -> Report {
        let time = |millis| Timestamp::from_millis(millis).to_rfc3339();
        Report {
            first: self.span.map(|(first, _)| time(first)),
            last: self.span.map(|(_, last)| time(last)),
            notes: self.notes(None),
            limits: self.tallies.reports(),
            ..self.totals.clone()
        }
    }

    fn decide(
        &mut self,
        request: &ParsedRequest,
        headers: &HeaderMap,
        recorded: &RecordedValues,
        number: u64,
    ) -> Result<(), Undecided> {
        let (rules, address) = (self.rules, request.client);
        let (method, uri) = request.target.as_ref().ok_or(Undecided::Invalid)?;
        let facts = rules.read(method, uri, HostRequirement::Optional, headers, address);
        let mut facts = facts.map_err(|_| Undecided::Invalid)?;
        facts.peer_is_client = true;
        facts.time = Minute::of(Timestamp::from_millis(self.decider.now()));
        facts.tls = Some(&NO_CERTIFICATE); // logs have no schemes
        facts.identity.clone_from(&request.identity);
        let has_host = headers.contains_key(HOST) || uri.host().is_some();
        let logged = request.route.as_deref().and_then(|name| self.position_of(name));
        self.without_host += u64::from(!has_host && logged.is_none());
        self.lacks_identity |= request.identity.is_none() && !request.was_limited;
        let logged = logged.filter(|position| {
            !has_host || request.identity.is_none() && self.matches_but_credentials(*position, &facts)
        });
        let mut evaluation =
            Evaluation::new(rules, facts, Subject::Logged(logged.and_then(|position| u32::try_from(position).ok())));
        let (position, route) = find_route(&mut evaluation)?;
        let facts = &evaluation.facts;
        let mut charges = rules.charges_if(route, facts, |_| false).map_err(|_| Undecided::Invalid)?;
        if !self.routes[position].needs_nothing || charges.len() < route.limits.len() {
            self.sort_out(position, facts, (request, recorded), &mut charges)?;
        }
        if evaluation.on_limit().is_some() {
            charges.tolerate();
        }
        let origin = Origin {
            number,
            route: position,
            address: facts.peer.map(|address| ClientId::Address(rules.addresses.network(address))),
            response: request.status.unwrap_or(StatusCode::OK),
            arrived_at: self.decider.now(),
        };
        if charges.is_empty() {
            self.record(Decided::unlimited(origin, charges));
        } else if self.routes[position].may_wait {
            self.waiting.arrive(origin, charges, &self.decider, &mut self.decided);
        } else {
            let admitted = self.decider.admit(&mut charges);
            self.record(Decided { at: origin.arrived_at, origin, charges, admitted });
        }
        Ok(())
    }

    fn position_of(&self, name: &str) -> Option<usize> {
        self.routes.iter().position(|replayed| *replayed.route.name == *name)
    }

    /// Returns `true` if only the credentials decide whether a request matches this route. Logs lack them, so their route
    /// decides.
    fn matches_but_credentials(&self, position: usize, facts: &Facts<'_>) -> bool {
        matches!(self.routes[position].route.matcher.unmet(facts), Some(Condition::Identity(_)))
    }

    /// Removes the charges of limits whose input the log lacks, and counts these requests.
    fn sort_out(
        &mut self,
        position: usize,
        facts: &Facts<'_>,
        (request, recorded): (&ParsedRequest, &RecordedValues),
        charges: &mut Charges<'r>,
    ) -> Result<(), Undecided> {
        let replayed = &self.routes[position];
        let mut removed = Vec::new();
        for (index, limit) in replayed.route.limits.iter().enumerate() {
            let lack = match &replayed.needs[index] {
                Needs::Credentials(values) => lack_of_credentials(facts, request, recorded, values),
                Needs::TrustedField(_) => Some(Lack::Unverified),
                Needs::AdoptedRate | Needs::Unlogged(_) | Needs::Bodies(_) => Some(Lack::Unknown),
                Needs::Fields(fields) => self.inputs.lacks(fields).then_some(Lack::Unknown),
                Needs::Nothing => None,
            };
            let lack = match lack {
                Some(lack) => lack,
                None if charges.has(index) => continue,
                None => match self.rules.check_limit(limit, facts) {
                    LimitCheck::Deny(MissingInput::Client(ClientError::Missing)) if lacks_client(limit, facts) => {
                        Lack::Unknown
                    }
                    LimitCheck::Deny(_) => return Err(Undecided::Invalid),
                    LimitCheck::Charge(_) | LimitCheck::Skip(_) | LimitCheck::Unmet => continue,
                },
            };
            removed.push((limit, replayed.tallies[index], lack));
        }
        for (_, tally, lack) in &removed {
            let Tally { unverified, unknown, .. } = self.tallies.at_mut(*tally);
            match lack {
                Lack::Unverified => *unverified += 1,
                Lack::Unknown => *unknown += 1,
                Lack::Undecided => {}
            }
        }
        charges.retain(|limit| !removed.iter().any(|(other, ..)| std::ptr::eq(*other, limit)));
        Ok(())
    }

    fn advance(&mut self, to: u64) {
        self.waiting.advance(to, &self.decider, &mut self.decided);
    }

    fn record_decided(&mut self) {
        if !self.decided.is_empty() {
            let mut decided = std::mem::take(&mut self.decided);
            decided.drain(..).for_each(|request| self.record(request));
            self.decided = decided;
        }
    }

    fn record(&mut self, mut decided: Decided<'r>) {
        let replayed = &self.routes[decided.origin.route];
        if decided.admitted && replayed.charges_by_response {
            self.decider.charge_by_response(&mut decided);
        }
        let Decided { ref origin, ref charges, admitted, at } = decided;
        *(if admitted { &mut self.totals.allowed } else { &mut self.totals.rejected }) += 1;
        self.totals.waited += u64::from(admitted && at > origin.arrived_at);
        let mut verdict =
            Verdict { number: origin.number, route: Some(origin.route), admitted, rejected_by: 0, limit: None };
        if !admitted {
            let bits = charges.refusing().filter_map(|entry| 1_u64.checked_shl(u32::try_from(entry.index).ok()?));
            verdict.rejected_by = bits.fold(0, |bits, bit| bits | bit);
            verdict.limit = charges.longest_refusal().map(|entry| entry.index);
        }
        self.verdicts.push(verdict);
        self.tallies.record(&decided, &replayed.tallies);
    }
}

/// Returns what the log lacks of these values of verified credentials. Returns `None` if it has them.
fn lack_of_credentials(
    facts: &Facts<'_>,
    request: &ParsedRequest,
    recorded: &RecordedValues,
    values: &[IdentityValue],
) -> Option<Lack> {
    let is_recorded = values.iter().all(|value| recorded.identity.contains(value));
    match &facts.identity {
        Some(identity) if is_recorded => {
            let is_verified = |value: &IdentityValue| value.kinds().without(identity.verified).is_empty();
            (!values.iter().all(is_verified)).then_some(Lack::Unverified)
        }
        None if is_recorded && request.was_limited => Some(Lack::Undecided),
        _ => Some(Lack::Unverified),
    }
}

/// Returns `true` if the log may lack the client of a request that is missing: the address or the host.
fn lacks_client(limit: &Limit, facts: &Facts<'_>) -> bool {
    facts.peer.is_none() || facts.host.is_empty() && reads_host(&limit.client)
}

/// Returns the route whose limits decide about a request, with its position. Credentials are not verified: the log lacks
/// them.
fn find_route<'r>(evaluation: &mut Evaluation<'r, '_>) -> Result<(usize, &'r Route), Undecided> {
    loop {
        match evaluation.next(Event::Done) {
            Step::Found | Step::Check(_) | Step::Verify(_) | Step::Identified(_) => {}
            Step::ReadBody(reads) => evaluation.add_body(reads.unknown()),
            Step::AdmitQuota | Step::Quota(_) | Step::Respond(Answer::Options | Answer::Preflight(_)) => {
                return Err(Undecided::WithoutLimits);
            }
            Step::Respond(Answer::OriginNotAllowed(_) | Answer::QuotaMethod) => return Err(Undecided::WithoutLimits),
            Step::Respond(_) => return Err(Undecided::Invalid),
            Step::Unmatched => return Err(Undecided::Unmatched),
            Step::Authorize(..) | Step::Decide(_) | Step::Ask(_) | Step::Forward => {
                return evaluation.route().ok_or(Undecided::Unmatched);
            }
        }
    }
}

impl<'r> ReplayedRoute<'r> {
    fn new(route: &'r Route, tallies: Vec<usize>) -> Self {
        let needs: Vec<_> = route.limits.iter().map(Needs::of).collect();
        Self {
            route,
            tallies,
            needs_nothing: needs.iter().all(|needs| matches!(needs, Needs::Nothing)),
            needs,
            may_wait: route.limits.iter().any(|limit| limit.wait_policy.is_some()),
            charges_by_response: route.limits.iter().any(|limit| limit.charge_on.is_some()),
        }
    }
}
