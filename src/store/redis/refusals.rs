//! Refusals that are known to hold: what a bucket has refused it refuses until its wait is over, so nobody need be asked.
//!
//! Nothing but the passing of time, which is known, and what somebody gives back can set permits free. What is given back
//! here is forgotten here at once; what other gateways give back is found within a second, after which one request asks
//! again while the others are still refused. What a limiter shared with others refuses is remembered for 100 ms at most, and
//! in the library not at all.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock::Timestamp;
use crate::limit::foreign::Sharing;
use crate::limit::{Algorithm, Charge, ClientId, Decision, Limiter, Outcome, Wait};
use crate::store::Known;

const SHARDS: usize = 64;

/// Refusals that a shard holds at most.
const SHARD: usize = 1_024;

/// After how long a bucket is asked again although its refusal holds, as far as is known here.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How long more permits than a bucket can hold are refused: as long as its rule is in force.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

/// How long what a shared limiter has refused is believed: its other users may release permits, or change its rate.
const OF_SHARED: Duration = Duration::from_millis(100);

/// The refusals of one gateway.
#[derive(Debug)]
pub(super) struct Refusals {
    shards: Box<[Mutex<Shard>]>,
    /// How many there are. Almost always none, and then nobody looks for theirs.
    len: AtomicUsize,
    /// How often anything was given back.
    given_back: AtomicU64,
    hasher: RandomState,
}

type Shard = HashTable<Refusal>;

/// How often anything had been given back when a call was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age(u64);

/// What a bucket said, and until when it says so.
#[derive(Debug)]
struct Refusal {
    hash: u64,
    limiter: Arc<Limiter>,
    client: Option<ClientId>,
    permits: u32,
    decision: Decision,
    /// Redis's clock when it was said.
    said: Timestamp,
    /// When the call was sent that came back with it.
    sent: Instant,
    until: Instant,
    ask_again: Instant,
}

