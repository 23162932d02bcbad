//! The checker of the stress run, checked: it says what counting every window by hand says.

use proptest::prelude::*;

use crate::stress::run::checker::{Grant, Law, Rule, all_but_a_hundredth, check};

/// When histories begin.
const START: u64 = 1_000;

fn any_law() -> impl Strategy<Value = Law> {
    prop_oneof![
        Just(Law::TokenBucket),
        (1_u64..5).prop_map(|segments| Law::SlidingWindow { segments }),
        Just(Law::FixedWindow),
        (1_u64..8).prop_map(|burst| Law::Gcra { burst }),
        (0_u64..8).prop_map(|queue| Law::LeakyBucket { queue }),
    ]
}

prop_compose! {
    fn any_rule()(law in any_law(), rate in 1_u64..8, interval in 1_u64..30) -> Rule {
        Rule { law, rate, interval }
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

/// Is too much granted in any window that ends with this grant? Counted by hand.
fn breaks_its_rule(rule: &Rule, grants: &[Grant], last: usize) -> bool {
    let now = grants[last].at;
    let sum = |counts: &dyn Fn(u64) -> bool| -> u64 {
        grants[..=last].iter().filter(|grant| counts(grant.at)).map(|grant| grant.permits).sum()
    };
    // Of every span that ends now; from the last grant back, each adds its permits to those after it.
    let spans = |burst: u64| {
        let mut permits = 0;
        grants[..=last].iter().rev().any(|first| {
            permits += first.permits;
            permits * rule.interval > burst * rule.interval + rule.rate * (now - first.at)
        })
    };
    match rule.law {
        Law::TokenBucket => sum(&|at| at > now - rule.interval) > rule.rate,
        Law::SlidingWindow { segments } => {
            let segment = rule.interval.div_ceil(segments);
            sum(&|at| at - at % segment + segment > now - rule.interval) > rule.rate
        }
        Law::FixedWindow => sum(&|at| at / rule.interval == now / rule.interval) > rule.rate,
        Law::Gcra { burst } => spans(burst),
        Law::LeakyBucket { queue } => spans(queue + 1),
    }
}

/// Grants as many permits one by one as the rule allows, to a client that asks in every millisecond.
fn all_that_is_allowed(rule: &Rule, millis: u64) -> Vec<Grant> {
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
    fn it_says_what_counting_by_hand_says(rule in any_rule(), grants in any_history(0, 1)) {
        let by_hand = (0..grants.len()).any(|last| breaks_its_rule(&rule, &grants, last));
        prop_assert_eq!(!check(&[rule], &grants).violations.is_empty(), by_hand);
    }

    #[test]
    fn it_holds_each_grant_to_the_rule_that_made_it(
        rate in prop::array::uniform2(1_u64..8),
        interval in prop::array::uniform2(1_u64..30),
        grants in any_history(1, 2),
    ) {
        let rules = [0, 1].map(|one| Rule { law: Law::TokenBucket, rate: rate[one], interval: interval[one] });
        let broken = |last: &usize| breaks_its_rule(&rules[grants[*last].rule], &grants, *last);
        let by_hand: Vec<Grant> = (0..grants.len()).filter(broken).map(|last| grants[last]).collect();
        prop_assert_eq!(check(&rules, &grants).violations, by_hand);
    }

    #[test]
    fn it_finds_one_permit_too_many(rule in any_rule(), where_to in any::<prop::sample::Index>()) {
        let mut grants = all_that_is_allowed(&rule, 100);
        let finding = check(&[rule], &grants);
        prop_assert!(finding.violations.is_empty(), "{:?}", finding);
        prop_assert_eq!(finding.fullest.used, finding.fullest.allowed);
        // Whoever asks in every millisecond is granted all there is, so that one more is too many anywhere.
        let twice = grants[where_to.index(grants.len())];
        grants.push(twice);
        prop_assert!(!check(&[rule], &grants).violations.is_empty());
    }

    #[test]
    fn it_finds_what_was_withheld(rule in any_rule(), nth in 2_usize..50) {
        let grants = all_that_is_allowed(&rule, 200);
        let withheld: Vec<Grant> = grants.iter().enumerate().filter(|(at, _)| at % nth > 0).map(|one| *one.1).collect();
        let (granted, asked) = (grants.len() as u64, withheld.len() as u64);
        prop_assert!(all_but_a_hundredth(granted, granted) && !all_but_a_hundredth(asked, granted));

        // Whoever was granted all there is was full at the end of every millisecond, but not without the last grant.
        let moments: Vec<u64> = (START..START + 200).collect();
        prop_assert!(rule.is_full_at(&grants, &moments).iter().all(|full| *full));
        let last = grants[grants.len() - 1].at;
        prop_assert_eq!(rule.is_full_at(&grants[..grants.len() - 1], &[last, START - 1]), [false, false]);
    }

    #[test]
    fn what_it_says_is_allowed_can_be_granted_and_no_more(rule in any_rule()) {
        let grants = all_that_is_allowed(&rule, 200);
        let (allowed, end) = rule.allowed(START, START + 199);
        let granted = |end: u64| grants.iter().filter(|grant| grant.at < end).count() as u64;
        match rule.returns(0) {
            Some(_) => prop_assert_eq!(granted(end), allowed),
            // A small burst is full while part of a millisecond has passed in vain.
            None => prop_assert!(granted(end + 1) <= allowed),
        }
        prop_assert!(check(&[rule], &grants[1..]).fullest.used <= rule.capacity());
    }
}

#[test]
fn grants_of_one_millisecond_come_in_the_order_that_suits_them_best() {
    let rules = [3, 1].map(|rate| Rule { law: Law::TokenBucket, rate, interval: 10 });
    let grant = |rule| Grant { at: START, permits: 1, rule };
    assert!(check(&rules, &[grant(0), grant(0), grant(1)]).violations.is_empty());
    assert_eq!(check(&rules, &[grant(0), grant(1), grant(1)]).violations.len(), 1);
}
