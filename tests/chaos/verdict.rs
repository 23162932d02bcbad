//! Whether each limit kept what its policy promises. What is not certain is no violation: where only the begin and the end of a
//! request are known, the moment between that suits the gateway best is taken.

use super::checker::{Grant, Law, Rule, check};
use super::journal::{By, Record};
use super::losses::{ByLaw, Lost, moments, remembered};
use super::run::{GATEWAYS, Round, Settled};
use super::table::{Limit, Policy};

/// What became of one limit.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Requests that Redis granted, and that gateways granted alone.
    pub granted: (usize, usize),
    /// What Redis granted, by the law and by what was lost.
    pub by_law: ByLaw,
    /// When a gateway granted alone beyond its share.
    pub beyond_share: Vec<u64>,
    /// When Redis granted although, with what gateways had granted alone before, the limit was used up.
    pub uncharged: Vec<u64>,
    /// When it was granted although the policy is to deny.
    pub undenied: Vec<u64>,
}

/// An answer of a gateway that decides alone takes no longer, unless its thread is not given a turn; those are left out.
const QUICK: u64 = 100;
/// The same where requests wait for a slot.
const QUICK_IN_TURN: u64 = 500;
/// Clocks that are read one after the other differ by no more.
const MARGIN: u64 = 5;

impl Verdict {
    pub fn of(limit: &Limit, records: &[Record], rounds: &[Round]) -> Self {
        let mut verdict = Self::default();
        let of_route = |one: &&Record| usize::from(one.route) == limit.route && one.is_granted();
        let granted: Vec<Record> = records.iter().filter(of_route).copied().collect();
        let clients = if limit.per_client { granted.iter().map(|one| one.client).max().unwrap_or(0) } else { 0 };
        for client in 0..=clients {
            let of_client = |one: &&Record| !limit.per_client || one.client == client;
            let bucket: Vec<Record> = granted.iter().filter(of_client).copied().collect();
            verdict.judge_bucket(limit, &bucket, rounds);
        }
        verdict
    }

    /// When it broke its promises, and which.
    pub fn violations(&self) -> impl Iterator<Item = (&'static str, &[u64])> {
        let Self { by_law, beyond_share, uncharged, undenied, .. } = self;
        let named = [
            ("beyond the law", &by_law.violations),
            ("beyond the share", beyond_share),
            ("not charged", uncharged),
            ("not denied", undenied),
        ];
        named.into_iter().map(|(name, moments)| (name, &moments[..]))
    }

    fn judge_bucket(&mut self, limit: &Limit, granted: &[Record], rounds: &[Round]) {
        let rule = limit.rule;
        // What is decided up to so much after it was dated is counted in windows that are as much shorter.
        let slack = if limit.comes_later() { QUICK } else { 0 };
        let is_certain = |one: &&Record| slack == 0 || one.by.store().is_some_and(|at| one.end + MARGIN < at + slack);
        let by_store = granted.iter().filter(is_certain).filter_map(|one| one.by.store().map(grant));
        let mut by_store: Vec<Grant> = by_store.collect();
        by_store.sort_by_key(|grant| grant.at);
        let alone: Vec<Record> = granted.iter().filter(|one| one.by == By::Alone).copied().collect();
        self.granted.0 += by_store.len();
        self.granted.1 += alone.len();
        let losses: Vec<Lost> = rounds.iter().filter_map(|round| round.lost).collect();
        self.by_law.judge(&Rule { interval: rule.interval - slack, ..rule }, &by_store, &losses);
        match limit.policy() {
            Policy::Allow => {}
            Policy::Deny => self.undenied.extend(alone.iter().map(|one| one.end)),
            Policy::Local => {
                self.beyond_share.extend((0..GATEWAYS).flat_map(|number| beyond_share(&rule, &alone, number, rounds)));
                let judge = |number| uncharged(&rule, &by_store, &alone, rounds, number);
                self.uncharged.extend((0..rounds.len()).flat_map(judge));
            }
        }
    }
}

