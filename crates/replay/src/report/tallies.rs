//! The statistics of all limits, and their clients.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::hint::black_box;

use hashbrown::DefaultHashBuilder;

use super::LimitReport;
use super::clients::Clients;
use super::decided::Decided;
use super::responses::{ClientResponses, Responses};
use super::tally::{ClientRow, Tally};
use tidegate_limit::Mode;
use tidegate_rules::charge::ClientId;
use tidegate_rules::client::ClientSource;
use tidegate_rules::limits::rule::Limit;

/// The statistics of all limits, in the order of the rule file.
#[derive(Debug, Default)]
pub(crate) struct Tallies<'r> {
    limits: Vec<(&'r Limit, Tally)>,
    groups: Vec<Clients>,
    /// The positions of the limits, by name.
    positions: BTreeMap<String, usize>,
    /// The positions of the groups, by the owner of the limits and the source of the clients.
    group_positions: BTreeMap<(String, String), usize>,
    hasher: DefaultHashBuilder,
    /// The group of the latest address.
    latest: usize,
    /// `None` if responses are not counted.
    responses: Option<Responses>,
}

impl<'r> Tallies<'r> {
    /// Adds a limit of a route, unless it is a shared limit that another route has. Returns its position.
    pub(crate) fn add(&mut self, route: &str, limit: &'r Limit) -> usize {
        let owner = limit.owner(route);
        let name = format!("{owner}/{}", limit.name);
        let next = self.limits.len();
        let position = *self.positions.entry(name.clone()).or_insert(next);
        if position == next {
            // An OVERALL limit counts addresses.
            let source = if limit.mode() == Mode::Overall { &ClientSource::Ip } else { &limit.client };
            let new = self.groups.len();
            let group = *self.group_positions.entry((owner.to_owned(), source.to_string())).or_insert(new);
            if group == new {
                self.groups.push(Clients::default());
            }
            let place = (group, self.groups[group].add_limit());
            self.limits.push((limit, Tally::new(name, limit, place)));
        }
        position
    }

    /// Loads the rows of clients in the group of the latest address into the cache.
    pub(crate) fn load(&self, clients: impl Iterator<Item = ClientId>) {
        if let Some(group) = self.groups.get(self.latest) {
            black_box(clients.fold(0, |read, client| read ^ group.load(self.hasher.hash_one(&client))));
        }
    }

    /// Also counts the responses to each client of the first group.
    pub(crate) fn count_responses(&mut self, responses: Responses) {
        self.responses = Some(responses);
    }

    /// Records the decisions about a request. `positions` has the positions of the limits of its route.
    pub(crate) fn record(&mut self, decided: &Decided<'_>, positions: &[usize]) {
        let Decided { origin, charges, at, .. } = decided;
        // Successive limits usually count the same client.
        let mut last: Option<(usize, ClientRow<'_>)> = None;
        for entry in charges.iter() {
            let Some(decision) = entry.decision else { continue };
            let tally = &mut self.limits[positions[entry.index]].1;
            let clients = &mut self.groups[tally.group];
            let client = entry.charge.client.as_ref().or(origin.address.as_ref());
            let client = client.map(|client| match last {
                Some((group, (other, row))) if group == tally.group && other == client => (client, row),
                _ => (client, clients.row(self.hasher.hash_one(client))),
            });
            last = client.map(|client| (tally.group, client)).or(last);
            if let Some((ClientId::Address(_), _)) = client {
                self.latest = tally.group;
            }
            let counts = entry.limit.charge_on.as_ref().is_none_or(|on| on.includes(origin.response));
            let permits = if counts { entry.charge.permits } else { 0 };
            tally.record(client, clients, entry.charge, decision, permits, *at);
        }
        if let (Some(responses), Some((0, (client, row)))) = (&mut self.responses, last) {
            responses.count(client, row, origin.response);
        }
    }

    /// Iterates over the statistics.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tally> {
        self.limits.iter().map(|(_, tally)| tally)
    }

    /// Returns the statistics of the limit at this position.
    pub(crate) fn at(&self, position: usize) -> &Tally {
        &self.limits[position].1
    }

    /// Returns the statistics of the limit at this position.
    pub(crate) fn at_mut(&mut self, position: usize) -> &mut Tally {
        &mut self.limits[position].1
    }

    /// Returns the responses to the clients of the first group, and their demands. Empty if they were not counted.
    pub(crate) fn client_responses(&self) -> ClientResponses {
        let (no_responses, no_clients) = (Responses::new(Vec::new(), Default::default()), Clients::default());
        let responses = self.responses.as_ref().unwrap_or(&no_responses);
        ClientResponses::new(responses, self.groups.first().unwrap_or(&no_clients), &self.hasher)
    }

    /// Returns the reports, by the names of the limits.
    pub(crate) fn reports(&self) -> BTreeMap<String, LimitReport> {
        let report = |(limit, tally): &(&Limit, Tally)| tally.report(limit, &self.groups[tally.group]);
        self.limits.iter().map(|entry| (entry.1.name.clone(), report(entry))).collect()
    }
}
