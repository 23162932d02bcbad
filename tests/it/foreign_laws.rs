//! The law of limiters that are shared with Redisson's clients, held in random turns with one of them.

use proptest::prelude::*;
use tidegate::limit::foreign::Sharing;
use tidegate::limit::{Quota, Wait};
use tidegate::store::Store;

use crate::foreign::take;
use crate::support::redis::{RedisServer, fresh_name};
use crate::support::redisson::{Peer, member};
use crate::support::{overall, shared};

const NOW: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Ours(u32),
    Peer(u32),
    PeerRelease(u32),
    Resend,
    Tamper(i64),
    OldFormat(usize, u32),
}

fn life() -> impl Strategy<Value = (u32, u64, Vec<Step>)> {
    (1..=20_u32, 5_000..=9_000_u64).prop_flat_map(|(rate, interval)| {
        let step = prop_oneof![
            4 => (0..=interval / 3).prop_map(Step::Pass),
            6 => prop_oneof![Just(1), 0..=rate + 1].prop_map(Step::Ours),
            6 => prop_oneof![Just(1), 1..=rate].prop_map(Step::Peer),
            1 => (1..=rate).prop_map(Step::PeerRelease),
            1 => Just(Step::Resend),
            1 => (-5..=2 * i64::from(rate)).prop_map(Step::Tamper),
            1 => (2..4_usize, 1..=rate.div_ceil(4)).prop_map(|(format, permits)| Step::OldFormat(format, permits)),
        ];
        prop::collection::vec(step, 1..60).prop_map(move |steps| (rate, interval, steps))
    })
}

/// What was granted, by whomever, and whether the counter has been touched since our last call.
#[derive(Default)]
struct Books {
    grants: Vec<(u64, u64)>,
    touched: bool,
}

impl Books {
    fn in_window(&self, now: u64, interval: u64) -> u64 {
        self.grants.iter().filter(|(at, _)| at + interval > now).map(|(_, permits)| permits).sum()
    }
}

#[test]
fn together_we_never_exceed_the_rate_and_every_wait_of_ours_is_exact() {
    together(Sharing::Adopt(None));
    together(Sharing::Library);
}

fn together(sharing: Sharing) {
    let Some(server) = RedisServer::start() else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let store = server.store();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let outcome = runner.run(&life(), |(rate, interval, steps)| {
        let name = fresh_name();
        let mut peer = Peer::new(server.connection(), &name, "");
        peer.configure(0, rate.into(), interval, 0);
        let mut books = Books::default();
        let mut now = NOW;
        let mut last = None;
        let ours =
            |permits, now| runtime.block_on(take(&store, shared(&name, Quota::adopted(sharing), None, permits), now));
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Step::Pass(millis) => now += millis,
                Step::Ours(permits) => {
                    let decision = ours(permits, now);
                    let mut granted = decision.granted;
                    if let Wait::Millis(wait) = decision.wait {
                        prop_assert!(!ours(permits, now + wait - 1).granted, "granted before the {} ms told", wait);
                        now += wait;
                        granted = ours(permits, now).granted;
                        prop_assert!(granted, "refused after the {} ms told", wait);
                    }
                    if granted {
                        books.grants.push((now, permits.into()));
                    }
                    let used = books.in_window(now, interval);
                    prop_assert!(!granted || used <= rate.into() || permits == 0, "{} of {} in use", used, rate);
                    if permits > 0 && permits <= rate {
                        books.touched = false;
                        let left = i64::from(rate) - i64::try_from(used).expect("small");
                        prop_assert_eq!(peer.counter().unwrap_or(left), left, "the counter was not healed");
                    }
                }
                Step::Peer(permits) => {
                    last = Some((index as u128, permits, now));
                    let answer = peer.acquire_as(index as u128, permits, now);
                    if matches!(answer, Ok(None)) {
                        books.grants.push((now, permits.into()));
                        let used = books.in_window(now, interval);
                        prop_assert!(books.touched || used <= rate.into(), "{} of {} in use by a peer's", used, rate);
                    }
                }
                Step::PeerRelease(permits) => {
                    peer.release(permits);
                    books.touched = true;
                }
                Step::Resend => {
                    // The entry is written once, whether it was before or is only now; the counter is lowered again.
                    let Some((random, permits, at)) = last else { continue };
                    let before = peer.log().len();
                    books.touched = true;
                    if matches!(peer.acquire_as(random, permits, at), Ok(None)) && peer.log().len() > before {
                        books.grants.push((at, permits.into()));
                    }
                }
                Step::Tamper(counter) => {
                    peer.tamper(counter);
                    books.touched = true;
                }
                Step::OldFormat(format, permits) => {
                    let format = ["fI", "Lc0I", "Bc0I/8", "Bc0I/16"][format];
                    peer.write(&member(format, u8::try_from(index).expect("a short life"), permits), now);
                    books.grants.push((now, permits.into()));
                    books.touched = true;
                }
            }
        }
        Ok(())
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
    let outcome = proptest::test_runner::TestRunner::new(config).run(&lonely_life(), |(rate, interval, steps)| {
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
