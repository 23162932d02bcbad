//! Shared limiters under load: a peer dates a grant before its call is queued, and many grants have the same time.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tidegate_limit::Quota;
use tidegate_limit::redisson::Sharing;

use crate::redisson::take;
use crate::support::redis::{RedisServer, fresh_name};
use crate::support::redisson::Peer;
use crate::support::{case_count, shared};

const NOW: u64 = 1_700_000_000_000;
const INTERVAL: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    /// A call of the store for these permits.
    Ours(Sharing, u32),
    /// A call of a peer that was queued for `late` milliseconds.
    Peer {
        permits: u32,
        late: u64,
    },
}

fn history() -> impl Strategy<Value = (u64, usize, Vec<Step>)> {
    (prop_oneof![Just(40_u64), 513..=3_000_u64], prop_oneof![3 => Just(0), 1 => Just(600_usize)]).prop_flat_map(
        |(rate, before)| {
            let most = u32::try_from(rate / 12).expect("a small rate");
            let sharing = prop_oneof![Just(Sharing::Library), Just(Sharing::Adopt(None))];
            let step = prop_oneof![
                4 => prop_oneof![8 => 0..=2_u64, 1 => 0..=INTERVAL].prop_map(Step::Pass),
                6 => (sharing, 1..=most).prop_map(|(sharing, permits)| Step::Ours(sharing, permits)),
                6 => (1..=most, 0..=4_u64).prop_map(|(permits, late)| Step::Peer { permits, late }),
            ];
            prop::collection::vec(step, 1..120).prop_map(move |steps| (rate, before, steps))
        },
    )
}

/// Regression test: a grant that was not counted, or counted twice, looked like a release, and its permits were granted
/// again.
#[test]
fn grants_count_in_any_order_of_peer_calls() {
    let Some(server) = RedisServer::start() else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let store = server.replay_store();
    let config = ProptestConfig { cases: case_count(128), failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&history(), |(rate, before, steps)| {
        let name = fresh_name();
        let mut peer = Peer::new(server.connection(), &name, "");
        peer.configure(0, rate, INTERVAL, 0);
        let (mut now, mut grants) = (NOW, Vec::new());
        for _ in 0..before {
            if peer.acquire(1, now).is_none() {
                grants.push((now, 1));
            }
        }
        for step in steps {
            match step {
                Step::Pass(millis) => now += millis,
                Step::Peer { permits, late } => {
                    if peer.acquire(permits, now - late).is_none() {
                        grants.push((now - late, u64::from(permits)));
                    }
                }
                Step::Ours(sharing, permits) => {
                    let charge = shared(&name, Quota::adopted(sharing), None, permits);
                    let decision = runtime.block_on(take(&store, charge, now));
                    if decision.granted {
                        grants.push((now, u64::from(permits)));
                    }
                    let in_use: u64 = grants.iter().filter(|(at, _)| *at + INTERVAL > now).map(|grant| grant.1).sum();
                    prop_assert!(!decision.granted || in_use <= rate, "{} of {} in use", in_use, rate);
                    let log = peer.log().into_iter();
                    let stored: Vec<(u64, u64)> = log.map(|(member, at)| (at, permits_of(&member))).collect();
                    let left = rate.cast_signed() - stored.iter().map(|entry| entry.1).sum::<u64>().cast_signed();
                    prop_assert_eq!(peer.counter().unwrap_or(left), left, "the counter differs from the log");
                    let live: u64 = stored.iter().filter(|(at, _)| *at + INTERVAL > now).map(|entry| entry.1).sum();
                    prop_assert!(live >= in_use, "{} in use, {} in the log", in_use, live);
                }
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns the permits of an entry.
fn permits_of(member: &[u8]) -> u64 {
    u32::from_le_bytes(*member.last_chunk().expect("permits")).into()
}
