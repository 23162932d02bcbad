//! Selects the targets that a request tries.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{Request, header};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::balance::{Candidate, FULL_SHARE, hash, least_requests, mix, rendezvous, round_robin};
use super::body::RequestBody;
use super::entry::{Backend, Entry};
use super::settings::{Balance, BalanceMethod, HashKey, UpstreamSettings};
use super::slots::Client;
use super::target::{Availability, InFlightAttempt, TargetState};
use super::trace::Trace;
use tidegate_limit::random::random;

mod panic;
#[cfg(test)]
mod tests;

pub(super) use self::panic::is_panic;

/// How one worker distributes requests to the targets of an upstream.
#[derive(Debug)]
pub(super) struct Balancer {
    balance: Balance,
    slow_start: Option<Duration>,
    /// See [`is_panic`].
    panic_percent: u8,
    /// The state of a pseudorandom generator (SplitMix64).
    random: AtomicU64,
}

/// Selects the targets for one request.
pub(super) struct Selection<'e> {
    entries: &'e Vec<Arc<Entry>>,
    /// The hash of the request's key, if the upstream uses hashes and the request has a key.
    key: Option<NonZeroU64>,
    /// The positions that were selected, as bits. Positions that differ by a multiple of 64 share a bit, which bounds
    /// the attempts of a request.
    tried: u64,
}

/// A selected target.
pub(super) struct Selected<'e> {
    entry: &'e Entry,
    /// Whether the request has tried this target before, because no other is usable.
    pub(super) is_repeated: bool,
    /// Whether the request is the probe of an ejected target, and its attempt has not started.
    is_probe: Cell<bool>,
}

type Candidates<'e> = SmallVec<[Candidate<'e>; 8]>;

// === impl Balancer ===

impl Balancer {
    pub(super) fn new(settings: &UpstreamSettings) -> Self {
        let random = AtomicU64::new(u64::from_ne_bytes(random()));
        let panic_percent = settings.health.as_ref().map_or(0, |health| health.panic_percent);
        Self { balance: settings.balance.clone(), slow_start: settings.slow_start, panic_percent, random }
    }

    /// Returns `true` if requests use all of these targets, because too many of them fail their checks.
    pub(super) fn is_panic(&self, entries: &[Arc<Entry>], now: Instant) -> bool {
        is_panic(entries, self.panic_percent, now)
    }

    /// Returns `true` if a target may be ejected: another target stays usable, and at most `max_percent` percent of the
    /// targets are ejected then. One target of two or more can always be ejected.
    pub(super) fn can_eject(
        &self,
        entries: &[Arc<Entry>],
        target: &TargetState,
        max_percent: u8,
        now: Instant,
    ) -> bool {
        let in_panic = self.is_panic(entries, now);
        let (mut ejected, mut usable) = (1, 0);
        for entry in entries.iter().filter(|entry| !std::ptr::eq(&*entry.state, target)) {
            match entry.availability(now, in_panic) {
                Availability::Usable => usable += 1,
                Availability::ProbeDue | Availability::LastResort => ejected += 1,
                Availability::NoAddress | Availability::Failed | Availability::Excluded => {}
            }
        }
        usable > 0 && (ejected == 1 || ejected * 100 <= usize::from(max_percent) * entries.len())
    }

    /// Starts the selection for a request of this client.
    pub(super) fn select<'e>(
        &self,
        entries: &'e Vec<Arc<Entry>>,
        request: &Request<RequestBody>,
        client: Client,
    ) -> Selection<'e> {
        let key = match &self.balance {
            Balance::Hash(key) if entries.len() > 1 => hash_of(key, request, client),
            Balance::Hash(_) | Balance::Method(_) => None,
        };
        Selection { entries, key: key.and_then(NonZeroU64::new), tried: 0 }
    }

    fn random(&self) -> u64 {
        mix(self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed))
    }
}

/// Returns the hash of the request's key. Returns `None` if the request has none.
fn hash_of(key: &HashKey, request: &Request<RequestBody>, client: Client) -> Option<u64> {
    match key {
        HashKey::Client => client.map(|client| hash(&[client.to_string().as_bytes()])),
        HashKey::Header(name) => request.headers().get(name).map(|value| hash(&[value.as_bytes()])),
        HashKey::Path => Some(hash(&[request.uri().path().as_bytes()])),
        HashKey::Cookie(name) => {
            let fields = request.headers().get_all(header::COOKIE).iter();
            let mut pairs = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
            let prefix = |pair: &'_ [u8]| {
                pair.trim_ascii_start().strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(hash_one)
            };
            pairs.find_map(prefix)
        }
    }
}

fn hash_one(value: &[u8]) -> u64 {
    hash(&[value.trim_ascii_end()])
}

/// Returns the bit of a position.
fn bit(position: usize) -> u64 {
    1 << (position % 64)
}

// === impl Selection ===

