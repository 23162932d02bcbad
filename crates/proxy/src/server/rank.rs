//! The order in which connections are closed when slots run out.
//!
//! Connections without a request in flight are closed first, then upgraded connections and tunnels, then connections
//! with requests whose client stalls. Within each group, clients with the most connections are closed first. Of a
//! client, the connection that has waited longest is closed first, until the client has no more connections than the
//! next one.

use std::cmp::Reverse;
use std::time::Duration;

use ipnet::IpNet;

use super::activity::ClientWait;

/// A connection that waits for its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<K> {
    pub(crate) key: K,
    /// The client that the connection is counted for, if any.
    pub(crate) client: Option<IpNet>,
    /// The number of connections that the client has.
    pub(crate) held: usize,
    pub(crate) wait: ClientWait,
}

/// Sorts candidates: the first one is closed first.
pub(crate) fn rank<K>(mut candidates: Vec<Candidate<K>>) -> Vec<K> {
    candidates.sort_unstable_by_key(|candidate| {
        (candidate.client, candidate.wait.reason.loss(), Reverse(candidate.wait.duration))
    });
    let (mut preceding, mut client) = (0, None);
    for candidate in &mut candidates {
        preceding = if candidate.client.is_some() && candidate.client == client { preceding + 1 } else { 0 };
        client = candidate.client;
        // The number of connections that the client has after those before this one are closed.
        candidate.held = candidate.held.saturating_sub(preceding);
    }
    let order = |candidate: &Candidate<K>| -> (u8, Reverse<usize>, Reverse<Duration>) {
        (candidate.wait.reason.loss(), Reverse(candidate.held), Reverse(candidate.wait.duration))
    };
    candidates.sort_unstable_by_key(order);
    candidates.into_iter().map(|candidate| candidate.key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::activity::WaitReason;

    /// Returns candidates of a client with `held` connections, one for each wait in seconds.
    fn waiting(client: Option<&str>, held: usize, reason: WaitReason, seconds: &[u64]) -> Vec<Candidate<String>> {
        let candidate = |seconds: &u64| Candidate {
            key: format!("{} {seconds}", client.unwrap_or("-")),
            client: client.map(|client| format!("192.0.2.{client}/32").parse().unwrap()),
            held,
            wait: ClientWait { reason, duration: Duration::from_secs(*seconds) },
        };
        seconds.iter().map(candidate).collect()
    }

    #[test]
    fn client_with_the_most_connections_is_first() {
        let many = waiting(Some("1"), 4, WaitReason::Head, &[1, 2, 3, 4]);
        let few = waiting(Some("2"), 2, WaitReason::Request, &[8, 9]);
        assert_eq!(rank([few, many].concat()), ["1 4", "1 3", "2 9", "1 2", "2 8", "1 1"]);
    }

    #[test]
    fn busy_connections_count_for_their_client() {
        let busy = waiting(Some("1"), 9, WaitReason::Request, &[1]);
        let idle = waiting(Some("2"), 2, WaitReason::Request, &[5, 6]);
        assert_eq!(rank([idle, busy].concat()), ["1 1", "2 6", "2 5"]);
    }

    #[test]
    fn requests_are_last_and_upgrades_before_them() {
        let readers = waiting(Some("1"), 90, WaitReason::Response, &[50, 60]);
        let idle = waiting(Some("2"), 1, WaitReason::Request, &[1]);
        let streams = waiting(Some("3"), 91, WaitReason::Streams, &[2]);
        let switched = waiting(Some("4"), 1, WaitReason::Upgraded, &[70]);
        assert_eq!(rank([readers, switched, idle, streams].concat()), ["2 1", "4 70", "3 2", "1 60", "1 50"]);
    }

    #[test]
    fn connections_of_trusted_proxies_are_ranked_singly() {
        let proxy_protocol = waiting(None, 1, WaitReason::Request, &[7, 9]);
        let other = waiting(Some("1"), 2, WaitReason::Head, &[1, 2]);
        assert_eq!(rank([proxy_protocol, other].concat()), ["1 2", "- 9", "- 7", "1 1"]);
    }
}
