//! The rule by which clients share the connections to an endpoint and the positions in its queue.

use ipnet::IpNet;

/// The client of a request: an IPv4 address or an IPv6 network. `None` if the client is unknown, for example behind a
/// trusted proxy that names no client. Shares do not limit the requests of unknown clients.
pub(crate) type Client = Option<IpNet>;

/// The maximum number of units that are reserved for clients that hold none.
const MAX_RESERVED: usize = 128;

/// The rule by which clients share a number of equal units.
///
/// A client that holds units may take another one only while it holds fewer units than are free, and more units are
/// free than are reserved. A client without units may take any free unit. So a single client can hold half of the
/// units, and once only the reserve is left, each further client still gets one unit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    reserved: usize,
}

impl Share {
    /// Creates the rule for `total` units. Half of them are reserved, at most [`MAX_RESERVED`].
    pub(super) fn new(total: usize) -> Self {
        Self { reserved: (total / 2).min(MAX_RESERVED) }
    }

    /// Returns `true` if a client that holds `held` units may take another one while `free` units are free.
    pub(super) fn allows(self, held: usize, free: usize) -> bool {
        free > 0 && (held == 0 || (held < free && free > self.reserved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many units each client gets if the clients take all they can, one client after the other.
    fn greedy(total: usize, clients: usize) -> Vec<usize> {
        let (share, mut free) = (Share::new(total), total);
        let takes = |_| {
            let mut held = 0;
            while share.allows(held, free) {
                (held, free) = (held + 1, free - 1);
            }
            held
        };
        (0..clients).map(takes).collect()
    }

    #[test]
    fn client_alone_takes_half_of_the_units() {
        for (total, alone) in [(0, 0), (1, 1), (2, 1), (3, 2), (16, 8), (256, 128), (1024, 512), (100_000, 50_000)] {
            assert_eq!(greedy(total, 1), [alone], "of {total}");
        }
    }

    #[test]
    fn reserve_serves_one_request_of_each_later_client() {
        assert_eq!(greedy(1024, 5), [512, 256, 128, 1, 1]);
        for (total, clients) in [(64, 33), (256, 129), (512, 130), (1024, 131)] {
            let held = greedy(total, clients + 1);
            assert!(held[..clients].iter().all(|held| *held > 0), "of {total}: {held:?}");
            assert_eq!(held[clients], 0, "of {total}");
        }
    }
}
