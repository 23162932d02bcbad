//! Decides which addresses of a name are used, and when the name is resolved again. Pure: the caller resolves the name
//! and passes the time.
//!
//! * An answer is used for its TTL, but at least 1 s and at most 30 s, because some servers send TTLs of 0 s or 600 s.
//! * While the resolution fails, the known addresses stay in use. They also stay if a part of the answer is missing,
//!   unless none of them accepts connections or the part is a family that is not used.
//! * If the name does not exist, the known addresses stay in use for 30 s, because a restarting service can disappear
//!   from DNS for a moment. Then they are removed.
//! * If no address accepts connections, the name is resolved again at once, but at most once a second.
//! * If a host has IPv4 and IPv6 addresses, only the family that has accepted a connection is used; until then, both.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// The minimum time between the starts of two resolutions of a name, and the minimum lifetime of an answer.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum lifetime of an answer.
const MAX_TTL: Duration = Duration::from_secs(30);

/// The maximum time between two resolutions while a name has no answer.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How long the addresses of a name that does not exist stay in use.
const ABSENT_GRACE: Duration = Duration::from_secs(30);

/// The maximum number of addresses of a name. The others are ignored, so that a DNS server cannot exhaust the memory.
const MAX_ADDRESSES: usize = 256;

/// An address of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResolvedAddress {
    pub(crate) address: SocketAddr,
    /// The weight of the SRV record, at least 1; 1 without an SRV record.
    pub(crate) weight: u32,
}

/// A host with addresses: the name itself, or the target of an SRV record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) ipv4: Vec<SocketAddr>,
    pub(super) ipv6: Vec<SocketAddr>,
    pub(super) weight: u32,
}

/// The records of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) hosts: Vec<Host>,
    pub(super) ttl: Duration,
    pub(super) missing: Missing,
}

/// The parts that are missing in an answer because a query failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Missing {
    #[default]
    Nothing,
    /// The addresses of a family.
    Family(Family),
    /// The addresses of the target of an SRV record.
    Host,
}

/// The reason why a name has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LookupError {
    /// The name does not exist, or has no addresses.
    #[error("the name has no addresses")]
    Absent,
    /// No server answered, or a server reported an error.
    #[error("{0}")]
    Failed(String),
}

/// A version of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Ipv4,
    Ipv6,
}

/// The state of a name.
#[derive(Debug)]
pub(super) struct NameState {
    addresses: Vec<ResolvedAddress>,
    /// The family that is used for hosts with both families. `None` until a
    /// probed one has accepted a connection.
    family: Option<Family>,
    /// The addresses to which a connection failed since the last resolution.
    unreachable: BTreeSet<SocketAddr>,
    last_start: Option<Instant>,
    next_start: Instant,
    /// The number of consecutive resolutions that failed or whose probe found no family.
    failures: u32,
    /// Since when the name does not exist.
    absent_since: Option<Instant>,
}

// === impl NameState ===

