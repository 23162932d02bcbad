//! Streams that begin in one window and end in the next one.

use serde_json::json;
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Quota};
use tidegate_rules::charge::{Charge, ChargeKind, OnLost, ReservationId};

use super::model::{INPUT, Model};
use super::{ask, patient, until_remaining};
use crate::support::gateway::TestGateway;
use crate::support::redis::{RedisServer, fresh_name};
use crate::support::wire::until;
use crate::support::{charge_of, replay_memory};

const BUDGET: u64 = 1_000;

/// A midnight in Rome, in summer.
const MIDNIGHT: u64 = 1_751_320_800_000;

/// The bound of a stream, and the tokens that it sends in each second.
const BOUND: u32 = 100;
const TOKENS: u64 = 3;

/// The seconds of a stream.
const SECONDS: u64 = 20;

/// A stream, and when it began.
struct Stream {
    id: ReservationId,
    begun: u64,
}

async fn take(store: &ReplayStore, charge: &Charge, kind: ChargeKind, permits: u32, now: u64) -> bool {
    let charge = Charge { kind, permits, ..charge.clone() };
    store.take_at(&[charge], Timestamp::from_millis(now)).await.expect("a decision").granted()
}

/// Runs streams over midnight: in each second, as many begin as the budget allows. Returns the tokens sent before and after.
async fn run(store: &ReplayStore) -> [u64; 2] {
    let day = Algorithm::FixedWindow(Calendar::new(Unit::Day, "Europe/Rome").expect("a zone"));
    let charge = charge_of(&fresh_name(), None, Quota::new(BUDGET, 86_400_000, day).expect("a quota"), 0);
    let limiter = charge.limiter.clone_whole().with_budget(OnLost::Charge);
    let charge = Charge { limiter: limiter.into(), ..charge };
    let (mut streams, mut sent, mut number) = (Vec::<Stream>::new(), [0, 0], 0);
    for second in 0..60 {
        let now = MIDNIGHT - 30_000 + second * 1_000;
        for stream in &streams {
            assert!(take(store, &charge, ChargeKind::Reserve(stream.id), 0, now).await, "a lease is renewed");
        }
        for ended in streams.extract_if(.., |stream| stream.begun + SECONDS == second) {
            let tokens = u32::try_from(TOKENS * SECONDS).expect("few");
            take(store, &charge, ChargeKind::Settle(ended.id), tokens, now).await;
        }
        loop {
            number += 1;
            let id = ReservationId { gateway: 1, number };
            if !take(store, &charge, ChargeKind::Reserve(id), BOUND, now).await {
                break;
            }
            streams.push(Stream { id, begun: second });
        }
        sent[usize::from(now >= MIDNIGHT)] += TOKENS * streams.len() as u64;
    }
    sent
}

#[tokio::test]
async fn streams_over_midnight_stay_within_both_days() {
    let redis = RedisServer::start();
    for store in [replay_memory()].into_iter().chain(redis.as_ref().map(RedisServer::replay_store)) {
        let sent = run(&store).await;
        assert!(sent.iter().all(|tokens| (BUDGET / 2..=BUDGET).contains(tokens)), "{sent:?}");
    }
}

#[tokio::test]
async fn held_response_counts_in_each_window() {
    let redis = RedisServer::start();
    for store in ["memory".to_owned()].into_iter().chain(redis.as_ref().map(patient)) {
        let model = Model::start().await;
        let gateway = TestGateway::start(&format!(
            "store: {store}
upstreams: {{ llm: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: llm
    limits:
      - name: tokens
        mode: PER_CLIENT
        client: ip
        rate: 200
        interval: second
        algorithm: fixed_window
        permits: {{ usage: openai, max_input: 10, reserve: {{ output: 50 }} }}",
            model.origin.address
        ));
        let long = json!({ "messages": [], "tokens": 150, "max_tokens": 150, "held": true });
        let short = |tokens: u64| json!({ "messages": [], "tokens": tokens, "max_tokens": tokens });
        let others = async {
            until(|| model.streams() > 0).await;
            assert_eq!(ask(&gateway, &short(20)).await.status(), 200);
            // The next window does not have the cost of the short response, and has the reservation of the long one.
            until_remaining(&gateway, 200 - INPUT - 150).await;
            assert_eq!(ask(&gateway, &short(40)).await.status(), 429);
            model.release(1);
        };
        assert_eq!(tokio::join!(ask(&gateway, &long), others).0.status(), 200, "{store}");
        until_remaining(&gateway, 200).await;
    }
}
