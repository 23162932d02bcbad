//! The checker of the chaos run, checked: where servers lose their data, it allows what that explains, and no more.

#[path = "../chaos/losses.rs"]
mod losses;

use proptest::prelude::*;

use self::losses::{ByLaw, Lost, remembered};
use crate::stress::run::checker;
use crate::stress::run::checker::{Grant, Law, Rule, check};

const RULE: Rule = Rule { law: Law::TokenBucket, rate: 3, interval: 10 };

fn judge(rule: &Rule, moments: &[u64], losses: &[(u64, u64)]) -> ByLaw {
    let mut by_law = ByLaw::default();
    let losses: Vec<Lost> = losses.iter().map(|&(since, until)| Lost { since, until, times: 1 }).collect();
    by_law.judge(rule, &moments.iter().map(|at| Grant { at: *at, permits: 1, rule: 0 }).collect::<Vec<_>>(), &losses);
    by_law
}

/// Grants to clients that ask as often as this says, by a server that keeps the law.
fn lawful(rule: &Rule, gaps: &[u64]) -> Vec<Grant> {
    let (mut at, mut grants) = (1_000, Vec::new());
    for gap in gaps {
        at += gap;
        grants.push(Grant { at, permits: 1, rule: 0 });
        if !check(&[*rule], &grants).violations.is_empty() {
            grants.pop();
        }
    }
    grants
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let law = prop_oneof![
        Just(Law::TokenBucket),
        (1_u64..5).prop_map(|segments| Law::SlidingWindow { segments }),
        Just(Law::FixedWindow),
        (1_u64..8).prop_map(|burst| Law::Gcra { burst }),
        (0_u64..8).prop_map(|queue| Law::LeakyBucket { queue }),
    ];
    (law, 1_u64..8, 1_u64..30).prop_map(|(law, rate, interval)| Rule { law, rate, interval })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_server_that_takes_over_beside_another_one_that_is_left_later_breaks_nothing(
        rule in any_rule(),
        old in prop::collection::vec(0_u64..8, 1..40),
        new in prop::collection::vec(0_u64..8, 1..40),
        since in 1_000_u64..1_160,
        overlap in 0_u64..80,
    ) {
        let mut grants: Vec<Grant> = lawful(&rule, &old).into_iter().filter(|grant| grant.at <= since + overlap).collect();
        grants.extend(lawful(&rule, &new).into_iter().filter(|grant| grant.at > since));
        grants.sort_by_key(|grant| grant.at);
        let mut by_law = ByLaw::default();
        by_law.judge(&rule, &grants, &[Lost { since, until: since + overlap, times: 1 }]);
        prop_assert!(by_law.violations.is_empty(), "{:?}", by_law);
        prop_assert!(by_law.forgotten.used <= by_law.forgotten.allowed);
    }
}

#[test]
fn what_was_lost_is_forgotten_and_counted() {
    let lost = judge(&RULE, &[101, 102, 103, 105, 106, 107], &[(104, 104)]);
    assert!(lost.violations.is_empty(), "{lost:?}");
    assert_eq!((lost.forgotten.used, lost.forgotten.allowed, lost.forgotten_in_all), (3, 3, 3));
}

#[test]
fn nothing_is_forgotten_without_a_loss() {
    assert_eq!(judge(&RULE, &[101, 102, 103, 105], &[]).violations, [105]);
}

#[test]
fn no_more_is_forgotten_than_was_lost() {
    // It is told of the loss, and of the grant.
    assert_eq!(judge(&RULE, &[101, 105, 106, 107, 108], &[(104, 104)]).violations, [104, 108]);
}

#[test]
fn not_even_two_servers_grant_three_times_the_limit() {
    let seven = [101, 102, 103, 104, 105, 106, 107];
    assert!(!judge(&RULE, &seven, &[(100, 108)]).violations.is_empty());
    assert!(judge(&RULE, &seven[1..], &[(100, 108)]).violations.is_empty());

    let mut by_three = ByLaw::default();
    let grants = seven.map(|at| Grant { at, permits: 1, rule: 0 });
    by_three.judge(&RULE, &grants, &[Lost { since: 100, until: 108, times: 2 }]);
    assert!(by_three.violations.is_empty(), "{by_three:?}");
}

#[test]
fn once_a_server_that_was_replaced_is_left_the_law_holds_again() {
    assert_eq!(judge(&RULE, &[101, 102, 109, 110, 111, 112], &[(100, 108)]).violations, [112]);
}

#[test]
fn a_grant_counts_for_an_interval_at_least() {
    assert_eq!(remembered(&RULE), 10);
    assert_eq!(remembered(&Rule { law: Law::Gcra { burst: 9 }, ..RULE }), 30);
}
