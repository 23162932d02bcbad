//! Tests of the chaos run's checker: around a loss of data it allows the grants that the loss explains, and no others.

#[path = "../chaos/losses.rs"]
mod losses;

use proptest::prelude::*;

use self::losses::{DataLoss, StoreFinding, max_age};
use crate::stress::run::checker;
use crate::stress::run::checker::{Algorithm, Grant, Rule, check};

const RULE: Rule = Rule { algorithm: Algorithm::TokenBucket, rate: 3, interval: 10 };

fn check_bucket(rule: &Rule, times: &[u64], losses: &[(u64, u64)]) -> StoreFinding {
    let mut finding = StoreFinding::default();
    let losses: Vec<DataLoss> = losses.iter().map(|&(since, until)| DataLoss { since, until, times: 1 }).collect();
    let grants: Vec<Grant> = times.iter().map(|at| Grant { at: *at, permits: 1, rule: 0 }).collect();
    finding.check_bucket(rule, &grants, &losses);
    finding
}

/// Returns the grants of a server that keeps the rule, to requests with these gaps between them.
fn allowed_grants(rule: &Rule, gaps: &[u64]) -> Vec<Grant> {
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
    let algorithm = prop_oneof![
        Just(Algorithm::TokenBucket),
        (1_u64..5).prop_map(|segments| Algorithm::SlidingWindow { segments }),
        Just(Algorithm::FixedWindow),
        (1_u64..8).prop_map(|burst| Algorithm::Gcra { burst }),
        (0_u64..8).prop_map(|queue| Algorithm::LeakyBucket { queue }),
    ];
    (algorithm, 1_u64..8, 1_u64..30).prop_map(|(algorithm, rate, interval)| Rule { algorithm, rate, interval })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn overlap_of_two_servers_is_no_violation(
        rule in any_rule(),
        old in prop::collection::vec(0_u64..8, 1..40),
        new in prop::collection::vec(0_u64..8, 1..40),
        since in 1_000_u64..1_160,
        overlap in 0_u64..80,
    ) {
        let mut grants: Vec<Grant> = allowed_grants(&rule, &old).into_iter().filter(|grant| grant.at <= since + overlap).collect();
        grants.extend(allowed_grants(&rule, &new).into_iter().filter(|grant| grant.at > since));
        grants.sort_by_key(|grant| grant.at);
        let mut finding = StoreFinding::default();
        finding.check_bucket(&rule, &grants, &[DataLoss { since, until: since + overlap, times: 1 }]);
        prop_assert!(finding.violations.is_empty(), "{:?}", finding);
        prop_assert!(finding.forgotten.used <= finding.forgotten.allowed);
    }
}

#[test]
fn grants_lost_with_the_data_are_counted_as_forgotten() {
    let lost = check_bucket(&RULE, &[101, 102, 103, 105, 106, 107], &[(104, 104)]);
    assert!(lost.violations.is_empty(), "{lost:?}");
    assert_eq!((lost.forgotten.used, lost.forgotten.allowed, lost.total_forgotten), (3, 3, 3));
}

#[test]
fn extra_grant_without_a_loss_is_a_violation() {
    assert_eq!(check_bucket(&RULE, &[101, 102, 103, 105], &[]).violations, [105]);
}

#[test]
fn more_grants_than_were_lost_are_a_violation() {
    // Reports the end of the loss, and the grant.
    assert_eq!(check_bucket(&RULE, &[101, 105, 106, 107, 108], &[(104, 104)]).violations, [104, 108]);
}

#[test]
fn two_servers_grant_at_most_twice_the_limit() {
    let seven = [101, 102, 103, 104, 105, 106, 107];
    assert!(!check_bucket(&RULE, &seven, &[(100, 108)]).violations.is_empty());
    assert!(check_bucket(&RULE, &seven[1..], &[(100, 108)]).violations.is_empty());

    let mut by_three = StoreFinding::default();
    let grants = seven.map(|at| Grant { at, permits: 1, rule: 0 });
    by_three.check_bucket(&RULE, &grants, &[DataLoss { since: 100, until: 108, times: 2 }]);
    assert!(by_three.violations.is_empty(), "{by_three:?}");
}

#[test]
fn limit_holds_again_once_the_old_server_is_left() {
    assert_eq!(check_bucket(&RULE, &[101, 102, 109, 110, 111, 112], &[(100, 108)]).violations, [112]);
}

#[test]
fn grant_counts_for_at_least_one_interval() {
    assert_eq!(max_age(&RULE), 10);
    assert_eq!(max_age(&Rule { algorithm: Algorithm::Gcra { burst: 9 }, ..RULE }), 30);
}
