//! The law of limiters that are shared with Redisson's clients, held in random turns with one of them.

use deadpool_redis::redis::cmd;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use tidegate::internals::limit::redisson::Sharing;
use tidegate::internals::limit::{Charge, Decision, Quota, Wait};
use tidegate::{Mode, Store};

use crate::foreign::take;
use crate::support::redis::{RedisServer, fresh_name};
use crate::support::redisson::{Peer, member};
use crate::support::{overall, shared};

const NOW: u64 = 1_700_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Ours(u32),
    Peer(u32),
    PeerRelease(u32),
    PeerCounts,
    PeerUpdates(u64, bool),
    Resend,
    LowerCounter(i64),
    OldFormat(usize, u32),
    Lose(Lost),
}

/// What can be evicted, or deleted by an operator.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Hash,
    Counter,
    Log,
    Note,
}

fn life() -> impl Strategy<Value = (u64, u64, Vec<Step>)> {
    (1..=20_u64, 5_000..=9_000_u64).prop_flat_map(|(rate, interval)| {
        let most = u32::try_from(rate).expect("a small rate");
        let lost = prop_oneof![Just(Lost::Hash), Just(Lost::Counter), Just(Lost::Log), Just(Lost::Note)];
        let step = prop_oneof![
            6 => (0..=interval / 3).prop_map(Step::Pass),
            9 => prop_oneof![Just(1), 0..=most + 1].prop_map(Step::Ours),
            9 => prop_oneof![Just(1), 1..=most].prop_map(Step::Peer),
            4 => (1..=most).prop_map(Step::PeerRelease),
            1 => Just(Step::PeerCounts),
            1 => (1..=20_u64, any::<bool>()).prop_map(|(rate, keep)| Step::PeerUpdates(rate, keep)),
            1 => Just(Step::Resend),
            1 => (1..=5_i64).prop_map(Step::LowerCounter),
            1 => (2..4_usize, 1..=most.div_ceil(4)).prop_map(|(format, permits)| Step::OldFormat(format, permits)),
            1 => lost.prop_map(Step::Lose),
        ];
        prop::collection::vec(step, 1..60).prop_map(move |steps| (rate, interval, steps))
    })
}

/// What is in use by the law: what was granted, less what was released, which is always the newest.
#[derive(Clone, Default)]
struct InUse(Vec<(u64, u64)>);

impl InUse {
    fn of(log: &[(Vec<u8>, u64)]) -> Self {
        Self(log.iter().map(|(member, at)| (*at, permits_of(member))).collect())
    }

    fn grant(&mut self, at: u64, permits: u64) {
        self.0.push((at, permits));
        self.0.sort_unstable();
    }

    fn release(&mut self, mut permits: u64, expired: u64) {
        for (_, held) in self.0.iter_mut().rev().filter(|(at, _)| *at > expired) {
            let part = permits.min(*held);
            (*held, permits) = (*held - part, permits - part);
        }
    }

    fn at(&self, expired: u64) -> u64 {
        self.0.iter().filter(|(at, _)| *at > expired).map(|(_, permits)| permits).sum()
    }

    fn oldest(&self) -> u64 {
        self.0.iter().map(|(at, _)| *at).min().unwrap_or(u64::MAX)
    }
}

fn permits_of(member: &[u8]) -> u64 {
    let last = member.last_chunk().expect("permits");
    u32::from_le_bytes(*last).into()
}

/// A limiter that we share with a peer, and what is known of it.
struct Together<'t> {
    store: &'t Store,
    runtime: &'t tokio::runtime::Runtime,
    peer: Peer,
    charge: Charge,
    rate: u64,
    interval: u64,
    now: u64,
    /// By the law, since we last had to believe what we saw.
    by_law: InUse,
    /// The log that our last call left, and what peers have done since.
    since: InUse,
    looked_at: Option<u64>,
    /// The counter has told of every release since, and of nothing else.
    is_told: bool,
    last: Option<(u128, u32, u64)>,
}

