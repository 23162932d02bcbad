//! The clients of one limit: the demand of each, and those that the limit rejected.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::limit::ClientId;

/// The clients of a limit. A client takes about 30 bytes, and about 60 more after its first rejection.
#[derive(Debug, Default)]
pub(super) struct Clients {
    demands: HashTable<Demand>,
    rejected: HashTable<RejectedClient>,
}

/// The permits that a client needs in the intervals of a limit. Identified by a randomly seeded hash: the statistics of two
/// clients of a million are mixed with a probability of 1 to 30 million.
#[derive(Clone, Copy, Debug)]
struct Demand {
    client: u64,
    /// The number of the latest interval with a request, modulo 2^32.
    interval: u32,
    /// The permits in this interval.
    permits: u32,
    /// The most permits in one interval, or in use at once.
    peak: u32,
}

/// A client that a limit rejected.
#[derive(Clone, Debug)]
pub(super) struct RejectedClient {
    pub(super) client: ClientId,
    pub(super) count: u64,
    /// The times of the first and the last rejection, in milliseconds.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Clients {
    /// Counts the permits that a request of a client needs in an interval, and those in use in the window before the
    /// request. Returns the permits of the client in its previous interval, if that has ended.
    pub(super) fn count(&mut self, client: u64, interval: u32, permits: u32, in_use: u32) -> Option<u32> {
        let found = self.demands.find_mut(client, |demand| demand.client == client);
        let Some(demand) = found else {
            let demand = Demand { client, interval, permits, peak: permits.max(in_use) };
            self.demands.insert_unique(client, demand, |demand| demand.client);
            return None;
        };
        let ended = (demand.interval != interval).then_some(demand.permits);
        if ended.is_some() {
            (demand.interval, demand.permits) = (interval, 0);
        }
        demand.permits = demand.permits.saturating_add(permits);
        demand.peak = demand.peak.max(demand.permits).max(in_use);
        ended
    }

    /// Counts a rejection of a client with this hash.
    pub(super) fn reject(&mut self, client: &ClientId, hash: u64, at: u64, hasher: &DefaultHashBuilder) {
        let entry = self.rejected.find_mut(hash, |rejected| rejected.client == *client);
        match entry {
            Some(rejected) => {
                rejected.count += 1;
                rejected.last = rejected.last.max(at);
            }
            None => {
                let rejected = RejectedClient { client: client.clone(), count: 1, first: at, last: at };
                self.rejected.insert_unique(hash, rejected, |rejected| hasher.hash_one(&rejected.client));
            }
        }
    }

    /// Returns the number of clients.
    pub(super) fn len(&self) -> usize {
        self.demands.len()
    }

    /// Returns the number of clients that the limit rejected.
    pub(super) fn affected(&self) -> usize {
        self.rejected.len()
    }

    /// Returns the clients that the limit rejected most, worst first.
    pub(super) fn worst(&self, count: usize) -> Vec<RejectedClient> {
        let mut rejected: Vec<_> = self.rejected.iter().collect();
        rejected.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.first.cmp(&other.first)));
        rejected.into_iter().take(count).cloned().collect()
    }

    /// Iterates over the peaks of all clients, and the permits in their latest intervals.
    pub(super) fn peaks(&self) -> impl Iterator<Item = (u32, u32)> {
        self.demands.iter().map(|demand| (demand.peak, demand.permits))
    }
}
