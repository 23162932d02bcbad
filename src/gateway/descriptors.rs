//! Raises the limit of file descriptors to what the rule file needs, or lowers the number of connections to fit the
//! limit.
//!
//! A client connection needs one descriptor, and usually a second one while its request is forwarded. Without free
//! descriptors, new connections would wait in the kernel without a response. Therefore the connection cap is lowered,
//! and connections above it get a response.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::listen_entries::listen_entries;
use tidegate_config::Config;
use tidegate_proxy::transport::{MAX_PIPES, disable_pipes};

/// Descriptors for everything but connections and workers, with a margin: logs, signals, the store, 64 admin
/// connections, and up to 64 rejected clients that still read their response.
const RESERVE: u64 = 192;

/// Descriptors of each worker in addition to connections and listeners: its runtime and its connections to the store.
const PER_WORKER: u64 = 16;

/// The descriptors of the pipes that move large bodies, and the least limit with which there are pipes.
const PIPES: u64 = 2 * MAX_PIPES as u64;
const LIMIT_FOR_PIPES: u64 = 1024;

/// The file descriptors that a gateway needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DescriptorNeed {
    connections: u64,
    other: u64,
}

/// Raises the descriptor limit if necessary and permitted. Returns how many connections the gateway may serve in total.
/// Warns if that is far below the rule file's number.
pub(super) fn reserve(config: &Config, workers: usize) -> usize {
    let need = DescriptorNeed::new(config, workers);
    let limit = raise_limit(need.descriptors());
    if limit < LIMIT_FOR_PIPES {
        disable_pipes();
    }
    let connections = need.max_connections(limit);
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
        false => tracing::debug!(
            limit,
            needed,
            max_connections,
            served = connections,
            "file descriptor limit lowers the number of connections: raise it (`ulimit -n`, `LimitNOFILE`) or lower \
             `max_connections`"
        ),
    }
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// Raises the limit to `wanted`, or as far as the hard limit permits. Returns the limit that is then in force.
fn raise_limit(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (soft, hard) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    let target = wanted.min(hard);
    if soft >= target || setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum }).is_err() {
        return soft;
    }
    target
}

impl DescriptorNeed {
    fn new(config: &Config, workers: usize) -> Self {
        let entries = listen_entries(config);
        let listener_connections: usize = entries.iter().map(|entry| entry.listen.max_connections).sum();
        // Each worker has a socket for every address, and a second descriptor of it for a successor.
        let per_worker = PER_WORKER + 2 * entries.len() as u64;
        Self {
            connections: listener_connections.min(config.max_connections) as u64,
            other: RESERVE + workers as u64 * per_worker,
        }
    }

    fn descriptors(self) -> u64 {
        self.connections.saturating_mul(2).saturating_add(self.other + PIPES)
    }

    /// Returns `true` if `connections` is less than nine tenths of the needed number.
    fn is_far_above(self, connections: u64) -> bool {
        connections < self.connections - self.connections / 10
    }

    /// Returns how many connections the gateway can serve with `limit` descriptors, at least one.
    fn max_connections(self, limit: u64) -> u64 {
        let pipes = if limit < LIMIT_FOR_PIPES { 0 } else { PIPES };
        (limit.saturating_sub(self.other + pipes) / 2).min(self.connections).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_needs_two_descriptors_beyond_the_reserve() {
        let listen = "listen: [0.0.0.0:1, 0.0.0.0:2]\nmax_connections: 15000\nroutes: [{ name: a, match: {} }]";
        let need = DescriptorNeed::new(&Config::parse(listen).unwrap(), 4);
        assert_eq!(need, DescriptorNeed { connections: 15_000, other: 192 + 4 * 20 });
        assert_eq!(need.descriptors(), 30_400);
        assert_eq!((need.max_connections(30_400), need.max_connections(u64::MAX)), (15_000, 15_000));
        assert_eq!((need.max_connections(1200), need.max_connections(256), need.max_connections(64)), (400, 1, 1));
    }

    #[test]
    fn only_a_far_lower_descriptor_limit_warns() {
        let need = DescriptorNeed { connections: 10_000, other: 200 };
        assert!(need.is_far_above(28) && need.is_far_above(8_999));
        assert!(!need.is_far_above(9_000) && !need.is_far_above(10_000));
    }

    #[test]
    fn descriptor_limit_is_raised_up_to_the_hard_limit() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let (soft, hard) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
        assert_eq!(raise_limit(1), soft, "the limit is never lowered");
        assert_eq!(raise_limit(soft.saturating_add(1)), soft.saturating_add(1).min(hard));
    }
}
