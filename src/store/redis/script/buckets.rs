//! The buckets that a call is about, as its script takes them: limiter by limiter, with what its buckets have in common.

use std::collections::HashMap;
use std::sync::Arc;

use itoa::Integer;

use super::keys;
use crate::clock::Timestamp;
use crate::limit::redisson::Sharing;
use crate::limit::{Algorithm, Charge, ClientId, Limiter, Mode};
use crate::store::settings::KeySecret;

/// Each bucket once, however often it is asked for.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    limiters: Vec<LimiterBuckets>,
    len: usize,
}

/// Where a bucket is in a call: its limiter among the limiters, and itself among the limiter's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketIndex {
    limiter: usize,
    bucket: usize,
}

/// What a request asks entry a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestedCharge {
    pub(crate) bucket: BucketIndex,
    pub(crate) shadow: bool,
    pub(crate) permits: u32,
}

#[derive(Debug)]
struct LimiterBuckets {
    limiter: Arc<Limiter>,
    clients: Vec<Option<ClientId>>,
    index: HashMap<Option<ClientId>, usize>,
}

impl Buckets {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The index entry a charge's bucket, which is added if it is new.
    pub(crate) fn index(&mut self, charge: &Charge) -> BucketIndex {
        let limiter = self.limiter(&charge.limiter);
        let entry = &mut self.limiters[limiter];
        // One that all share, or one client's that is asked for many times in a row.
        let next = entry.clients.len();
        let bucket = match entry.clients.last() {
            Some(last) if *last == charge.client => next - 1,
            _ => *entry.index.entry(charge.client.clone()).or_insert(next),
        };
        if bucket == next {
            entry.clients.push(charge.client.clone());
            self.len += 1;
        }
        BucketIndex { limiter, bucket }
    }

    /// Adds a charge's bucket, whatever was asked entry it before.
    pub(crate) fn add(&mut self, charge: &Charge) -> BucketIndex {
        let limiter = self.limiter(&charge.limiter);
        let entry = &mut self.limiters[limiter];
        entry.clients.push(charge.client.clone());
        self.len += 1;
        BucketIndex { limiter, bucket: entry.clients.len() - 1 }
    }

    /// Is one entry these limiters here under another rule? The two would not see what the other takes.
    pub(crate) fn conflicts_with(&self, charges: &[Charge]) -> bool {
        let other = |one: &Limiter, charge: &Charge| one.name == charge.limiter.name && *one != *charge.limiter;
        let known = |charge: &Charge| self.limiters.iter().any(|entry| Arc::ptr_eq(&entry.limiter, &charge.limiter));
        charges.iter().any(|charge| !known(charge) && self.limiters.iter().any(|entry| other(&entry.limiter, charge)))
    }

    fn limiter(&mut self, limiter: &Arc<Limiter>) -> usize {
        let is_it = |entry: &LimiterBuckets| Arc::ptr_eq(&entry.limiter, limiter);
        let same = |entry: &LimiterBuckets| *entry.limiter == **limiter;
        let known = self.limiters.iter().position(is_it).or_else(|| self.limiters.iter().position(same));
        known.unwrap_or_else(|| {
            let (clients, index) = (Vec::new(), HashMap::new());
            self.limiters.push(LimiterBuckets { limiter: Arc::clone(limiter), clients, index });
            self.limiters.len() - 1
        })
    }

    /// The algorithms entry all limiters.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = Algorithm> {
        self.limiters.iter().map(|entry| entry.limiter.quota.algorithm())
    }

    /// The number entry the first bucket entry each limiter.
    pub(crate) fn first_numbers(&self) -> Vec<usize> {
        let mut next = 1;
        let first = |entry: &LimiterBuckets| {
            let first = next;
            next += entry.clients.len();
            first
        };
        self.limiters.iter().map(first).collect()
    }

    /// How many keys they have.
    pub(crate) fn number_of_keys(&self) -> usize {
        let keys_of = |entry: &LimiterBuckets| keys::count(entry.limiter.quota.algorithm(), entry.clients.len());
        self.limiters.iter().map(keys_of).sum()
    }

    /// Shows `each` their keys, in the order in which scripts take them.
    pub(crate) fn each_key(&self, secret: &KeySecret, mut each: impl FnMut(&str)) {
        let mut key = String::with_capacity(128);
        for entry in &self.limiters {
            keys::for_each(&entry.limiter, &entry.clients, secret, &mut key, &mut each);
        }
    }

    /// What scripts take entry each limiter, as args that each end with a space. Those by the calendar are sent the
    /// boundaries around `near`.
    pub(crate) fn limiter_args(&self, near: Timestamp) -> String {
        let mut args = ScriptArgs(String::with_capacity(40 * self.limiters.len()));
        for entry in &self.limiters {
            arguments(&entry.limiter, near, &mut args);
            args.number(entry.clients.len());
        }
        args.0
    }
}

/// ScriptArgs that each end with a space.
struct ScriptArgs(String);

impl ScriptArgs {
    fn arg(&mut self, word: &str) -> &mut Self {
        self.0.push_str(word);
        self.0.push(' ');
        self
    }

    fn number(&mut self, number: impl Integer) -> &mut Self {
        self.arg(itoa::Buffer::new().format(number))
    }
}

impl BucketIndex {
    /// The number entry the bucket, if the limiters' first ones have these.
    pub(crate) fn number(self, first_numbers: &[usize]) -> usize {
        first_numbers[self.limiter] + self.bucket
    }
}

/// What the scripts take entry a limiter: the algorithm's name, and what its file says.
fn arguments(limiter: &Limiter, near: Timestamp, call: &mut ScriptArgs) {
    let quota = &limiter.quota;
    call.arg(quota.algorithm().name());
    match quota.algorithm() {
        Algorithm::TokenBucket => {
            call.number(quota.rate()).number(quota.interval());
        }
        Algorithm::Gcra { burst } => {
            call.number(quota.rate()).number(quota.interval()).number(burst);
        }
        Algorithm::LeakyBucket(queue) => {
            call.number(quota.rate()).number(quota.interval()).number(queue.length).number(queue.max_wait);
        }
        Algorithm::SlidingWindow { segments } => {
            call.number(quota.rate()).number(quota.interval()).number(segments);
        }
        Algorithm::FixedWindow(calendar) => {
            call.number(quota.rate());
            for boundary in calendar.span(near).0 {
                call.number(boundary.as_millis());
            }
        }
        Algorithm::Redisson(Sharing::Configure) => {
            call.arg("configure").arg(redisson_mode(limiter.mode)).number(quota.rate()).number(quota.interval());
        }
        Algorithm::Redisson(Sharing::Adopt(mode)) => {
            call.arg("adopt").arg(mode.map_or("", redisson_mode)).arg("").arg("");
        }
        Algorithm::Redisson(Sharing::Library) => {
            call.arg("library").arg("").arg("").arg("");
        }
    }
}

/// Redisson's number entry a mode.
pub(crate) fn redisson_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Overall => "0",
        Mode::PerClient => "1",
    }
}
