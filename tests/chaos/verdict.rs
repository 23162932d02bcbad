//! Checks whether each limit kept the guarantees of its policy. Only certain violations count: if only the start and
//! the end of a request are known, the checker assumes the time of decision that suits the gateway best.

use super::checker::{Algorithm, Grant, Rule, check};
use super::journal::{DecidedBy, Record};
use super::losses::{DataLoss, StoreFinding, max_age, times_of};
use super::run::{GATEWAYS, Recovery, Round};
use super::table::{Limit, Policy};

/// Findings about the grants under one limit. Violations are lists of times.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Number of requests granted by Redis.
    pub granted_by_store: usize,
    /// Number of requests granted by gateways without Redis.
    pub granted_locally: usize,
    /// Grants of Redis, compared with the limit and the losses of data.
    pub store_finding: StoreFinding,
    /// Local grants of a gateway above its share of the limit.
    pub over_share: Vec<u64>,
    /// Grants of Redis in windows that earlier local grants had filled.
    pub uncharged: Vec<u64>,
    /// Local grants under the policy `deny`.
    pub not_denied: Vec<u64>,
}

/// Local decisions that took longer are left out: the gateway's thread was not scheduled.
const MAX_LOCAL_TIME: u64 = 100;
/// Like [`MAX_LOCAL_TIME`], for limits whose requests wait for a time slot.
const MAX_QUEUED_TIME: u64 = 500;
/// The largest difference between two clocks that are read one after the other.
const MARGIN: u64 = 5;

impl Verdict {
    pub fn new(limit: &Limit, records: &[Record], rounds: &[Round]) -> Self {
        let mut verdict = Self::default();
        let is_grant = |record: &&Record| usize::from(record.route) == limit.route && record.is_granted();
        let granted: Vec<Record> = records.iter().filter(is_grant).copied().collect();
        let last_client = granted.iter().map(|record| record.client).max().filter(|_| limit.per_client).unwrap_or(0);
        for client in 0..=last_client {
            let is_in_bucket = |record: &&Record| !limit.per_client || record.client == client;
            let bucket: Vec<Record> = granted.iter().filter(is_in_bucket).copied().collect();
            verdict.check_bucket(limit, &bucket, rounds);
        }
        verdict
    }

    /// Returns the violations by kind.
    pub fn violations(&self) -> impl Iterator<Item = (&'static str, &[u64])> {
        let Self { store_finding, over_share, uncharged, not_denied, .. } = self;
        let named = [
            ("over the limit", &store_finding.violations),
            ("over the share", over_share),
            ("not charged", uncharged),
            ("not denied", not_denied),
        ];
        named.into_iter().map(|(name, times)| (name, &times[..]))
    }

    fn check_bucket(&mut self, limit: &Limit, granted: &[Record], rounds: &[Round]) {
        let rule = limit.rule;
        // The limit may be decided up to `slack` after the logged time. So windows are shorter by `slack`.
        let slack = if limit.is_decided_second() { MAX_LOCAL_TIME } else { 0 };
        let is_certain = |record: &&Record| {
            slack == 0 || record.decided_by.store_time().is_some_and(|at| record.end + MARGIN < at + slack)
        };
        let by_store = granted.iter().filter(is_certain).filter_map(|record| record.decided_by.store_time().map(grant));
        let mut by_store: Vec<Grant> = by_store.collect();
        by_store.sort_by_key(|grant| grant.at);
        let is_local = |record: &&Record| record.decided_by == DecidedBy::Gateway;
        let local: Vec<Record> = granted.iter().filter(is_local).copied().collect();
        self.granted_by_store += by_store.len();
        self.granted_locally += local.len();
        let losses: Vec<DataLoss> = rounds.iter().filter_map(|round| round.data_loss).collect();
        self.store_finding.check_bucket(&Rule { interval: rule.interval - slack, ..rule }, &by_store, &losses);
        match limit.policy() {
            Policy::Allow => {}
            Policy::Deny => self.not_denied.extend(local.iter().map(|record| record.end)),
            Policy::Local => {
                self.over_share.extend((0..GATEWAYS).flat_map(|number| over_share(&rule, &local, number, rounds)));
                let uncharged_in = |number| uncharged(&rule, &by_store, &local, rounds, number);
                self.uncharged.extend((0..rounds.len()).flat_map(uncharged_in));
            }
        }
    }
}