impl<'e> Selection<'e> {
    /// Returns the next target to try. Returns a target twice only if it is the only one that is usable. Returns `None`
    /// if there is no other.
    ///
    /// The first target of a request can be an ejected one whose time has passed; the request is then its probe. If no
    /// target is usable, ejected targets are tried, but no targets that drain or whose checks fail. In panic, the results
    /// of checks are ignored.
    pub(super) fn next(&mut self, balancer: &Balancer, now: Instant) -> Option<Selected<'e>> {
        if let ([only], 0) = (&**self.entries, self.tried)
            && only.availability(now, false) == Availability::Usable
        {
            self.tried = 1;
            return Some(Selected::first(only)); // without the cost of a selection
        }
        let (mut in_panic, mut has_failed) = (false, false);
        let mut usable = match self.usable(balancer, now, in_panic, &mut has_failed) {
            ControlFlow::Continue(usable) => usable,
            ControlFlow::Break(probe) => return Some(probe),
        };
        if has_failed && balancer.is_panic(self.entries, now) {
            in_panic = true;
            usable = match self.usable(balancer, now, in_panic, &mut has_failed) {
                ControlFlow::Continue(usable) => usable,
                ControlFlow::Break(probe) => return Some(probe),
            };
        }
        if usable.is_empty() {
            let is_last_resort = |entry: &Entry| {
                use Availability::{LastResort, NoAddress, ProbeDue};
                matches!(entry.availability(now, in_panic), ProbeDue | LastResort | NoAddress)
            };
            let last = self.entries.iter().enumerate().filter(|(_, entry)| is_last_resort(entry));
            usable = last.map(|(position, _)| self.candidate(balancer, position, now, in_panic)).collect();
        }
        let only = (usable.len() == 1).then(|| usable[0].position);
        usable.retain(|candidate| self.tried & bit(candidate.position) == 0);
        let selected = self.choose(balancer, &usable);
        let is_repeated = selected.is_none();
        let position = selected.or(only)?;
        self.tried |= bit(position);
        let entry = &self.entries[position];
        if in_panic {
            entry.state.set_used_in_panic();
        }
        Some(Selected { entry, is_repeated, is_probe: Cell::new(false) })
    }

    /// Returns the usable targets, or the target that the request probes. Sets `has_failed` if the checks of a target fail.
    fn usable(
        &mut self,
        balancer: &Balancer,
        now: Instant,
        in_panic: bool,
        has_failed: &mut bool,
    ) -> ControlFlow<Selected<'e>, Candidates<'e>> {
        let (is_first, mut usable) = (self.tried == 0, Candidates::new());
        for (position, entry) in self.entries.iter().enumerate() {
            match entry.availability(now, in_panic) {
                Availability::Usable => usable.push(self.candidate(balancer, position, now, in_panic)),
                Availability::ProbeDue if is_first && entry.state.start_probe(now) => {
                    self.tried |= bit(position);
                    return ControlFlow::Break(Selected { entry, is_repeated: false, is_probe: Cell::new(true) });
                }
                Availability::Failed => *has_failed = true,
                Availability::ProbeDue
                | Availability::LastResort
                | Availability::NoAddress
                | Availability::Excluded => {}
            }
        }
        ControlFlow::Continue(usable)
    }

    /// Selects one of the candidates. Returns its position.
    fn choose(&self, balancer: &Balancer, candidates: &[Candidate<'e>]) -> Option<usize> {
        let candidate = match (candidates, self.key, &balancer.balance) {
            ([only], ..) => Some(only),
            (_, Some(key), _) => rendezvous(candidates, key.get()),
            (_, None, Balance::Method(BalanceMethod::RoundRobin)) => round_robin(candidates),
            (_, None, Balance::Method(BalanceMethod::LeastRequests) | Balance::Hash(_)) => {
                least_requests(candidates, balancer.random())
            }
        };
        candidate.map(|candidate| candidate.position)
    }

    /// In panic, a slow start would send most requests to the targets whose checks fail.
    fn candidate(&self, balancer: &Balancer, position: usize, now: Instant, in_panic: bool) -> Candidate<'e> {
        let entry = &*self.entries[position];
        let share = if in_panic { FULL_SHARE } else { entry.state.share(now, balancer.slow_start) };
        let weight = u64::from(entry.weight.max(1)) * u64::from(share);
        Candidate { position, weight, load: entry.state.load(now), id: entry.id, turn: &entry.turn }
    }
}

// === impl Selected ===

impl<'e> Selected<'e> {
    /// Selects a target that the request has not tried. The request is not a probe.
    pub(super) fn first(entry: &'e Entry) -> Self {
        Self { entry, is_repeated: false, is_probe: Cell::new(false) }
    }

    /// Returns the target.
    pub(super) fn entry(&self) -> &'e Entry {
        self.entry
    }

    /// Starts an attempt.
    pub(super) fn start_attempt(&self, trace: Option<&Trace>) -> InFlightAttempt<'e> {
        self.entry.state.start_attempt(trace, self.is_probe.take())
    }

    /// Returns how requests are sent to the target.
    pub(super) fn backend(&self) -> &'e Backend {
        &self.entry.backend
    }
}

impl Drop for Selected<'_> {
    fn drop(&mut self) {
        if self.is_probe.take() {
            self.entry.state.cancel_probe();
        }
    }
}
