//! Limits with `quota_mode`, and the modes of a domain.

use super::*;

fn quota(key: &str, requests_per_unit: u32) -> Rule {
    with(limited(key, "", requests_per_unit), |limit| limit.quota_mode = true)
}

/// Returns whether the call exceeds its limits, whether they reject it, and the remaining requests of each descriptor.
fn decide(buckets: &mut Buckets, domain: &Domain, descriptors: &[&str]) -> (bool, bool, Vec<u32>) {
    let mut decided = buckets.decide(domain, &call(descriptors.iter().map(|text| descriptor(text))));
    let remaining = decided.statuses().map(|status| status.remaining).collect();
    let (is_over, is_rejected) = (decided.exceeds_limits(), decided.is_rejected());
    // Only quotas that the store could not let reject are enforced later.
    let before = decided.charges.refusing().count();
    assert_eq!(decided.enforce_quotas(&[]), is_rejected && before == 0 && decided.charges.refusing().count() > 0);
    (is_over, is_rejected, remaining)
}

#[test]
fn quotas_reject_only_together() {
    let (domain, mut buckets) = (domain(&[quota("q", 1), quota("r", 2), limited("l", "", 9)]), Buckets::default());
    assert_eq!(decide(&mut buckets, &domain, &["q=x", "r=x", "l=x"]), (false, false, vec![0, 1, 8]));
    assert_eq!(decide(&mut buckets, &domain, &["q=x", "r=x", "l=x"]), (false, false, vec![0, 0, 7]));
    assert!(decide(&mut buckets, &domain, &["q=x", "r=x", "l=x"]).1);
    // A quota that is alone is a limit: nothing is charged.
    assert_eq!(decide(&mut buckets, &domain, &["q=x", "l=y"]), (true, true, vec![0, 9]));
}

#[test]
fn quota_of_zero_rejects_only_with_all_others() {
    let (domain, mut buckets) = (domain(&[quota("zero", 0), quota("q", 1)]), Buckets::default());
    assert_eq!(decide(&mut buckets, &domain, &["zero=x", "q=x"]), (false, false, vec![0, 0]));
    assert!(decide(&mut buckets, &domain, &["zero=x", "q=x"]).1);
    assert!(decide(&mut buckets, &domain, &["zero=x"]).1);
    assert!(!decide(&mut buckets, &domain, &["zero=x", "other=x", "q=y"]).1, "the quota `q` passes");
}

#[test]
fn quota_in_shadow_always_passes() {
    let shadow = with(quota("s", 1), |limit| limit.shadow = true);
    let (domain, mut buckets) = (domain(&[shadow, quota("q", 1)]), Buckets::default());
    for _ in 0..3 {
        assert!(!decide(&mut buckets, &domain, &["s=x", "q=x"]).1);
    }
}

#[test]
fn bucket_of_a_limit_and_a_quota_is_enforced() {
    let (domain, mut buckets) = (domain(&[quota("q", 2), quota("r", 9)]), Buckets::default());
    let limit = Some(Override { requests_per_unit: 2, unit: Unit::MINUTE });
    let mut ask = || {
        let overridden = Descriptor { limit, ..descriptor("q=x") };
        buckets.decide(&domain, &call([overridden, descriptor("q=x"), descriptor("r=x")])).is_rejected()
    };
    assert_eq!([ask(), ask()], [false, true]);
}

#[test]
fn modes_of_a_domain_include_all_limits() {
    let rules = [limited("k", "", 1), limited("l", "", 1)];
    let with = |modes| domain(&rules).with_modes(modes);
    let (quotas, mut buckets) = (with(Modes { quota: true, shadow: false }), Buckets::default());
    assert!(!decide(&mut buckets, &quotas, &["k=x"]).1);
    assert!(!decide(&mut buckets, &quotas, &["k=x", "l=x"]).1);
    assert!(decide(&mut buckets, &quotas, &["k=x", "l=x"]).1);
    assert!(!decide(&mut buckets, &quotas, &["k=x", "without-limit=x"]).1, "as envoyproxy/ratelimit counts it");
    let (shadow, mut buckets) = (with(Modes { quota: false, shadow: true }), Buckets::default());
    assert_eq!(decide(&mut buckets, &shadow, &["k=x", "l=x"]), (false, false, vec![0, 0]));
    assert_eq!(decide(&mut buckets, &shadow, &["k=x", "l=y"]), (true, false, vec![0, 0]));
}
