//! Calls of a rate limit service: the charges of their descriptors are one decision in each store.

use tidegate_layer::admission::{Denial, WaitQueues, admit};
use tidegate_limit::Wait;
use tidegate_rules::settings::store::BucketNames;
use tidegate_service::{Call, CallCharges, Descriptor, Domain, Entry, Override, Rate, Rule, RuleLimit, Unit, Window};

use crate::laws::{START, Stores};
use crate::one_decision::calls_of_scripts;
use crate::support::redis::{RedisServer, fresh_name};

/// Returns a domain with this many requests a minute for each value of these keys.
fn domain(name: &str, limits: &[(&str, u32)]) -> Domain {
    let rule = |(key, requests_per_unit): &(&str, u32)| {
        let rate = Rate::Limited { requests_per_unit: *requests_per_unit, unit: Unit::MINUTE };
        Rule { key: (*key).to_owned(), limit: Some(RuleLimit::new(rate)), ..Rule::default() }
    };
    let rules: Vec<_> = limits.iter().map(rule).collect();
    Domain::new(name.to_owned(), &rules, Window::TokenBucket, &BucketNames::default()).expect("a domain")
}

fn descriptor<'c>(key: &'c str, value: &'c str) -> Descriptor<'c> {
    Descriptor { entries: vec![Entry { key, value }], ..Descriptor::default() }
}

fn call(descriptors: &[Descriptor<'static>]) -> Call<'static> {
    Call { domain: "any", descriptors: descriptors.to_vec(), hits_addend: 0 }
}

/// Returns whether each descriptor is over its limit, and what remains.
fn statuses(decided: &CallCharges<'_>) -> Vec<(bool, u32)> {
    decided.statuses().map(|status| (status.is_over, status.remaining)).collect()
}

#[test]
fn descriptors_of_a_call_are_one_decision_in_each_store() {
    Stores::start().each(|name, take| {
        let domain = domain(name, &[("user", 2), ("path", 9), ("banned", 0)]);
        let decide = |descriptors: &[Descriptor<'static>]| {
            let mut decided = domain.charges(&call(descriptors));
            let outcome = take(decided.charges.as_slice(), START);
            decided.charges.decide(outcome);
            statuses(&decided)
        };
        let [ann, bob, path] =
            [("user", "ann"), ("user", "bob"), ("path", "/")].map(|(key, value)| descriptor(key, value));
        assert_eq!(decide(&[ann.clone(), bob.clone(), path.clone()]), [(false, 1), (false, 1), (false, 8)]);
        // Two descriptors of one bucket need two permits, and one is left.
        assert_eq!(decide(&[path.clone(), ann.clone(), ann.clone()]), [(false, 8), (true, 0), (true, 0)]);
        assert_eq!(decide(&[path.clone(), descriptor("banned", "x")]), [(false, 8), (true, 0)]);
        assert_eq!(decide(&[path, ann.clone()]), [(false, 7), (false, 0)]);
        // A check passes at the limit. A smaller limit of the caller has the same bucket.
        assert_eq!(decide(&[Descriptor { hits_addend: Some(0), ..ann.clone() }]), [(false, 0)]);
        assert_eq!(decide(&[ann]), [(true, 0)]);
        let limit = Some(Override { requests_per_unit: 1, unit: Unit::MINUTE });
        assert_eq!(decide(&[Descriptor { limit, ..bob.clone() }]), [(true, 0)]);
        assert_eq!(decide(&[bob]), [(false, 0)]);
    });
}

/// `admit` decides a call as it decides a request to a route, in one call of the script.
#[tokio::test]
async fn call_of_descriptors_is_admitted_in_one_redis_call() {
    let Some(server) = RedisServer::start() else { return };
    let (store, queues, mut redis) = (server.store(), WaitQueues::new(), server.connection());
    let domain = domain(&fresh_name(), &[("user", 2), ("path", 9)]);
    let call = call(&[descriptor("user", "ann"), descriptor("user", "bob"), descriptor("path", "/")]);
    let mut before = 0;
    for remaining in [[1, 1, 8], [0, 0, 7]] {
        before = calls_of_scripts(&mut redis);
        let mut decided = domain.charges(&call);
        assert!(admit(&store, &queues, &mut decided.charges, None).await.is_ok());
        assert_eq!(statuses(&decided), remaining.map(|remaining| (false, remaining)));
    }
    assert_eq!(calls_of_scripts(&mut redis) - before, 1);
    let mut decided = domain.charges(&call);
    let denied = admit(&store, &queues, &mut decided.charges, None).await;
    assert!(matches!(denied, Err(Denial::Limited { wait: Wait::Millis(1..=60_000), .. })), "{denied:?}");
    assert_eq!(statuses(&decided), [(true, 0), (true, 0), (false, 7)]);
}
