//! The clients that a limit rejected.

use hashbrown::HashMap;

use super::report::RejectedClient;
use crate::client::shown_value;
use crate::clock::Timestamp;
use crate::limit::ClientId;

/// The longest client in a report, in bytes.
const MAX_CLIENT: usize = 200;

/// The rejections of the clients of a limit, by the row of the client.
#[derive(Debug, Default)]
pub(super) struct RejectedClients(HashMap<u32, Rejections>);

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
    pub(super) fn add(&mut self, client: &ClientId, row: u32, at: u64) {
        let new = || Rejections { client: client.clone(), count: 0, first: at, last: at };
        let rejections = self.0.entry(row).or_insert_with(new);
        rejections.count += 1;
        rejections.last = rejections.last.max(at);
    }

    /// Returns the number of clients.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the clients with the most rejections, worst first.
    pub(super) fn worst(&self, count: usize) -> Vec<RejectedClient> {
        let mut all: Vec<_> = self.0.values().collect();
        all.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.first.cmp(&other.first)));
        let time = |millis| Timestamp::from_millis(millis).to_rfc3339();
        let shown = |one: &Rejections| RejectedClient {
            client: shown_client(&one.client),
            count: one.count,
            first: time(one.first),
            last: time(one.last),
        };
        all.into_iter().take(count).map(shown).collect()
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
