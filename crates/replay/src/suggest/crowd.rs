//! The clients of a limit: the abusers, and the people behind the others.

use super::abusers::{AbuserCounts, Abusers, Sign};
use super::demand::tolerated;
use crate::report::people::People;
use crate::report::responses::{ClientResponses, Counts};
use tidegate_rules::charge::ClientId;

/// The clients of a limit.
#[derive(Debug)]
pub(super) struct Crowd {
    responses: ClientResponses,
    pub(super) abusers: Abusers,
    people: People,
    pub(super) clients: usize,
    /// The requests that the limit counts.
    pub(super) requests: u64,
    /// The clients other than abusers, with all people of shared addresses.
    others: u64,
}

impl Crowd {
    /// Divides the clients. The limits of the responses are the intervals.
    pub(super) fn new(responses: ClientResponses, intervals: usize, people: People, requests: u64) -> Self {
        let abusers = Abusers::find(&responses, intervals);
        let others = responses.iter().filter(|client| abusers.sign(client.hash).is_none());
        let others = others.map(|client| u64::from(client.counts.people.max(1))).sum();
        let clients = responses.iter().count();
        Self { responses, abusers, people, clients, requests, others }
    }

    pub(super) fn responses(&self) -> &ClientResponses {
        &self.responses
    }

    pub(super) fn abuser_counts(&self) -> AbuserCounts {
        self.abusers.counts()
    }

    pub(super) fn is_abuser(&self, client: &ClientId) -> bool {
        self.sign(client).is_some()
    }

    /// Returns why a client is an abuser. Returns `None` for other clients.
    pub(super) fn sign(&self, client: &ClientId) -> Option<Sign> {
        self.abusers.sign(self.responses.hash(client))
    }

    pub(super) fn people_behind(&self, client: &ClientId) -> u64 {
        self.people.behind(client).into()
    }

    /// Returns the number of other clients that a rate may reject.
    pub(super) fn tolerated(&self, share: f64) -> u64 {
        tolerated(self.others, share)
    }

    /// Returns the responses to a client.
    pub(super) fn counts(&self, client: &ClientId) -> Counts {
        let hash = self.responses.hash(client);
        self.responses.iter().find(|other| other.hash == hash).map(|client| client.counts).unwrap_or_default()
    }
}
