//! The order in which connections are closed when slots run out.
//!
//! Those of which no request is being answered go before all others, then those that were switched to another protocol. Among
//! them, the clients that hold the most go first, and
//! of a client the connection that has waited longest, until it holds no more than the next one.

use std::cmp::Reverse;
use std::time::Duration;

use ipnet::IpNet;

use super::activity::Wait;

/// A connection that waits for its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<K> {
    pub(crate) key: K,
    /// Whose it is, if it counts as somebody's.
    pub(crate) client: Option<IpNet>,
    /// How many that client has.
    pub(crate) held: usize,
    pub(crate) wait: Wait,
}

/// Sorts them: the first one is closed first.
pub(crate) fn rank<K>(mut candidates: Vec<Candidate<K>>) -> Vec<K> {
    candidates.sort_unstable_by_key(|one| (one.client, one.wait.what.loss(), Reverse(one.wait.time)));
    let (mut before, mut client) = (0, None);
    for one in &mut candidates {
        before = if one.client.is_some() && one.client == client { before + 1 } else { 0 };
        client = one.client;
        // What its client holds when those before it have gone.
        one.held = one.held.saturating_sub(before);
    }
    let order = |one: &Candidate<K>| -> (u8, Reverse<usize>, Reverse<Duration>) {
        (one.wait.what.loss(), Reverse(one.held), Reverse(one.wait.time))
    };
    candidates.sort_unstable_by_key(order);
    candidates.into_iter().map(|one| one.key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::activity::What;

    /// `count` of a client's `held` connections wait, for so many seconds and more.
    fn waiting(client: Option<&str>, held: usize, what: What, seconds: &[u64]) -> Vec<Candidate<String>> {
        let one = |seconds: &u64| Candidate {
            key: format!("{} {seconds}", client.unwrap_or("-")),
            client: client.map(|client| format!("192.0.2.{client}/32").parse().unwrap()),
            held,
            wait: Wait { what, time: Duration::from_secs(*seconds) },
        };
        seconds.iter().map(one).collect()
    }

    #[test]
    fn who_holds_the_most_goes_first_until_others_hold_as_many() {
        let many = waiting(Some("1"), 4, What::Head, &[1, 2, 3, 4]);
        let few = waiting(Some("2"), 2, What::Request, &[8, 9]);
        assert_eq!(rank([few, many].concat()), ["1 4", "1 3", "2 9", "1 2", "2 8", "1 1"]);
    }

    #[test]
    fn what_is_in_use_counts_for_its_client_and_does_not_go() {
        let busy = waiting(Some("1"), 9, What::Request, &[1]);
        let idle = waiting(Some("2"), 2, What::Request, &[5, 6]);
        assert_eq!(rank([idle, busy].concat()), ["1 1", "2 6", "2 5"]);
    }

    #[test]
    fn requests_go_last_whosever_they_are_and_other_protocols_before_them() {
        let readers = waiting(Some("1"), 90, What::Answer, &[50, 60]);
        let idle = waiting(Some("2"), 1, What::Request, &[1]);
        let streams = waiting(Some("3"), 91, What::Streams, &[2]);
        let switched = waiting(Some("4"), 1, What::Switched, &[70]);
        assert_eq!(rank([readers, switched, idle, streams].concat()), ["2 1", "4 70", "3 2", "1 60", "1 50"]);
    }

    #[test]
    fn those_of_trusted_proxies_are_each_somebody() {
        let proxied = waiting(None, 1, What::Request, &[7, 9]);
        let other = waiting(Some("1"), 2, What::Head, &[1, 2]);
        assert_eq!(rank([proxied, other].concat()), ["1 2", "- 9", "- 7", "1 1"]);
    }
}
