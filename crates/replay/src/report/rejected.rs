//! The clients that a limit rejected.

use std::cmp::Reverse;

use hashbrown::HashMap;

use super::RejectedClient;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::ClientId;
use tidegate_rules::client::shown_value;

/// The longest client in a report, in bytes.
const MAX_CLIENT: usize = 200;

/// The rejections of the clients of a limit, by the row of the client.
#[derive(Debug, Default)]
pub(crate) struct RejectedClients(HashMap<u32, Rejections>);

/// The rejections of a client.
#[derive(Debug)]
struct Rejections {
    client: ClientId,
    count: u64,
    /// The times of the first and the last rejection, in milliseconds.
    first: u64,
    last: u64,
}

impl RejectedClients {
    /// Counts a rejection.
    pub(crate) fn add(&mut self, client: &ClientId, row: u32, at: u64) {
        let new = || Rejections { client: client.clone(), count: 0, first: at, last: at };
        let rejections = self.0.entry(row).or_insert_with(new);
        rejections.count += 1;
        rejections.last = rejections.last.max(at);
    }

    /// Returns the number of clients.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the clients, with the numbers of their rejections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ClientId, u64)> {
        self.0.values().map(|rejections| (&rejections.client, rejections.count))
    }

    /// Returns the clients with the most rejections, worst first. Of equal clients, the first in the log comes first, so
    /// that two replays of a log have the same report.
    pub(crate) fn worst(&self, count: usize) -> Vec<(&ClientId, RejectedClient)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|&(row, rejections)| (Reverse(rejections.count), rejections.first, *row));
        let time = |millis| Timestamp::from_millis(millis).to_rfc3339();
        let report = |Rejections { client, count, first, last }: &Rejections| RejectedClient {
            client: shown_client(client),
            count: *count,
            first: time(*first),
            last: time(*last),
        };
        all.into_iter().take(count).map(|(_, rejections)| (&rejections.client, report(rejections))).collect()
    }
}

/// Returns the text of a client for a report: the address, the value, or a hash.
fn shown_client(client: &ClientId) -> String {
    match client {
        ClientId::Address(network) if network.prefix_len() == network.max_prefix_len() => network.addr().to_string(),
        ClientId::Address(network) => network.to_string(),
        ClientId::Value(value) => shown_value(value, MAX_CLIENT),
        ClientId::Hash(hash) => format!("{hash:032x}"),
        ClientId::Instance(name) => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn equal_clients_are_listed_in_the_order_of_the_log() {
        let mut rejected = RejectedClients::default();
        for row in (0..100).rev() {
            let client = ClientId::Address(IpAddr::from(Ipv4Addr::from(row)).into());
            rejected.add(&client, row, 1_000);
        }
        let seventh = ClientId::Address(IpAddr::from(Ipv4Addr::from(7)).into());
        rejected.add(&seventh, 7, 2_000);
        let worst: Vec<_> = rejected.worst(4).into_iter().map(|(_, entry)| entry.client).collect();
        assert_eq!(worst, ["0.0.0.7", "0.0.0.0", "0.0.0.1", "0.0.0.2"]);
    }
}
