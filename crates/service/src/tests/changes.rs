//! Changes that operators make to the limits of a call.

use std::sync::Arc;

use tidegate_rules::charge::Limiter;

use super::*;
use crate::LimitChange;

/// Returns the charges of a call with these descriptors, after a change of the limit of the first one.
fn changed<'d>(
    domain: &'d Domain,
    texts: &[&str],
    change: impl FnOnce(&Arc<Limiter>) -> LimitChange,
) -> CallCharges<'d> {
    let descriptors: Vec<_> = texts.iter().map(|text| descriptor(text)).collect();
    let mut found = domain.find_limits(&call(descriptors));
    let limiter = found.buckets().next().flatten().map(|bucket| Arc::clone(bucket.limiter)).expect("a bucket");
    found.change(0, change(&limiter));
    CallCharges::new(found)
}

#[test]
fn ban_rejects_a_call_without_charges() {
    let shadow = with(limited("user", "", 5), |limit| limit.shadow = true);
    for (user, modes) in [
        (limited("user", "", 5), Modes::default()),
        (shadow, Modes::default()),
        (limited("user", "", 5), Modes { shadow: true, quota: false }),
        (limited("user", "", 5), Modes { shadow: false, quota: true }),
    ] {
        let domain = domain(&[user, limited("path", "", 5)]).with_modes(modes);
        let charges = changed(&domain, &["user=ann", "path=x", "user=ann"], |_| LimitChange::Ban { millis: 1_500 });
        assert!(charges.is_rejected(), "{modes:?}");
        assert!(charges.charges.iter().all(|entry| entry.charge.kind == ChargeKind::Check), "{modes:?}");
        let statuses: Vec<_> = charges.statuses().map(|status| (status.is_over, status.until_reset)).collect();
        let until_end = Some(std::time::Duration::from_millis(1_500));
        assert_eq!(statuses, [(true, until_end), (false, None), (false, None)]);
        assert_eq!(charges.banned().map(|entry| entry.limit.name.as_str()).collect::<Vec<_>>(), ["user"]);
    }
}

#[test]
fn exempt_descriptor_has_no_charge() {
    let domain = domain(&[limited("user", "", 5), limited("path", "", 5)]);
    let charges = changed(&domain, &["user=ann", "path=x"], |_| LimitChange::Exempt);
    assert_eq!(charges.charges.iter().map(|entry| entry.limit.name.as_str()).collect::<Vec<_>>(), ["path"]);
    assert_eq!(charges.positions().collect::<Vec<_>>(), [None, Some(0)]);
    assert_eq!(charges.statuses().next(), Some(Status::default()));
}

#[test]
fn exempt_limit_still_replaces_others() {
    let first = with(limited("user", "", 5), |limit| limit.replaces = vec!["path".to_owned()]);
    let second = with(limited("path", "", 5), |limit| limit.name = Some("path".to_owned()));
    let domain = domain(&[first, second]);
    let charges = changed(&domain, &["user=ann", "path=x"], |_| LimitChange::Exempt);
    assert!(charges.charges.is_empty());
}

#[test]
fn adjusted_limit_has_another_rate() {
    let domain = domain(&[limited("user", "", 5)]);
    let charges = changed(&domain, &["user=ann"], |limiter| LimitChange::Rate(Arc::new(limiter.at_rate(7))));
    assert_eq!(charges.charges.as_slice()[0].limiter.quota.rate(), 7);
}

#[test]
fn replaced_limit_has_no_bucket() {
    let first = with(limited("user", "", 5), |limit| limit.replaces = vec!["path".to_owned()]);
    let second = with(limited("path", "", 5), |limit| limit.name = Some("path".to_owned()));
    let domain = domain(&[first, second]);
    let found = domain.find_limits(&call([descriptor("user=ann"), descriptor("path=x"), descriptor("none=x")]));
    assert_eq!(found.buckets().map(|bucket| bucket.is_some()).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn limit_names_the_keys_of_its_clients() {
    let nested = rule("plan", "free", vec![rule("user", "", vec![limited("path", "/v1/*", 5)])]);
    let overall = with(limited("team", "*", 5), |limit| limit.mode = Some(tidegate_limit::Mode::Overall));
    let domain = domain(&[nested, overall, limited("key", "one", 5)]);
    let keys: Vec<_> = domain.rule_limits().map(|named| (named.name, named.client)).collect();
    assert_eq!(keys, [("plan=free.user.path=/v1/*", "user, path"), ("team=*", ""), ("key=one", "")]);
}