/// What this gateway granted alone beyond its share: if all of it came as late as it can have, in windows that are shorter by as
/// much as that may be wrong.
/// A gateway that hands over has one share with all its successors; one that is restarted begins again.
fn beyond_share(rule: &Rule, alone: &[Record], gateway: usize, rounds: &[Round]) -> Vec<u64> {
    let part = |permits: u64| (permits / GATEWAYS as u64).max(1);
    let quick = if rule.law.waits() { QUICK_IN_TURN } else { QUICK };
    let slack = (part(rule.rate) * quick).div_ceil(rule.interval);
    let (law, interval) = match rule.law {
        Law::TokenBucket | Law::SlidingWindow { .. } => (Law::TokenBucket, rule.interval - quick),
        Law::FixedWindow => (Law::FixedWindow, rule.interval),
        Law::Gcra { burst } => (Law::Gcra { burst: part(burst) + slack }, rule.interval),
        Law::LeakyBucket { queue } => (Law::LeakyBucket { queue: queue / GATEWAYS as u64 + slack }, rule.interval),
    };
    let is_in_one_window = |one: &Record| (one.begin - MARGIN) / interval == (one.end + MARGIN) / interval;
    let is_certain =
        |one: &&Record| one.end + MARGIN < one.begin + quick && (law != Law::FixedWindow || is_in_one_window(one));
    let of_gateway = alone.iter().filter(|one| usize::from(one.gateway) == gateway).filter(is_certain);
    let mut grants: Vec<Grant> = of_gateway.map(|one| grant(one.end)).collect();
    grants.sort_by_key(|grant| grant.at);
    let forgets = rounds.iter().filter_map(|round| round.forgotten).filter(|one| one.gateway == gateway);
    let forgets: Vec<u64> = forgets.map(|one| one.at).collect();
    let lives = grants.chunk_by(|one, next| !forgets.iter().any(|at| (one.at..next.at).contains(at)));
    let share = Rule { law, interval, rate: part(rule.rate) };
    lives.flat_map(|grants| moments(&check(&[share], grants).violations).collect::<Vec<_>>()).collect()
}

/// What Redis granted in the calm after a fault although the limit was used up, when all that gateways granted alone before
/// has been charged. Those grants count as if they were made when they were asked for: so they return early.
fn uncharged(rule: &Rule, by_store: &[Grant], alone: &[Record], rounds: &[Round], number: usize) -> Vec<u64> {
    let Round { settled: Some(Settled { of_each, .. }), next, .. } = rounds[number] else { return Vec::new() };
    let settled = of_each.into_iter().max().unwrap_or(next);
    let lost = rounds[..=number].iter().filter_map(|round| round.lost).map(|lost| lost.until).max().unwrap_or(0);
    let since = lost.max(settled.saturating_sub(remembered(rule)));
    // Grants by the first rule are judged, and those by the other one only count.
    let anything =
        Rule { law: unbounded(rule.law), rate: if rule.returns(0).is_some() { MOST } else { rule.rate }, ..*rule };
    let judged = |at: u64| usize::from(at <= settled);
    let by_store = by_store.iter().filter(|grant| (since + 1..next).contains(&grant.at));
    let mut grants: Vec<Grant> = by_store.map(|one| Grant { rule: judged(one.at), ..*one }).collect();
    let is_forgotten = |one: &Record| {
        let forgotten = rounds[..=number].iter().filter_map(|round| round.forgotten);
        forgotten.into_iter().any(|lost| lost.gateway == usize::from(one.gateway) && one.begin <= lost.at)
    };
    let charged = alone.iter().filter(|one| one.begin > since && one.end < of_each[usize::from(one.gateway)]);
    let charged = charged.filter(|one| !is_forgotten(one));
    grants.extend(charged.map(|one| Grant { rule: 1, ..grant(one.begin) }));
    moments(&check(&[*rule, anything], &grants).violations).collect()
}

/// More than is ever granted.
const MOST: u64 = 1 << 40;

fn unbounded(law: Law) -> Law {
    match law {
        Law::Gcra { .. } => Law::Gcra { burst: MOST },
        Law::LeakyBucket { .. } => Law::LeakyBucket { queue: MOST },
        law => law,
    }
}

fn grant(at: u64) -> Grant {
    Grant { at, permits: 1, rule: 0 }
}

// === impl By ===

impl By {
    fn store(self) -> Option<u64> {
        match self {
            Self::Store(at) => Some(at),
            Self::Alone | Self::Nobody => None,
        }
    }
}