impl Together<'_> {
    fn expired(&self) -> u64 {
        self.now - self.interval
    }

    /// Asks for permits ourselves; holds what is there afterwards against the law.
    fn look(&mut self, permits: u32) -> Result<Decision, TestCaseError> {
        self.charge.permits = permits;
        let decision = self.runtime.block_on(take(self.store, self.charge.clone(), self.now));
        if permits == 0 {
            return Ok(decision);
        }
        if decision.granted {
            self.grant(self.now, permits);
        }
        let log = self.peer.log();
        let (live, stored) = (InUse::of(&log).at(self.expired()), InUse::of(&log).at(0));
        prop_assert!(!decision.granted || live <= self.rate, "{} of {} in use", live, self.rate);
        let left = self.rate.cast_signed() - stored.cast_signed();
        prop_assert_eq!(self.peer.counter().unwrap_or(left), left, "the counter is not what the log says");
        // Who looks seldom believes what the counter says of what is released.
        let believes = self.looked_at.is_none_or(|at| at + self.interval / 2 <= self.now);
        if believes {
            self.by_law = InUse::of(&log);
        }
        let lawful = self.by_law.at(self.expired());
        prop_assert!(live >= lawful, "{} in use by the law, {} by the log", lawful, live);
        if !believes && self.is_told && self.since.oldest() > self.expired() {
            prop_assert_eq!(live, self.since.at(self.expired()), "a release is not honoured");
        }
        // Of a limiter that nobody has used there is nothing to note, and while a lowered rate is exceeded nothing is told.
        let is_used = !log.is_empty() || self.peer.counter().is_some();
        (self.since, self.looked_at) = (InUse::of(&log), is_used.then_some(self.now));
        self.is_told = self.peer.counter().is_some_and(|counter| counter >= 0);
        Ok(decision)
    }

    fn ours(&mut self, permits: u32) -> Result<(), TestCaseError> {
        if let Wait::Millis(wait) = self.look(permits)?.wait {
            let now = self.now;
            self.now = now + wait - 1;
            prop_assert!(!self.look(permits)?.granted, "granted before the {} ms told", wait);
            self.now = now + wait;
            prop_assert!(self.look(permits)?.granted, "refused after the {} ms told", wait);
        }
        Ok(())
    }

    fn grant(&mut self, at: u64, permits: u32) {
        self.by_law.grant(at, permits.into());
        self.since.grant(at, permits.into());
    }

    fn release(&mut self, permits: u64) {
        let expired = self.expired();
        self.by_law.release(permits, expired);
        self.since.release(permits, expired);
    }

    /// A peer takes a counter that is not there for a full one: whatever is in use is released.
    fn before_a_peer(&mut self) {
        if self.peer.counter().is_none() {
            self.release(u64::MAX);
        }
    }

    fn peer_acquires(&mut self, random: u128, permits: u32, at: u64) {
        self.before_a_peer();
        let before = self.peer.log();
        if matches!(self.peer.acquire_as(random, permits, at), Ok(None)) {
            let is_new = |(member, _): &&(Vec<u8>, u64)| !before.iter().any(|(known, _)| known == member);
            if self.peer.log().iter().any(|entry| is_new(&entry)) {
                self.grant(at, permits);
            }
        }
    }

    fn step(&mut self, index: usize, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Pass(millis) => self.now += millis,
            Step::Ours(permits) => self.ours(permits)?,
            Step::Peer(permits) => {
                self.last = Some((index as u128, permits, self.now));
                self.peer_acquires(index as u128, permits, self.now);
            }
            Step::PeerRelease(permits) => {
                self.before_a_peer();
                let before = self.peer.counter();
                self.peer.release(permits);
                let raised = before.zip(self.peer.counter()).map_or(0, |(before, after)| after - before);
                self.release(raised.max(0).cast_unsigned());
            }
            Step::PeerCounts => {
                self.before_a_peer();
                self.peer.available(self.now);
            }
            Step::PeerUpdates(rate, keep) => {
                self.peer.update(rate, self.interval, self.now, keep);
                self.rate = rate;
                if !keep {
                    (self.by_law, self.since) = (InUse::default(), InUse::default());
                }
                // A rate that is set twice between two looks may be the same as before, and the counter another; and one below
                // nothing is raised to nothing, which looks like a release.
                (self.looked_at, self.is_told) = (None, false);
            }
            // The entry is written once, whether it was before or is only now; the counter is lowered again.
            Step::Resend => {
                // One that is granted only now, behind what others have taken since, is dated before it: what was released
                // meanwhile may be taken from it.
                let least = self.peer.log().last().map_or(0, |(_, newest)| *newest).max(self.expired() + 1);
                if let Some((random, permits, at)) = self.last.filter(|(_, _, at)| least <= *at) {
                    self.peer_acquires(random, permits, at);
                    self.is_told = false;
                }
            }
            Step::LowerCounter(by) => {
                if let Some(counter) = self.peer.counter() {
                    self.peer.set_counter(counter - by);
                    self.is_told = false;
                }
            }
            Step::OldFormat(format, permits) => {
                let format = ["fI", "Lc0I", "Bc0I/8", "Bc0I/16"][format];
                self.before_a_peer();
                let counter = self.peer.counter().unwrap_or(self.rate.cast_signed());
                if counter >= permits.into() {
                    self.peer.set_counter(counter - i64::from(permits));
                    self.peer.write(&member(format, u8::try_from(index).expect("a short life"), permits), self.now);
                    self.grant(self.now, permits);
                }
            }
            Step::Lose(lost) => self.lose(lost),
        }
        Ok(())
    }

    fn lose(&mut self, lost: Lost) {
        let own = self.peer.script_keys();
        let key = match lost {
            Lost::Hash => own[0].clone(),
            Lost::Counter => self.peer.value(),
            Lost::Log => self.peer.permits(),
            Lost::Note => own[5].clone(),
        };
        cmd("DEL").arg(key).exec(self.peer.redis()).expect("deleted");
        match lost {
            Lost::Hash => {
                let kind = u8::from(self.charge.limiter.mode == Mode::PerClient);
                self.peer.configure(kind, self.rate, self.interval, 0);
            }
            Lost::Log => (self.by_law, self.since) = (InUse::default(), InUse::default()),
            Lost::Counter | Lost::Note => {}
        }
        self.is_told = false;
        if !matches!(lost, Lost::Counter) {
            self.looked_at = None;
        }
    }
}

