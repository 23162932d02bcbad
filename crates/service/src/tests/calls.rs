//! The charges and the statuses of calls.

use std::time::Duration;

use tidegate_limit::{Algorithm, Quota};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn hits(text: &str, hits: u64) -> Descriptor<'_> {
    Descriptor { hits_addend: Some(hits), ..descriptor(text) }
}

fn overridden(text: &str, requests_per_unit: u32, unit: Unit) -> Descriptor<'_> {
    Descriptor { limit: Some(Override { requests_per_unit, unit }), ..descriptor(text) }
}

/// Returns whether each descriptor is over its limit, and what remains.
fn decide(buckets: &mut Buckets, domain: &Domain, descriptors: &[Descriptor<'_>]) -> Vec<(bool, u32)> {
    let decided = buckets.decide(domain, &call(descriptors.iter().cloned()));
    decided.statuses().map(|status| (status.is_over, status.remaining)).collect()
}

#[test]
fn statuses_have_the_order_of_the_descriptors() {
    let limit = limited("k", "", 2);
    let domain = domain(&[with(limit, |limit| limit.name = Some("per-k".to_owned())), limited("l", "", 9)]);
    let mut buckets = Buckets::default();
    let call = call(["l=x", "other=x", "k=x"].map(descriptor));
    let first = buckets.decide(&domain, &call);
    let limit = |requests_per_unit, name| Some(CurrentLimit { requests_per_unit, unit: Some(Unit::MINUTE), name });
    let expected = [
        Status { is_over: false, limit: limit(9, None), remaining: 8, until_reset: Some(MINUTE), ..Status::default() },
        Status::default(),
        Status {
            is_over: false,
            limit: limit(2, Some("per-k")),
            remaining: 1,
            until_reset: Some(MINUTE),
            ..Status::default()
        },
    ];
    assert_eq!(first.statuses().collect::<Vec<_>>(), expected);
    assert!(!first.is_rejected());
    buckets.decide(&domain, &call);
    let third = buckets.decide(&domain, &call);
    let over = third.statuses().last().expect("a status");
    assert_eq!((over.is_over, over.remaining, over.until_reset, third.is_rejected()), (true, 0, Some(MINUTE), true));
}

#[test]
fn call_over_one_limit_is_charged_to_none() {
    let (domain, mut buckets) = (domain(&[limited("k", "", 1), limited("l", "", 5)]), Buckets::default());
    let both = [descriptor("k=x"), descriptor("l=x")];
    assert_eq!(decide(&mut buckets, &domain, &both), [(false, 0), (false, 4)]);
    assert_eq!(decide(&mut buckets, &domain, &both), [(true, 0), (false, 4)]);
    assert_eq!(decide(&mut buckets, &domain, &both[1..]), [(false, 3)]);
}

#[test]
fn each_value_has_a_bucket_unless_it_is_shared() {
    let shared = Rule { shares_bucket: true, ..limited("s", "a*", 5) };
    let nested = rule("n", "", vec![limited("m", "x", 5)]);
    let (domain, mut buckets) = (domain(&[limited("k", "a*", 5), shared, nested]), Buckets::default());
    let mut remaining = |text| decide(&mut buckets, &domain, &[descriptor(text)])[0].1;
    assert_eq!(["k=ab", "k=ac", "k=ab", "s=ab", "s=ac"].map(&mut remaining), [4, 4, 3, 4, 3]);
    assert_eq!(["n=1,m=x", "n=2,m=x", "n=1,m=x"].map(&mut remaining), [4, 4, 3]);
}

#[test]
fn unlimited_descriptor_passes_without_a_charge() {
    let domain = domain(&[with(limited("k", "", 1), |limit| limit.rate = Rate::Unlimited)]);
    let decided = Buckets::default().decide(&domain, &call([descriptor("k=x")]));
    assert!(decided.charges.is_empty());
    assert_eq!(decided.statuses().next(), Some(Status { remaining: u32::MAX, ..Status::default() }));
}

#[test]
fn rate_of_zero_rejects_and_charges_nothing() {
    let shadow = with(limited("s", "", 0), |limit| limit.shadow = true);
    let (domain, mut buckets) = (domain(&[limited("k", "", 0), limited("l", "", 5), shadow]), Buckets::default());
    assert_eq!(decide(&mut buckets, &domain, &[descriptor("k=x"), descriptor("l=x")]), [(true, 0), (false, 5)]);
    assert_eq!(decide(&mut buckets, &domain, &[descriptor("l=x"), descriptor("s=x")]), [(false, 4), (false, 0)]);
    assert_eq!(decide(&mut buckets, &domain, &[hits("k=x", 0)]), [(false, 0)]);
}

#[test]
fn shadow_is_counted_and_never_over() {
    let shadow = with(limited("k", "", 1), |limit| limit.shadow = true);
    let (domain, mut buckets) = (domain(&[shadow]), Buckets::default());
    for _ in 0..2 {
        let decided = buckets.decide(&domain, &call([descriptor("k=x")]));
        assert_eq!(
            decided.statuses().map(|status| (status.is_over, status.remaining)).collect::<Vec<_>>(),
            [(false, 0)]
        );
    }
    assert!(buckets.decide(&domain, &call([descriptor("k=x")])).charges.is_refused_by_shadow());
}

#[test]
fn replaced_limit_does_not_apply_to_the_call() {
    let named = |limit: Rule, name: &str| with(limit, |limit| limit.name = Some(name.to_owned()));
    let replacing = with(named(limited("b", "", 5), "b"), |limit| limit.replaces = vec!["a".to_owned()]);
    let free = with(limited("c", "", 1), |limit| {
        (limit.rate, limit.replaces) = (Rate::Unlimited, vec!["b".to_owned()]);
    });
    let (domain, mut buckets) = (domain(&[named(limited("a", "", 1), "a"), replacing, free]), Buckets::default());
    let [a, b, c] = ["a=x", "b=x", "c=x"].map(descriptor);
    assert_eq!(decide(&mut buckets, &domain, &[a.clone(), b.clone()]), [(false, 0), (false, 4)]);
    let decided = buckets.decide(&domain, &call([a.clone(), b.clone()]));
    assert_eq!(decided.statuses().map(|status| status.limit.is_some()).collect::<Vec<_>>(), [false, true]);
    // The limit `b` is replaced and still replaces `a`.
    let replaced = decide(&mut buckets, &domain, &[a.clone(), b, c]);
    assert_eq!(replaced, [(false, 0), (false, 0), (false, u32::MAX)]);
    assert_eq!(decide(&mut buckets, &domain, &[a]), [(false, 0)]);
}

#[test]
fn descriptor_cost_precedes_the_cost_of_the_call() {
    let (domain, mut buckets) = (domain(&[limited("k", "", 20)]), Buckets::default());
    let mut remaining = |hits_addend: u32, of_descriptor: Option<u64>| {
        let descriptor = Descriptor { hits_addend: of_descriptor, ..descriptor("k=x") };
        let call = Call { hits_addend, ..call([descriptor]) };
        buckets.decide(&domain, &call).statuses().next().expect("a status").remaining
    };
    let costs = [(0, None), (3, None), (3, Some(5)), (3, Some(0)), (0, Some(0)), (0, Some(1))];
    assert_eq!(costs.map(|(call, descriptor)| remaining(call, descriptor)), [19, 16, 11, 11, 11, 10]);
}

#[test]
fn check_without_cost_passes_at_the_limit() {
    let (domain, mut buckets) = (domain(&[limited("k", "", 1)]), Buckets::default());
    let statuses = [hits("k=x", 1), hits("k=x", 0), hits("k=x", 1)].map(|one| decide(&mut buckets, &domain, &[one])[0]);
    assert_eq!(statuses, [(false, 0), (false, 0), (true, 0)]);
}

#[test]
fn cost_above_the_limit_never_passes() {
    let domain = domain(&[limited("k", "", 5)]);
    let decided = Buckets::default().decide(&domain, &call([hits("k=x", u64::MAX)]));
    let status = decided.statuses().next().expect("a status");
    assert_eq!((status.is_over, status.until_reset), (true, None));
}

#[test]
fn limit_of_the_caller_replaces_the_rule() {
    let shadow = with(limited("s", "", 9), |limit| limit.shadow = true);
    let (domain, mut buckets) = (domain(&[limited("k", "", 9), shadow]), Buckets::default());
    let mut decide = |descriptor| decide(&mut buckets, &domain, &[descriptor])[0];
    // The same unit: one bucket with the rule.
    assert_eq!(decide(overridden("k=x", 3, Unit::MINUTE)), (false, 2));
    assert_eq!(decide(descriptor("k=x")), (false, 7));
    // Another unit, or no rule: a bucket for these entries.
    assert_eq!(decide(overridden("k=x", 3, Unit::HOUR)), (false, 2));
    assert_eq!(decide(overridden("other=x", 1, Unit::HOUR)), (false, 0));
    assert_eq!(decide(overridden("other=x", 1, Unit::HOUR)), (true, 0));
    assert_eq!(decide(overridden("other=y", 1, Unit::HOUR)), (false, 0));
    assert_eq!(decide(overridden("other=y", 0, Unit::Year)), (true, 0));
    // A shadow does not weaken it.
    assert_eq!([0, 1].map(|_| decide(overridden("s=x", 1, Unit::MINUTE))), [(false, 0), (true, 0)]);
}

/// Two charges of one bucket would be granted together the last permit.
#[test]
fn equal_descriptors_share_one_charge() {
    let (domain, mut buckets) = (domain(&[limited("k", "", 3)]), Buckets::default());
    let twice = [descriptor("k=x"), descriptor("k=x")];
    assert_eq!(decide(&mut buckets, &domain, &twice), [(false, 1), (false, 1)]);
    assert_eq!(decide(&mut buckets, &domain, &twice), [(true, 0), (true, 0)]);
    let smaller = [descriptor("k=x"), overridden("k=x", 1, Unit::MINUTE)];
    assert_eq!(decide(&mut buckets, &domain, &smaller), [(true, 0), (true, 0)]);
    assert_eq!(decide(&mut buckets, &domain, &twice[1..]), [(false, 0)]);
}

#[test]
fn malformed_calls_are_errors() {
    let one = call([descriptor("k=x")]);
    let many = |count| call(vec![descriptor("k=x"); count]);
    let entries = |count| vec![Entry { key: "k", value: "x" }; count];
    let deep = |count| call([Descriptor { entries: entries(count), ..Descriptor::default() }]);
    let long = "x".repeat(Call::MAX_TEXT + 1);
    let text = |value| call([Descriptor { entries: vec![Entry { key: "k", value }], ..Descriptor::default() }]);
    assert_eq!(Call { domain: "", ..one.clone() }.validate(), Err(CallError::NoDomain));
    assert_eq!(Call { domain: &long, ..one.clone() }.validate(), Err(CallError::TooLong));
    assert_eq!(call([]).validate(), Err(CallError::NoDescriptors));
    assert_eq!(many(Call::MAX_DESCRIPTORS + 1).validate(), Err(CallError::TooManyDescriptors));
    assert_eq!(deep(Call::MAX_ENTRIES + 1).validate(), Err(CallError::TooManyEntries));
    assert_eq!(text(&long).validate(), Err(CallError::TooLong));
    let largest = [one, many(Call::MAX_DESCRIPTORS), deep(Call::MAX_ENTRIES), text(&long[1..])];
    assert_eq!(largest.map(|call| call.validate()), [Ok(()); 4]);
}

#[test]
fn quota_of_any_interval_has_its_requests() {
    let quota = |interval| Rate::Quota(Quota::new(2, interval, Algorithm::TokenBucket).expect("a quota"));
    let rated = |key: &str, interval| with(limited(key, "", 1), |limit| limit.rate = quota(interval));
    let (domain, mut buckets) = (domain(&[rated("k", 10_000), rated("l", 3_600_000)]), Buckets::default());
    let decided = buckets.decide(&domain, &call(["k=x", "l=x"].map(descriptor)));
    let limits = decided.statuses().map(|status| status.limit.map(|limit| (limit.requests_per_unit, limit.unit)));
    assert_eq!(limits.collect::<Vec<_>>(), [Some((2, None)), Some((2, Some(Unit::HOUR)))]);
    // The caller's limit has the same unit, so the same bucket.
    assert_eq!(decide(&mut buckets, &domain, &[overridden("l=x", 2, Unit::HOUR)]), [(false, 0)]);
}
