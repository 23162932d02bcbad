//! File descriptors: whether there are enough for the connections that the rule file allows, and how many of these are
//! served if there are not.
//!
//! A client connection needs one, and while its request is forwarded mostly another. A connection that comes when
//! there are none left waits in the kernel without an answer; so the cap is lower, and connections above it get one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// What is open in addition to connections and workers, with room: logs, signals, the store, 64 admin connections, and up
/// to 64 rejected clients that still read their response.
const RESERVE: u64 = 192;

/// What each worker has open beside connections and listeners: its runtime, its share of the store.
const OF_WORKER: u64 = 16;

/// What a gateway would have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    connections: u64,
    beside: u64,
}

/// Sees to it that there are enough, as far as the system lets it; returns how many connections may be served in all. Warns
/// if those are far fewer than the rule file allows.
pub(super) fn provide(config: &Config, workers: usize) -> usize {
    let need = Need::of(config, workers);
    let limit = raise(need.descriptors());
    let connections = need.affordable(limit);
    if connections == need.connections {
        return config.max_connections;
    }
    let (max_connections, needed) = (need.connections, need.descriptors());
    match need.is_far_above(connections) {
        true => tracing::warn!(
            limit,
            needed,
            max_connections,
            served = connections,
            "file descriptor limit is too low for `max_connections`: raise it (`ulimit -n`, `LimitNOFILE`) or lower \
             `max_connections`"
        ),
        false => tracing::info!(
            limit,
            needed,
            max_connections,
            served = connections,
            "file descriptor limit lowers the number of connections"
        ),
    }
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// Raises the limit to `wanted` if it may be; returns what it is then.
fn raise(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (soft, hard) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    let better = wanted.min(hard);
    if soft >= better || setrlimit(Resource::Nofile, Rlimit { current: Some(better), maximum }).is_err() {
        return soft;
    }
    better
}

impl Need {
    fn of(config: &Config, workers: usize) -> Self {
        let of_listeners: usize = config.listen.iter().map(|listen| listen.max_connections).sum();
        // Each listens on every address, and a successor is handed what it listens on.
        let of_worker = OF_WORKER + 2 * config.listen.len() as u64;
        Self {
            connections: of_listeners.min(config.max_connections) as u64,
            beside: RESERVE + workers as u64 * of_worker,
        }
    }

    fn descriptors(self) -> u64 {
        self.connections.saturating_mul(2).saturating_add(self.beside)
    }

    /// Returns `true` if so many connections are less than nine tenths of those that it needs.
    fn is_far_above(self, connections: u64) -> bool {
        connections < self.connections - self.connections / 10
    }

    /// How many connections `limit` is enough for; one at least, since a gateway that serves nobody is none.
    fn affordable(self, limit: u64) -> u64 {
        (limit.saturating_sub(self.beside) / 2).clamp(1, self.connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_needs_two_descriptors_and_there_is_always_a_reserve() {
        let listen = "listen: [0.0.0.0:1, 0.0.0.0:2]\nmax_connections: 15000\nroutes: [{ name: a, match: {} }]";
        let need = Need::of(&Config::parse(listen).unwrap(), 4);
        assert_eq!(need, Need { connections: 15_000, beside: 192 + 4 * 20 });
        assert_eq!(need.descriptors(), 30_272);
        assert_eq!((need.affordable(30_272), need.affordable(u64::MAX)), (15_000, 15_000));
        assert_eq!((need.affordable(1200), need.affordable(256), need.affordable(64)), (464, 1, 1));
    }

    #[test]
    fn only_a_far_lower_descriptor_limit_warns() {
        let need = Need { connections: 10_000, beside: 200 };
        assert!(need.is_far_above(28) && need.is_far_above(8_999));
        assert!(!need.is_far_above(9_000) && !need.is_far_above(10_000));
    }

    #[test]
    fn the_limit_is_raised_as_far_as_it_may_be() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let (soft, hard) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
        assert_eq!(raise(1), soft, "it is never lowered");
        assert_eq!(raise(soft.saturating_add(1)), soft.saturating_add(1).min(hard));
    }
}
