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
    limiters: Vec<OfLimiter>,
    len: usize,
}

/// Where a bucket is in a call: its limiter among the limiters, and itself among the limiter's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketIndex {
    limiter: usize,
    bucket: usize,
}

/// What a request asks of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AskedLimit {
    pub(crate) bucket: BucketIndex,
    pub(crate) shadow: bool,
    pub(crate) permits: u32,
}

#[derive(Debug)]
struct OfLimiter {
    limiter: Arc<Limiter>,
    clients: Vec<Option<ClientId>>,
    index: HashMap<Option<ClientId>, usize>,
}

impl Buckets {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The index of a charge's bucket, which is added if it is new.
    pub(crate) fn index(&mut self, charge: &Charge) -> BucketIndex {
        let limiter = self.limiter(&charge.limiter);
        let of = &mut self.limiters[limiter];
        // One that all share, or one client's that is asked for many times in a row.
        let next = of.clients.len();
        let bucket = match of.clients.last() {
            Some(last) if *last == charge.client => next - 1,
            _ => *of.index.entry(charge.client.clone()).or_insert(next),
        };
        if bucket == next {
            of.clients.push(charge.client.clone());
            self.len += 1;
        }
        BucketIndex { limiter, bucket }
    }

    /// Adds a charge's bucket, whatever was asked of it before.
    pub(crate) fn add(&mut self, charge: &Charge) -> BucketIndex {
        let limiter = self.limiter(&charge.limiter);
        let of = &mut self.limiters[limiter];
        of.clients.push(charge.client.clone());
        self.len += 1;
        BucketIndex { limiter, bucket: of.clients.len() - 1 }
    }

    /// Is one of these limiters here under another rule? The two would not see what the other takes.
    pub(crate) fn contradict(&self, charges: &[Charge]) -> bool {
        let other = |one: &Limiter, charge: &Charge| one.name == charge.limiter.name && *one != *charge.limiter;
        let known = |charge: &Charge| self.limiters.iter().any(|of| Arc::ptr_eq(&of.limiter, &charge.limiter));
        charges.iter().any(|charge| !known(charge) && self.limiters.iter().any(|of| other(&of.limiter, charge)))
    }

    fn limiter(&mut self, limiter: &Arc<Limiter>) -> usize {
        let is_it = |of: &OfLimiter| Arc::ptr_eq(&of.limiter, limiter);
        let same = |of: &OfLimiter| *of.limiter == **limiter;
        let known = self.limiters.iter().position(is_it).or_else(|| self.limiters.iter().position(same));
        known.unwrap_or_else(|| {
            let (clients, index) = (Vec::new(), HashMap::new());
            self.limiters.push(OfLimiter { limiter: Arc::clone(limiter), clients, index });
            self.limiters.len() - 1
        })
    }

    /// The algorithms of all limiters.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = Algorithm> {
        self.limiters.iter().map(|of| of.limiter.quota.algorithm())
    }

    /// The number of the first bucket of each limiter.
    pub(crate) fn firsts(&self) -> Vec<usize> {
        let mut next = 1;
        let first = |of: &OfLimiter| {
            let first = next;
            next += of.clients.len();
            first
        };
        self.limiters.iter().map(first).collect()
    }

    /// How many keys they have.
    pub(crate) fn number_of_keys(&self) -> usize {
        let keys_of = |of: &OfLimiter| keys::count(of.limiter.quota.algorithm(), of.clients.len());
        self.limiters.iter().map(keys_of).sum()
    }

    /// Shows `each` their keys, in the order in which scripts take them.
    pub(crate) fn each_key(&self, secret: &KeySecret, mut each: impl FnMut(&str)) {
        let mut key = String::with_capacity(128);
        for of in &self.limiters {
            keys::each(&of.limiter, &of.clients, secret, &mut key, &mut each);
        }
    }

    /// What scripts take of each limiter, as words that each end with a space. Those by the calendar are sent the
    /// boundaries around `near`.
    pub(crate) fn limiters(&self, near: Timestamp) -> String {
        let mut words = Words(String::with_capacity(40 * self.limiters.len()));
        for of in &self.limiters {
            arguments(&of.limiter, near, &mut words);
            words.number(of.clients.len());
        }
        words.0
    }
}

/// Words that each end with a space.
struct Words(String);

impl Words {
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
    /// The number of the bucket, if the limiters' first ones have these.
    pub(crate) fn number(self, firsts: &[usize]) -> usize {
        firsts[self.limiter] + self.bucket
    }
}

/// What the scripts take of a limiter: the algorithm's name, and what its file says.
fn arguments(limiter: &Limiter, near: Timestamp, call: &mut Words) {
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
            call.arg("configure").arg(kind(limiter.mode)).number(quota.rate()).number(quota.interval());
        }
        Algorithm::Redisson(Sharing::Adopt(mode)) => {
            call.arg("adopt").arg(mode.map_or("", kind)).arg("").arg("");
        }
        Algorithm::Redisson(Sharing::Library) => {
            call.arg("library").arg("").arg("").arg("");
        }
    }
}

/// Redisson's number of a mode.
pub(crate) fn kind(mode: Mode) -> &'static str {
    match mode {
        Mode::Overall => "0",
        Mode::PerClient => "1",
    }
}
