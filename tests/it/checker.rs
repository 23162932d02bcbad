//! Tests of the stress run's checker, by a comparison with a simple count of every window.

use proptest::prelude::*;

use crate::stress::run::checker::{Algorithm, Grant, Rule, check, is_nearly_all};

/// Start time of the histories.
const START: u64 = 1_000;

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::TokenBucket),
        (1_u64..5).prop_map(|segments| Algorithm::SlidingWindow { segments }),
        Just(Algorithm::FixedWindow),
        (1_u64..8).prop_map(|burst| Algorithm::Gcra { burst }),
        (0_u64..8).prop_map(|queue| Algorithm::LeakyBucket { queue }),
    ]
}

prop_compose! {
    fn any_rule()(algorithm in any_algorithm(), rate in 1_u64..8, interval in 1_u64..30) -> Rule {
        Rule { algorithm, rate, interval }
    }
}

fn any_history(shortest_gap: u64, rules: usize) -> impl Strategy<Value = Vec<Grant>> {
    prop::collection::vec((shortest_gap..8, 1_u64..3, 0..rules), 1..25).prop_map(|steps| {
        let mut at = START;
        let grant = |(gap, permits, rule)| {
            at += gap;
            Grant { at, permits, rule }
        };
        steps.into_iter().map(grant).collect()
    })
}

/// Returns `true` if a window that ends with this grant holds too many permits.
fn breaks_its_rule(rule: &Rule, grants: &[Grant], last: usize) -> bool {
    let now = grants[last].at;
    let sum = |counts: &dyn Fn(u64) -> bool| -> u64 {
        grants[..=last].iter().filter(|grant| counts(grant.at)).map(|grant| grant.permits).sum()
    };
    // Goes through all spans that end now, from the last grant backwards.
    let spans = |burst: u64| {
        let mut permits = 0;
        grants[..=last].iter().rev().any(|first| {
            permits += first.permits;
            permits * rule.interval > burst * rule.interval + rule.rate * (now - first.at)
        })
    };
    match rule.algorithm {
        Algorithm::TokenBucket => sum(&|at| at > now - rule.interval) > rule.rate,
        Algorithm::SlidingWindow { segments } => {
            let segment = rule.interval.div_ceil(segments);
            sum(&|at| at - at % segment + segment > now - rule.interval) > rule.rate
        }
        Algorithm::FixedWindow => sum(&|at| at / rule.interval == now / rule.interval) > rule.rate,
        Algorithm::Gcra { burst } => spans(burst),
        Algorithm::LeakyBucket { queue } => spans(queue + 1),
    }
}

/// Grants as many single permits as the rule allows, as early as possible.
fn max_grants(rule: &Rule, millis: u64) -> Vec<Grant> {
    let mut grants = Vec::new();
    for at in START..START + millis {
        loop {
            grants.push(Grant { at, permits: 1, rule: 0 });
            if breaks_its_rule(rule, &grants, grants.len() - 1) {
                grants.pop();
                break;
            }
        }
    }
    grants
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn checker_agrees_with_a_simple_count(rule in any_rule(), grants in any_history(0, 1)) {
        let expected = (0..grants.len()).any(|last| breaks_its_rule(&rule, &grants, last));
        prop_assert_eq!(!check(&[rule], &grants).violations.is_empty(), expected);
    }

    #[test]
    fn checker_checks_each_grant_by_its_own_rule(
        rate in prop::array::uniform2(1_u64..8),
        interval in prop::array::uniform2(1_u64..30),
        grants in any_history(1, 2),
    ) {
        let rules = [0, 1].map(|index| Rule { algorithm: Algorithm::TokenBucket, rate: rate[index], interval: interval[index] });
        let is_violation = |last: &usize| breaks_its_rule(&rules[grants[*last].rule], &grants, *last);
        let expected: Vec<Grant> = (0..grants.len()).filter(is_violation).map(|last| grants[last]).collect();
        prop_assert_eq!(check(&rules, &grants).violations, expected);
    }

    #[test]
    fn checker_finds_a_single_extra_permit(rule in any_rule(), position in any::<prop::sample::Index>()) {
        let mut grants = max_grants(&rule, 100);
        let finding = check(&[rule], &grants);
        prop_assert!(finding.violations.is_empty(), "{:?}", finding);
        prop_assert_eq!(finding.fullest.used, finding.fullest.allowed);
        // The grants are the most that the rule allows, so another one is a violation at any position.
        let duplicate = grants[position.index(grants.len())];
        grants.push(duplicate);
        prop_assert!(!check(&[rule], &grants).violations.is_empty());
    }

    #[test]
    fn checker_finds_withheld_permits(rule in any_rule(), nth in 2_usize..50) {
        let grants = max_grants(&rule, 200);
        let fewer: Vec<Grant> = grants.iter().enumerate().filter(|(at, _)| at % nth > 0).map(|(_, grant)| *grant).collect();
        let (all, granted) = (grants.len() as u64, fewer.len() as u64);
        prop_assert!(is_nearly_all(all, all) && !is_nearly_all(granted, all));

        // With the most grants the limit is full at the end of every millisecond, but not without the last grant.
        let times: Vec<u64> = (START..START + 200).collect();
        prop_assert!(rule.is_full_at(&grants, &times).iter().all(|full| *full));
        let last = grants[grants.len() - 1].at;
        prop_assert_eq!(rule.is_full_at(&grants[..grants.len() - 1], &[last, START - 1]), [false, false]);
    }

    #[test]
    fn allowed_permits_are_the_most_that_can_be_granted(rule in any_rule()) {
        let grants = max_grants(&rule, 200);
        let (allowed, end) = rule.allowed(START, START + 199);
        let granted = |end: u64| grants.iter().filter(|grant| grant.at < end).count() as u64;
        match rule.returns(0) {
            Some(_) => prop_assert_eq!(granted(end), allowed),
            // With a small burst, permits become available within a millisecond, and part of it is lost.
            None => prop_assert!(granted(end + 1) <= allowed),
        }
        prop_assert!(check(&[rule], &grants[1..]).fullest.used <= rule.capacity());
    }
}

#[test]
fn grants_of_one_millisecond_have_the_most_favourable_order() {
    let rules = [3, 1].map(|rate| Rule { algorithm: Algorithm::TokenBucket, rate, interval: 10 });
    let grant = |rule| Grant { at: START, permits: 1, rule };
    assert!(check(&rules, &[grant(0), grant(0), grant(1)]).violations.is_empty());
    assert_eq!(check(&rules, &[grant(0), grant(1), grant(1)]).violations.len(), 1);
}
