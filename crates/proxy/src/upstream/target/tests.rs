//! Tests which failures of a target are logged.

use std::io;
use std::time::Duration;

use tokio::time::advance;

use super::*;
use crate::testing::logged_by;
use tidegate_metrics::Metrics;

const HALF: Duration = Duration::from_millis(500);

fn state() -> Arc<TargetState> {
    TargetState::for_test(&Metrics::of_gateway(&[]))
}

/// Makes attempts fail (`false`) or succeed. Returns the logged messages, each with its number of failures.
fn logged(state: &Arc<TargetState>, attempts: &[bool]) -> Vec<String> {
    let log = logged_by(|| {
        for is_ok in attempts {
            let attempt = state.start_attempt(None, false);
            let due = match is_ok {
                true => attempt.responded(StatusCode::OK, &HeaderMap::new(), None),
                false => attempt.failed(Some(&TargetError::connect(&io::ErrorKind::TimedOut.into())), None, None),
            };
            assert!(due.is_none());
        }
    });
    let number = |line: &str| {
        let (_, rest) = line.split_once("failures=").expect("a number");
        rest.split(' ').next().expect("a number").to_owned()
    };
    let message = |line: &str| {
        let words = ["still fails", "answers again", "fails"].into_iter().find(|words| line.contains(words));
        format!("{} {}", words.expect("a message"), number(line))
    };
    log.lines().inspect(|line| assert!(line.contains(" WARN "), "{line}")).map(message).collect()
}

#[tokio::test(start_paused = true)]
async fn failures_are_logged_once_a_second() {
    let state = state();
    assert_eq!(logged(&state, &[false; 100]), ["fails 1"]);
    advance(HALF).await;
    assert!(logged(&state, &[false; 100]).is_empty());
    advance(HALF).await;
    assert_eq!(logged(&state, &[false; 100]), ["still fails 200"]);
    assert_eq!(logged(&state, &[true; 100]), ["answers again 300"]);
    assert!(logged(&state, &[true; 100]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn flapping_target_is_logged_once_a_second() {
    let state = state();
    let flapping = [[false, true]; 100].concat();
    assert_eq!(logged(&state, &flapping), ["fails 1", "answers again 1"]);
    advance(2 * HALF).await;
    assert_eq!(logged(&state, &flapping), ["fails 100"]);
    advance(HALF).await;
    assert!(logged(&state, &flapping).is_empty());
    advance(2 * HALF).await;
    assert_eq!(logged(&state, &[true]), ["answers again 299"]);
}

#[tokio::test(start_paused = true)]
async fn canceled_attempt_is_no_failure() {
    let state = state();
    assert!(logged_by(|| drop(state.start_attempt(None, false))).is_empty());
    assert!(logged_by(|| drop(state.start_attempt(None, false).failed(None, None, None))).is_empty());
    assert!(logged(&state, &[true]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn drain_ends_at_its_time_unless_it_was_changed() {
    let (state, begin) = (state(), Instant::now());
    let (first, second) = (begin + 2 * HALF, begin + 4 * HALF);
    state.drain_until(Some(first));
    assert_eq!(state.condition(begin), TargetCondition::Draining { until: first });
    assert_eq!(state.condition(first), TargetCondition::Usable);
    state.drain_until(Some(second));
    assert!(logged_by(|| state.end_drain(first)).is_empty());
    assert_eq!(state.condition(first), TargetCondition::Draining { until: second });
    assert_eq!(logged_by(|| state.end_drain(second)).matches("no longer drains").count(), 1);
    assert!(logged_by(|| state.end_drain(second)).is_empty());
    assert_eq!(state.condition(begin), TargetCondition::Usable);
}

#[tokio::test(start_paused = true)]
async fn drain_applies_to_addresses_that_are_added_later() {
    let (states, metrics, until) = (TargetStates::default(), Metrics::of_gateway(&[]), Instant::now() + HALF);
    let metrics = metrics.target("api", "http://a");
    let state = |upstream: &str, port| {
        let address = Some(([127, 0, 0, 1], port).into());
        states.get_or_create(&upstream.into(), "http://a", address, &metrics, false)
    };
    let first = state("api", 1);
    first.drain_until(Some(until));
    assert_eq!(state("api", 2).condition(Instant::now()), TargetCondition::Draining { until });
    assert_eq!(state("other", 2).condition(Instant::now()), TargetCondition::Usable);
    advance(HALF).await;
    assert_eq!(state("api", 2).condition(Instant::now()), TargetCondition::Usable);
}
