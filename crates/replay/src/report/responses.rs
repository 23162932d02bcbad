//! The responses to each client of a limit.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use http::StatusCode;
use ipnet::IpNet;

use super::clients::{Clients, Demand};
use super::people::People;
use tidegate_rules::charge::ClientId;
use tidegate_rules::limits::status_range::StatusRange;

/// Counts the responses to each client, by the row of the client.
#[derive(Debug)]
pub(crate) struct Responses {
    /// The statuses of failed requests.
    failures: Vec<StatusRange>,
    people: People,
    rows: Vec<Counts>,
    /// The groups of people with a client.
    seen: Vec<IpNet>,
}

/// The responses to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The people that share the client.
    pub(crate) people: u32,
    pub(crate) requests: u32,
    /// The requests with a status of failures.
    pub(crate) failed: u32,
    /// The requests that a limit has rejected: 429. They show nothing about the client, as the limit may be too strict.
    pub(crate) limited: u32,
}

/// The responses to all clients of a group of limits, and their demands.
#[derive(Debug)]
pub(crate) struct ClientResponses {
    hasher: DefaultHashBuilder,
    hashes: Vec<u64>,
    counts: Vec<Counts>,
    /// The most permits that each client needs in each limit.
    peaks: Vec<u32>,
    /// The number of limits.
    limits: usize,
    /// The groups of people with a client.
    seen: Vec<IpNet>,
}

/// The responses to a client, and its demands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientResponse<'r> {
    /// See [`ClientResponses::hash`].
    pub(crate) hash: u64,
    pub(crate) counts: Counts,
    /// The most permits in an interval of each limit.
    pub(crate) peaks: &'r [u32],
}

impl Responses {
    pub(crate) fn new(failures: Vec<StatusRange>, people: People) -> Self {
        Self { failures, people, rows: Vec::new(), seen: Vec::new() }
    }

    /// Counts a response.
    pub(super) fn count(&mut self, client: &ClientId, row: u32, response: StatusCode) {
        let row = row as usize;
        if self.rows.len() <= row {
            self.rows.resize(row + 1, Counts::default());
        }
        let counts = &mut self.rows[row];
        if counts.people == 0 {
            counts.people = self.people.behind(client);
            let group = self.people.group(client).map(|(network, _)| network);
            self.seen.extend(group.filter(|network| !self.seen.contains(network)));
        }
        counts.requests = counts.requests.saturating_add(1);
        let count = match response {
            StatusCode::TOO_MANY_REQUESTS => &mut counts.limited,
            status if self.failures.iter().any(|range| range.contains(status.as_u16())) => &mut counts.failed,
            _ => return,
        };
        *count = count.saturating_add(1);
    }
}

impl ClientResponses {
    /// Collects the responses to the clients of a group.
    pub(super) fn new(responses: &Responses, clients: &Clients, hasher: &DefaultHashBuilder) -> Self {
        let mut hashes = vec![0; responses.rows.len()];
        for (hash, row) in clients.hashes() {
            if let Some(slot) = hashes.get_mut(row as usize) {
                *slot = hash;
            }
        }
        let limits = clients.limit_count();
        let peaks = clients.all_demands().iter().map(Demand::peak).collect();
        Self {
            hasher: hasher.clone(),
            hashes,
            counts: responses.rows.clone(),
            peaks,
            limits,
            seen: responses.seen.clone(),
        }
    }

    /// Iterates over the clients.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ClientResponse<'_>> {
        let rows = self.peaks.chunks(self.limits.max(1)).zip(&self.hashes).zip(&self.counts);
        rows.map(|((peaks, hash), counts)| ClientResponse { hash: *hash, counts: *counts, peaks })
    }

    /// Returns `true` if a client is in this group of people.
    pub(crate) fn has_group(&self, network: IpNet) -> bool {
        self.seen.contains(&network)
    }

    /// Returns the hash of a client, which identifies it.
    pub(crate) fn hash(&self, client: &ClientId) -> u64 {
        self.hasher.hash_one(client)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn responses_are_counted_by_their_statuses() {
        let people = People::new(vec![("10.0.0.0/8".parse().expect("a network"), 40)]);
        let mut responses = Responses::new(vec![StatusRange { first: 401, last: 404 }], people);
        let client = |first| ClientId::Address(IpAddr::from(Ipv4Addr::new(first, 0, 0, 1)).into());
        for (row, address, status) in [(1, 9, 200), (0, 10, 401), (0, 10, 429), (0, 10, 404), (1, 9, 405)] {
            responses.count(&client(address), row, StatusCode::from_u16(status).expect("a status"));
        }
        let first = Counts { people: 40, requests: 3, failed: 2, limited: 1 };
        let second = Counts { people: 1, requests: 2, failed: 0, limited: 0 };
        assert_eq!(responses.rows, [first, second]);
    }
}