#[test]
fn together_nothing_is_granted_beyond_the_rate_and_what_peers_release_is_there_once() {
    for client in [None, Some("me")] {
        together(Sharing::Adopt(None), client);
        together(Sharing::Library, client);
    }
}

fn together(sharing: Sharing, client: Option<&str>) {
    let Some(server) = RedisServer::start() else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let store = server.store();
    let config = ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() };
    // Always the same lives: of some hundred thousand, one finds a counter that was lost and made anew, or a call that was
    // sent again behind others, to look like a release (docs/redisson.md).
    let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, seed).run(&life(), |(rate, interval, steps)| {
        let name = fresh_name();
        let mut peer = Peer::new(server.connection(), &name, client.unwrap_or(""));
        peer.configure(client.is_some().into(), rate, interval, 0);
        let mut together = Together {
            store: &store,
            runtime: &runtime,
            peer,
            charge: shared(&name, Quota::adopted(sharing), client, 1),
            rate,
            interval,
            now: NOW,
            by_law: InUse::default(),
            since: InUse::default(),
            looked_at: None,
            is_told: false,
            last: None,
        };
        steps.into_iter().enumerate().try_for_each(|(index, step)| together.step(index, step))
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Merged entries included: a rate, an interval, and steps of time with permits asked for. The clock goes back only in
/// lives in which nothing returns: a refusal removes what has returned in Redis and not in the process, which makes a
/// difference if the clock then says that it has not.
fn lonely_life() -> impl Strategy<Value = (u64, u64, Vec<(i64, u32)>)> {
    let rate = prop_oneof![1..=20_u64, Just(513), 1..=100_000_u64];
    let interval = prop_oneof![5_000..=6_000_u64, Just(86_400_000)];
    (rate, interval, any::<bool>()).prop_flat_map(|(rate, interval, goes_back)| {
        let (length, most) = (interval.cast_signed(), u32::try_from(rate).expect("a small rate"));
        let passes = match goes_back {
            true => prop_oneof![4 => Just(0), 6 => 0..=length / 64, 1 => -2 * length..=0].boxed(),
            false => prop_oneof![4 => Just(0), 6 => 0..=length / 8, 2 => 0..=2 * length].boxed(),
        };
        let permits = prop_oneof![4 => Just(1), 4 => 0..=most.div_ceil(3), 1 => 0..=most + 1];
        prop::collection::vec((passes, permits), 1..60).prop_map(move |steps| (rate, interval, steps))
    })
}

#[test]
fn a_limiter_of_the_library_decides_as_the_embedded_store_does() {
    let Some(server) = RedisServer::start() else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (redis, memory) = (server.store(), Store::memory());
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&lonely_life(), |(rate, interval, steps)| {
        let name = fresh_name();
        Peer::new(server.connection(), &name, "").configure(0, rate, interval, 0);
        let mut now = NOW;
        for (passes, permits) in steps {
            now = now.checked_add_signed(passes).expect("a moment");
            let library = shared(&name, Quota::adopted(Sharing::Library), None, permits);
            let one = runtime.block_on(take(&memory, overall(&name, rate, interval, permits), now));
            let other = runtime.block_on(take(&redis, library, now));
            prop_assert_eq!(one, other, "{} permits after {} ms", permits, passes);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