impl NameState {
    /// Creates the state of a name that is resolved at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            addresses: Vec::new(),
            family: None,
            unreachable: BTreeSet::new(),
            last_start: None,
            next_start: now,
            failures: 0,
            absent_since: None,
        }
    }

    /// Returns the addresses to use, in ascending order.
    pub(super) fn addresses(&self) -> &[ResolvedAddress] {
        &self.addresses
    }

    /// Returns when to start the next resolution.
    pub(super) fn next_start(&self) -> Instant {
        self.next_start
    }

    /// Records the start of a resolution.
    pub(super) fn start(&mut self, now: Instant) {
        self.last_start = Some(now);
    }

    /// Records that an address failed to connect.
    pub(super) fn record_unreachable(&mut self, address: SocketAddr, now: Instant) {
        if self.addresses.iter().any(|known| known.address == address) {
            self.unreachable.insert(address);
        }
        if self.is_unreachable() {
            let earliest = self.last_start.map_or(now, |start| start + MIN_INTERVAL);
            self.next_start = self.next_start.min(earliest.max(now));
        }
    }

    /// Returns `true` if the caller must probe which family of this answer accepts connections.
    pub(super) fn must_probe(&self, answer: &Answer) -> bool {
        let has_both = answer.hosts.iter().any(|host| !host.ipv4.is_empty() && !host.ipv6.is_empty());
        has_both && (self.family.is_none() || self.is_unreachable())
    }

    /// Replaces the addresses by the answer's, unless it lacks known addresses. `probed` is the family that has
    /// accepted a connection, if the caller has probed them.
    pub(super) fn record_answer(&mut self, answer: &Answer, probed: Option<Family>, now: Instant) {
        if self.lacks_known(answer) {
            return self.record_error(&LookupError::Failed("a part of the answer is missing".to_owned()), now);
        }
        self.family = probed.or(self.family);
        let must_probe_again = self.family.is_none() && self.must_probe(answer);
        let mut addresses: Vec<_> = answer.hosts.iter().flat_map(|host| host.addresses(self.family)).collect();
        addresses.sort_unstable();
        addresses.dedup_by_key(|known| known.address);
        addresses.truncate(MAX_ADDRESSES);
        self.addresses = addresses;
        self.unreachable.clear();
        self.absent_since = None;
        let mut interval = answer.ttl.clamp(MIN_INTERVAL, MAX_TTL);
        if must_probe_again {
            interval = interval.min(self.retry_interval());
        } else {
            self.failures = 0;
        }
        self.schedule(now + interval, now);
    }

    /// Records that there is no answer.
    pub(super) fn record_error(&mut self, error: &LookupError, now: Instant) {
        self.unreachable.clear();
        let mut next = now + self.retry_interval();
        if matches!(error, LookupError::Absent) {
            let end = *self.absent_since.get_or_insert(now) + ABSENT_GRACE;
            if now >= end {
                self.addresses.clear();
            } else {
                next = next.min(end);
            }
        }
        self.schedule(next, now);
    }

    /// Returns `true` if the answer may lack addresses that are in use, not all of which are unreachable.
    fn lacks_known(&self, answer: &Answer) -> bool {
        let is_relevant = match answer.missing {
            Missing::Nothing => false,
            Missing::Family(family) => self.family == Some(family),
            Missing::Host => true,
        };
        is_relevant && !self.addresses.is_empty() && !self.is_unreachable()
    }

    fn is_unreachable(&self) -> bool {
        !self.addresses.is_empty() && self.unreachable.len() == self.addresses.len()
    }

    /// Counts a resolution that failed or whose probe found no family. Returns the time until the next one: 1 s, then
    /// 2 s, 4 s and 5 s.
    fn retry_interval(&mut self) -> Duration {
        let interval = MIN_INTERVAL * 2_u32.pow(self.failures.min(3));
        self.failures = self.failures.saturating_add(1);
        interval.min(MAX_RETRY_INTERVAL)
    }

    fn schedule(&mut self, next: Instant, now: Instant) {
        let earliest = self.last_start.map_or(now, |start| start + MIN_INTERVAL);
        self.next_start = next.max(earliest);
    }
}

// === impl Host ===

impl Host {
    fn addresses(&self, family: Option<Family>) -> impl Iterator<Item = ResolvedAddress> {
        let (ipv4, ipv6) = match family {
            Some(Family::Ipv4) if !self.ipv4.is_empty() => (&self.ipv4[..], &[][..]),
            Some(Family::Ipv6) if !self.ipv6.is_empty() => (&[][..], &self.ipv6[..]),
            _ => (&self.ipv4[..], &self.ipv6[..]),
        };
        let weight = self.weight.max(1);
        ipv4.iter().chain(ipv6).map(move |address| ResolvedAddress { address: *address, weight })
    }
}

#[cfg(test)]
mod tests;
