//! Requests of several gateways that wait for a bucket in Redis: their order, and their calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidegate::internals::ReplayStore;
use tidegate::{Clock, ManualClock, Timestamp};
use tidegate_limit::{Algorithm, Quota, Wait};
use tidegate_rules::charge::{Charge, ChargeKind, QueueStart, Turn};
use tidegate_store::Memory;
use tokio::time::sleep;

use crate::laws::{START, config};
use crate::support::charge_of;
use crate::support::gateway::{TestGateway, get};
use crate::support::proxy::FaultyProxy;
use crate::support::redis::{RedisServer, fresh_name};
use crate::support::wire::raw::Raw;

/// The milliseconds for which a ticket is valid after its permits have returned, as in `lua/waiting.lua`.
const GRACE: u64 = 250;

fn rules(url: &str, limits: &str) -> String {
    format!(
        "store: {{ url: '{url}', timeout: 1s }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes: [{{ name: all, match: {{}}, upstream: echo, limits: [{limits}] }}]"
    )
}

/// The numbers of admitted and rejected requests.
#[derive(Default)]
struct Counts([AtomicU64; 2]);

impl Counts {
    fn get(&self) -> [u64; 2] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// Lets clients of a gateway send requests one after the other until they have `ended`.
fn load(gateway: &TestGateway, clients: usize, ended: &Arc<AtomicBool>) -> Arc<Counts> {
    let counts = Arc::new(Counts::default());
    for _ in 0..clients {
        let (address, counts, ended) = (gateway.address, Arc::clone(&counts), Arc::clone(ended));
        tokio::spawn(async move {
            let mut client = Raw::connect(address).await;
            while !ended.load(Ordering::Relaxed) {
                let is_rejected = get(&mut client, "/", "").await.status() != 200;
                counts.0[usize::from(is_rejected)].fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    counts
}

/// Regression test: a gateway whose requests arrived later, or whose Redis was nearer, took all permits.
#[tokio::test]
async fn gateways_share_permits_in_the_order_of_arrival() {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    // Fewer permits return together than requests wait, so that the order of arrival decides about each.
    for (algorithm, delay, most) in [("gcra, burst: 5", 6, 13), ("token_bucket", 0, 15), ("token_bucket", 6, 15)] {
        proxy.delay(delay, delay);
        let name = format!("{}-{delay}", algorithm.split(',').next().expect("a name"));
        let limit = format!(
            "{{ name: '{name}', mode: OVERALL, rate: 20, interval: 500ms, algorithm: {algorithm}, max_wait: 1m }}"
        );
        let near = TestGateway::start(&rules(&redis.url(), &limit));
        let far = TestGateway::start(&rules(&format!("redis://127.0.0.1:{}", proxy.port), &limit));
        let ended = Arc::new(AtomicBool::new(false));
        let counts = [load(&near, 12, &ended), load(&far, 12, &ended)];
        // All permits of the first second are free.
        sleep(Duration::from_millis(1_200)).await;
        let admitted = || counts.each_ref().map(|counts| counts.get()[0]);
        let is_fair = |[near, far]: &[u64; 2]| near + far >= 100 && near.max(far) * 10 <= most * near.min(far);
        let mut rounds = Vec::new();
        while !rounds.last().is_some_and(is_fair) {
            // On a busy machine, a gateway may use its permits too late.
            assert!(rounds.len() < 5, "{name}: {rounds:?} of 120 near and far from Redis");
            let before = admitted();
            sleep(Duration::from_secs(3)).await;
            let after = admitted();
            rounds.push([after[0] - before[0], after[1] - before[1]]);
        }
        ended.store(true, Ordering::Relaxed);
    }
}

/// A gateway that ends while its request waits delays others by no more than the grace.
#[tokio::test]
async fn ticket_of_a_gateway_that_ended_lapses() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.store_with_timeout(Duration::from_secs(5));
    let quota = Quota::new(1, 1_000, Algorithm::TokenBucket).expect("a quota");
    let charge = |turn| Charge { turn, ..charge_of("{tidegate:lapse}:l", None, quota, 1) };
    let first = |queue, millis| charge(Turn::First(Box::new(QueueStart { queue, millis, ages: vec![0] })));
    assert!(store.take(&[charge(Turn::Last)]).await.expect("a decision").granted());
    assert!(!store.take(&[first(1, 500)]).await.expect("a decision").granted());
    let mut waits = Vec::new();
    loop {
        let outcome = store.take(&[first(2, 0)]).await.expect("a decision");
        let Wait::Millis(wait) = outcome.decisions[0].wait else { break };
        waits.push(wait);
        sleep(Duration::from_millis(wait)).await;
    }
    // By the clock of Redis, since a busy machine adds pauses.
    assert!(waits.len() <= 3 && waits.iter().sum::<u64>() <= 1_000 + GRACE, "{waits:?}");
    // Its own grant has removed the ticket.
    sleep(Duration::from_millis(1_001)).await;
    assert!(store.take(&[charge(Turn::Last)]).await.expect("a decision").granted());
}

/// Regression test: each request that a full queue rejected, and each waiting client, asked Redis.
#[tokio::test]
async fn waiting_and_rejected_requests_ask_redis_rarely() {
    let Some(redis) = RedisServer::start() else { return };
    let limit = "{ name: l, mode: OVERALL, rate: 10, interval: 1s, max_wait: 1m, queue: 250 }";
    let gateway = TestGateway::start(&rules(&redis.url(), limit));
    let ended = Arc::new(AtomicBool::new(false));
    let counts = load(&gateway, 260, &ended);
    sleep(Duration::from_millis(1_500)).await;
    let (calls, before) = (redis.decision_calls(), counts.get());
    sleep(Duration::from_secs(2)).await;
    let (calls, after) = (redis.decision_calls() - calls, counts.get());
    let [admitted, rejected] = [after[0] - before[0], after[1] - before[1]];
    assert!(rejected > 100, "{rejected}");
    assert!(calls <= 3 * admitted + 20, "{calls} calls for {admitted} admitted requests");
}

/// A step: time passes, and a request asks: a new one, or the first of a queue, which may leave.
#[derive(Clone, Debug)]
struct Step {
    passes: u64,
    queue: Option<u64>,
    permits: u32,
    /// How much later than the first the other requests of the queue joined it.
    others: Vec<u32>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let passes = prop_oneof![3 => Just(0), 6 => 0..=400_u64, 1 => 0..=3_000_u64];
    let queue = prop_oneof![1 => Just(None), 3 => (1..=3_u64).prop_map(Some)];
    let permits = prop_oneof![6 => Just(1), 3 => 2..=3_u32, 1 => Just(0)];
    let others = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(0..=400_u32, 1..3)];
    let step = (passes, queue, permits, others).prop_map(|(passes, queue, permits, mut others)| {
        others.sort_unstable();
        Step { passes, queue, permits, others }
    });
    prop::collection::vec(step, 1..40)
}

/// A request in a ticket of the model: its queue, since when it waits, its permits, and when the ticket ends.
type Ticket = (u64, u64, u32, u64);

/// Redis decides as this model does: the embedded store, where a request needs the permits of all tickets before it, too.
#[test]
fn tickets_are_decided_like_the_model() {
    let Some(server) = RedisServer::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let redis: ReplayStore = server.replay_store();
    let algorithms = [Algorithm::TokenBucket, Algorithm::Gcra { burst: 3 }, Algorithm::SlidingWindow { segments: 4 }];
    let outcome = config(96).run(&(0..algorithms.len(), steps()), |(algorithm, steps)| {
        let clock = Arc::new(ManualClock::default());
        let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>, None);
        let quota = Quota::new(3, 1_000, algorithms[algorithm]).expect("a quota");
        let charge = charge_of(&fresh_name(), None, quota, 1);
        let (mut now, mut tickets, mut since) = (START, Vec::<Ticket>::new(), [START; 4]);
        for Step { passes, queue, permits, others } in steps {
            now += passes;
            clock.set(Timestamp::from_millis(now));
            tickets.retain(|(.., ends)| now < *ends);
            let index = usize::try_from(queue.unwrap_or_default()).expect("a queue");
            let waits_since = if queue.is_some() { since[index] } else { u64::MAX };
            let own = queue.unwrap_or(u64::MAX);
            let is_before = |(of, since, ..): &&Ticket| *of != own && (*since, *of) < (waits_since, own);
            let before: u32 = tickets.iter().filter(is_before).map(|(_, _, permits, _)| permits).sum();
            let checks = Charge { permits: permits + before, kind: ChargeKind::Check, ..charge.clone() };
            let is_granted = permits == 0
                || permits + before <= 3 && memory.take(std::slice::from_ref(&checks)).expect("a decision").granted();
            let ages: Vec<u32> = std::iter::once(0).chain(others).collect();
            let start = |queue| QueueStart { queue, millis: now - since[index], ages: ages.clone() };
            let turn = queue.map_or(Turn::Last, |queue| Turn::First(Box::new(start(queue))));
            let asked = Charge { turn, permits, ..charge.clone() };
            let outcome = runtime.block_on(redis.take_at(&[asked], Timestamp::from_millis(now))).expect("a decision");
            prop_assert_eq!(outcome.granted(), is_granted, "{:?} before {}", tickets, permits);
            tickets.retain(|(of, ..)| *of != own);
            let mut put = |ages: &[u32], ends| {
                let request = |age: &u32| (own, since[index] + u64::from(*age), permits, ends);
                tickets.extend(ages.iter().filter(|_| queue.is_some() && permits > 0).map(request));
            };
            if is_granted {
                put(&ages[1..], now + GRACE);
                memory.take(&[Charge { permits, ..charge.clone() }]).expect("a decision");
                since[index] = now;
                continue;
            }
            let Wait::Millis(wait) = outcome.decisions[0].wait else { panic!("{outcome:?}") };
            prop_assert!(wait > 0);
            if before == 0 {
                prop_assert_eq!(memory.take(&[checks]).expect("a decision").decisions[0].wait, Wait::Millis(wait));
            }
            put(&ages, now + wait + GRACE);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