/// Returns the local grants of a gateway above its share of the limit. Assumes the latest possible time for each grant,
/// and shortens windows by the error of that assumption. A gateway and its successors after a handover have one share;
/// a restarted gateway starts with a new one.
fn over_share(rule: &Rule, local: &[Record], gateway: usize, rounds: &[Round]) -> Vec<u64> {
    let share_of = |permits: u64| (permits / GATEWAYS as u64).max(1);
    let max_time = if rule.algorithm.waits() { MAX_QUEUED_TIME } else { MAX_LOCAL_TIME };
    let slack = (share_of(rule.rate) * max_time).div_ceil(rule.interval);
    let (algorithm, interval) = match rule.algorithm {
        Algorithm::TokenBucket | Algorithm::SlidingWindow { .. } => (Algorithm::TokenBucket, rule.interval - max_time),
        Algorithm::FixedWindow => (Algorithm::FixedWindow, rule.interval),
        Algorithm::Gcra { burst } => (Algorithm::Gcra { burst: share_of(burst) + slack }, rule.interval),
        Algorithm::LeakyBucket { queue } => {
            (Algorithm::LeakyBucket { queue: queue / GATEWAYS as u64 + slack }, rule.interval)
        }
    };
    let is_in_one_window = |record: &Record| (record.begin - MARGIN) / interval == (record.end + MARGIN) / interval;
    let is_certain = |record: &&Record| {
        record.end + MARGIN < record.begin + max_time
            && (algorithm != Algorithm::FixedWindow || is_in_one_window(record))
    };
    let by_gateway = local.iter().filter(|record| usize::from(record.gateway) == gateway).filter(is_certain);
    let mut grants: Vec<Grant> = by_gateway.map(|record| grant(record.end)).collect();
    grants.sort_by_key(|grant| grant.at);
    let restarts = rounds.iter().filter_map(|round| round.restart).filter(|restart| restart.gateway == gateway);
    let restarts: Vec<u64> = restarts.map(|restart| restart.at).collect();
    let processes = grants.chunk_by(|one, next| !restarts.iter().any(|at| (one.at..next.at).contains(at)));
    let share = Rule { algorithm, interval, rate: share_of(rule.rate) };
    processes.flat_map(|grants| times_of(&check(&[share], grants).violations).collect::<Vec<_>>()).collect()
}

/// Returns the grants of Redis after a recovery that do not fit into the limit together with the local grants, all of
/// which have been charged at the recovery. A local grant counts from the start of its request, the earliest possible time.
fn uncharged(rule: &Rule, by_store: &[Grant], local: &[Record], rounds: &[Round], number: usize) -> Vec<u64> {
    let Round { recovery: Some(Recovery { gateways_at, .. }), next, .. } = rounds[number] else { return Vec::new() };
    let recovered = gateways_at.into_iter().max().unwrap_or(next);
    let losses = rounds[..=number].iter().filter_map(|round| round.data_loss);
    let last_loss = losses.map(|loss| loss.until).max().unwrap_or(0);
    let since = last_loss.max(recovered.saturating_sub(max_age(rule)));
    // Grants with rule 0 are checked; grants with rule 1 are not, but count.
    let unbounded_rule = Rule {
        algorithm: unbounded(rule.algorithm),
        rate: if rule.returns(0).is_some() { UNBOUNDED } else { rule.rate },
        ..*rule
    };
    let rule_at = |at: u64| usize::from(at <= recovered);
    let by_store = by_store.iter().filter(|grant| (since + 1..next).contains(&grant.at));
    let mut grants: Vec<Grant> = by_store.map(|grant| Grant { rule: rule_at(grant.at), ..*grant }).collect();
    let is_forgotten = |record: &Record| {
        let mut restarts = rounds[..=number].iter().filter_map(|round| round.restart);
        restarts.any(|restart| restart.gateway == usize::from(record.gateway) && record.begin <= restart.at)
    };
    let charged = local
        .iter()
        .filter(|record| record.begin > since && record.end < gateways_at[usize::from(record.gateway)])
        .filter(|record| !is_forgotten(record));
    grants.extend(charged.map(|record| Grant { rule: 1, ..grant(record.begin) }));
    times_of(&check(&[*rule, unbounded_rule], &grants).violations).collect()
}

/// More permits than are ever granted.
const UNBOUNDED: u64 = 1 << 40;

fn unbounded(algorithm: Algorithm) -> Algorithm {
    match algorithm {
        Algorithm::Gcra { .. } => Algorithm::Gcra { burst: UNBOUNDED },
        Algorithm::LeakyBucket { .. } => Algorithm::LeakyBucket { queue: UNBOUNDED },
        algorithm => algorithm,
    }
}

fn grant(at: u64) -> Grant {
    Grant { at, permits: 1, rule: 0 }
}

// === impl DecidedBy ===

impl DecidedBy {
    /// Returns the time of the decision on Redis's clock, or `None` if Redis did not decide.
    fn store_time(self) -> Option<u64> {
        match self {
            Self::Store(at) => Some(at),
            Self::Gateway | Self::Unknown => None,
        }
    }
}