impl Refusals {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, len: AtomicUsize::new(0), given_back: AtomicU64::new(0), hasher: RandomState::new() }
    }

    /// What is known to refuse these charges, and what Redis's clock shows; nothing if somebody has to ask.
    pub(super) fn known(&self, charges: &[Charge]) -> Option<Known> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let (now, mut time) = (Instant::now(), None);
        let mut decisions = Vec::with_capacity(charges.len());
        for charge in charges {
            let known = if charge.shadow { Ok(None) } else { self.of(charge, now) };
            decisions.push(known.ok()?.map(|(present, decision)| {
                time = Some(present);
                decision
            }));
        }
        time.map(|now| Known { now, decisions })
    }

    /// What a bucket is known to say.
    ///
    /// # Errors
    /// It is time to ask it again.
    fn of(&self, charge: &Charge, now: Instant) -> Result<Option<(Timestamp, Decision)>, ()> {
        let hash = self.hash(&charge.limiter, charge.client.as_ref());
        let mut shard = self.shard(hash).lock();
        let Some(refusal) = shard.find_mut(hash, |refusal| refusal.is_of(&charge.limiter, charge.client.as_ref()))
        else {
            return Ok(None);
        };
        if !refusal.refuses(charge.permits, now) {
            return Ok(None);
        }
        if refusal.ask_again <= now {
            refusal.ask_again = now + ASK_AGAIN;
            return Err(());
        }
        Ok(Some(refusal.at(now)))
    }

    /// How old what is known now is; to be asked before a call is sent.
    pub(super) fn age(&self) -> Age {
        Age(self.given_back.load(Ordering::SeqCst))
    }

    /// Remembers what a bucket said to a call that was sent then, unless something was given back since.
    pub(super) fn remember(
        &self,
        (limiter, client, permits, decision): (&Arc<Limiter>, Option<&ClientId>, u32, Decision),
        said: Timestamp,
        sent: Instant,
        age: Age,
    ) {
        let Some(lasts) = lasts(limiter, &decision) else { return };
        let hash = self.hash(limiter, client);
        let mut shard = self.shard(hash).lock();
        let known = shard.find(hash, |refusal| refusal.is_of(limiter, client));
        let known = known.map(|refusal| (refusal.permits, refusal.until));
        if age != self.age() || !self.makes_room(&mut shard, known, permits, sent) {
            return;
        }
        let (until, ask_again) = (sent + lasts, sent + ASK_AGAIN);
        let known = shard.entry(hash, |refusal| refusal.is_of(limiter, client), |refusal| refusal.hash);
        let (limiter, client) = (Arc::clone(limiter), client.cloned());
        let refusal = Refusal { hash, limiter, client, permits, decision, said, sent, until, ask_again };
        if let Entry::Vacant(_) = known {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        known.insert(refusal);
    }

    /// Is there room for a bucket's refusal? One of fewer permits says more than one of more.
    fn makes_room(&self, shard: &mut Shard, known: Option<(u32, Instant)>, permits: u32, now: Instant) -> bool {
        if let Some((least, until)) = known {
            return least >= permits || until <= now;
        }
        if shard.len() >= SHARD {
            let before = shard.len();
            shard.retain(|refusal| refusal.until > now);
            self.len.fetch_sub(before - shard.len(), Ordering::Relaxed);
        }
        shard.len() < SHARD
    }

    /// What was asked since then in spite of all is no longer known to be refused if it was granted, or nobody knows. What
    /// came back with a call that was sent later still is.
    pub(super) fn answered(&self, charges: &[Charge], since: Instant, outcome: Option<&Outcome>) {
        if self.len.load(Ordering::Relaxed) == 0 {
            return;
        }
        let refused = |index: usize| outcome.is_some_and(|outcome| !outcome.decisions[index].granted);
        for (_, charge) in charges.iter().enumerate().filter(|(index, _)| !refused(*index)) {
            self.remove_if(charge, |refusal| refusal.permits <= charge.permits && refusal.sent <= since);
        }
    }

    /// Something is about to be given back, or was: what was said before means nothing.
    pub(super) fn forget<'c>(&self, charges: impl Iterator<Item = &'c Charge>) {
        self.given_back.fetch_add(1, Ordering::SeqCst);
        charges.for_each(|charge| self.remove_if(charge, |_| true));
    }

    fn remove_if(&self, charge: &Charge, which: impl Fn(&Refusal) -> bool) {
        let hash = self.hash(&charge.limiter, charge.client.as_ref());
        let mut shard = self.shard(hash).lock();
        let is_it = |refusal: &Refusal| refusal.is_of(&charge.limiter, charge.client.as_ref()) && which(refusal);
        if let Ok(known) = shard.find_entry(hash, is_it) {
            known.remove();
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// In one piece each, which is faster than field by field. A limiter is known by where it is: as long as one of its
    /// refusals is remembered, so is the limiter.
    fn hash(&self, limiter: &Arc<Limiter>, client: Option<&ClientId>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_usize(Arc::as_ptr(limiter).addr());
        match client {
            None => {}
            Some(ClientId::Address(IpNet::V4(network))) => hasher.write_u32(network.addr().to_bits()),
            Some(ClientId::Address(IpNet::V6(network))) => hasher.write_u128(network.addr().to_bits()),
            Some(ClientId::Value(value)) => hasher.write(value),
            Some(ClientId::Instance(id)) => hasher.write(id.as_bytes()),
        }
        hasher.finish()
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[usize::from(hash.to_le_bytes()[0]) % SHARDS]
    }
}

/// How long a refusal holds after its call was sent. Redis's clock is read in whole milliseconds, of which the present one
/// had begun already.
fn lasts(limiter: &Limiter, decision: &Decision) -> Option<Duration> {
    let lasts = match decision.wait {
        Wait::Now | Wait::Millis(0 | 1) => return None,
        Wait::Millis(wait) => Duration::from_millis(wait - 1),
        Wait::Never => NEVER,
    };
    match limiter.quota.algorithm() {
        Algorithm::Foreign(Sharing::Library) => None,
        Algorithm::Foreign(_) => Some(lasts.min(OF_SHARED)),
        _ => Some(lasts),
    }
}

impl Refusal {
    fn is_of(&self, limiter: &Arc<Limiter>, client: Option<&ClientId>) -> bool {
        Arc::ptr_eq(&self.limiter, limiter) && self.client.as_ref() == client
    }

    fn refuses(&self, permits: u32, now: Instant) -> bool {
        permits >= self.permits && now < self.until
    }

    /// What Redis's clock shows now, and what the bucket says.
    fn at(&self, now: Instant) -> (Timestamp, Decision) {
        let passed = u64::try_from((now - self.sent).as_millis()).unwrap_or(u64::MAX);
        let wait = match self.decision.wait {
            Wait::Millis(wait) => Wait::Millis(wait.saturating_sub(passed).max(1)),
            other => other,
        };
        let reset = self.decision.reset.saturating_sub(passed);
        (self.said.plus_millis(passed), Decision { wait, reset, ..self.decision })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Mode, Quota};

    fn limiter(algorithm: Algorithm) -> Arc<Limiter> {
        let quota = Quota::new(10, 60_000, algorithm).expect("a quota");
        Arc::new(Limiter { name: "lim".into(), mode: Mode::Overall, quota })
    }

    fn charge(limiter: &Arc<Limiter>, permits: u32) -> Charge {
        Charge { limiter: Arc::clone(limiter), client: None, permits, shadow: false }
    }

    fn refused(wait: Wait) -> Decision {
        Decision { granted: false, remaining: 2, wait, reset: 9_000, delay: 0, overflow: false }
    }

    fn refuse(refusals: &Refusals, limiter: &Arc<Limiter>, permits: u32, wait: Wait) {
        let said = Timestamp::from_millis(1_000);
        refusals.remember((limiter, None, permits, refused(wait)), said, Instant::now(), refusals.age());
    }

    fn says(refusals: &Refusals, limiter: &Arc<Limiter>, permits: u32) -> Option<(u64, Decision)> {
        let known = refusals.known(&[charge(limiter, permits)])?;
        Some((known.now.as_millis(), known.decisions[0]?))
    }

    async fn pass(millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_holds_for_its_cost_and_more_until_a_millisecond_before_its_wait_is_over() {
        let (refusals, limiter) = (Refusals::new(), limiter(Algorithm::TokenBucket));
        refuse(&refusals, &limiter, 3, Wait::Millis(700));
        pass(200).await;
        let (now, decision) = says(&refusals, &limiter, 3).expect("a refusal");
        assert_eq!((now, decision.wait, decision.reset), (1_200, Wait::Millis(500), 8_800));
        assert!(says(&refusals, &limiter, 4).is_some() && says(&refusals, &limiter, 2).is_none());
        pass(498).await;
        assert!(says(&refusals, &limiter, 3).is_some());
        pass(1).await;
        assert!(says(&refusals, &limiter, 3).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_a_second_asks_again_and_what_it_hears_counts() {
        let (refusals, limiter) = (Refusals::new(), limiter(Algorithm::TokenBucket));
        refuse(&refusals, &limiter, 1, Wait::Millis(60_000));
        for _ in 0..3 {
            assert!(says(&refusals, &limiter, 1).is_some());
            pass(1_000).await;
            assert!(says(&refusals, &limiter, 1).is_none(), "nobody asks");
            assert!(says(&refusals, &limiter, 1).is_some(), "two ask");
        }
        let charges = [charge(&limiter, 1)];
        let granted = Decision { granted: true, wait: Wait::Now, ..refused(Wait::Now) };
        let granted = Outcome::decided(Timestamp::default(), vec![granted], true);
        refusals.answered(&charges, Instant::now(), Some(&granted));
        assert!(says(&refusals, &limiter, 1).is_none());
        let before = Instant::now();
        pass(1).await;
        refuse(&refusals, &limiter, 1, Wait::Never);
        refusals.answered(&charges, before, Some(&granted));
        assert!(says(&refusals, &limiter, 1).is_some(), "who took the last permit spoils what the next was told");
        refusals.answered(&charges, Instant::now(), None);
        assert!(says(&refusals, &limiter, 1).is_none(), "a store that fails is believed to refuse");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_back_is_known_at_once_and_so_is_another_rule() {
        let (refusals, limiter) = (Refusals::new(), limiter(Algorithm::TokenBucket));
        let before = refusals.age();
        refuse(&refusals, &limiter, 1, Wait::Millis(5_000));
        refusals.forget([charge(&limiter, 1)].iter());
        assert!(says(&refusals, &limiter, 1).is_none());
        // Asked before, answered after.
        let late = (&limiter, None, 1, refused(Wait::Millis(5_000)));
        refusals.remember(late, Timestamp::default(), Instant::now(), before);
        assert!(says(&refusals, &limiter, 1).is_none());
        refuse(&refusals, &limiter, 1, Wait::Millis(5_000));
        let changed = Arc::new(Limiter { name: "lim".into(), mode: Mode::Overall, quota: limiter.quota });
        assert!(says(&refusals, &changed, 1).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn shared_limiters_are_remembered_for_a_moment_and_shadows_never_refuse() {
        let refusals = Refusals::new();
        let shared = limiter(Algorithm::Foreign(Sharing::Configure));
        refuse(&refusals, &shared, 1, Wait::Millis(5_000));
        assert!(says(&refusals, &shared, 1).is_some());
        pass(100).await;
        assert!(says(&refusals, &shared, 1).is_none());
        let library = limiter(Algorithm::Foreign(Sharing::Library));
        refuse(&refusals, &library, 1, Wait::Millis(5_000));
        assert!(says(&refusals, &library, 1).is_none());
        let own = limiter(Algorithm::TokenBucket);
        refuse(&refusals, &own, 1, Wait::Millis(5_000));
        assert!(refusals.known(&[Charge { shadow: true, ..charge(&own, 1) }]).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_clients_is_remembered_up_to_a_bound_and_room_is_made_of_what_is_over() {
        let (refusals, limiter) = (Refusals::new(), limiter(Algorithm::TokenBucket));
        let refuse = |client: u32, wait| {
            let client = ClientId::Value(client.to_be_bytes().into());
            let refused = (&limiter, Some(&client), 1, refused(Wait::Millis(wait)));
            refusals.remember(refused, Timestamp::default(), Instant::now(), refusals.age());
        };
        (0..200_000).for_each(|client| refuse(client, 10_000));
        assert_eq!(refusals.len.load(Ordering::Relaxed), SHARDS * SHARD);
        pass(10_000).await;
        (0..100).for_each(|client| refuse(1_000_000 + client, 10_000));
        let len: usize = refusals.shards.iter().map(|shard| shard.lock().len()).sum();
        assert!((100..SHARDS * SHARD).contains(&len) && len == refusals.len.load(Ordering::Relaxed));
    }
}
