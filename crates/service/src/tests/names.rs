//! The names of buckets and domains.

use proptest::prelude::*;
use tidegate_limit::Mode;

use super::*;

#[test]
fn limits_have_the_names_of_their_rules() {
    let nested = rule("path", "/v1/*", vec![limited("user", "", 1)]);
    let domain = domain(&[nested, limited("plan", "a.b=c", 1)]);
    let limits = domain.limits().iter().map(|limit| (limit.limiter.name.as_str(), limit.mode())).take(3);
    let expected = [
        ("{tidegate:/edge}:path=/v1/*.user", Mode::PerClient),
        ("{tidegate:/edge}:plan=a%2Eb%3Dc", Mode::Overall),
        ("{tidegate:/edge}:=second", Mode::PerClient),
    ];
    assert_eq!(limits.collect::<Vec<_>>(), expected);
}

#[test]
fn limit_can_have_its_own_name_and_mode() {
    let own = |name: &str, mode, limit: Rule| {
        with(limit, |limit| (limit.limit_name, limit.mode) = (Some(name.to_owned()), Some(mode)))
    };
    let outer = own("all", Mode::Overall, limited("path", "", 5));
    let inner = own("each", Mode::PerClient, limited("user", "", 5));
    let domain = domain(&[Rule { rules: vec![inner], ..outer }]);
    let limits = domain.limits().iter().map(|limit| (limit.limiter.name.as_str(), limit.mode())).take(2);
    let expected = [("{tidegate:/edge}:all", Mode::Overall), ("{tidegate:/edge}:each", Mode::PerClient)];
    assert_eq!(limits.collect::<Vec<_>>(), expected);
    let mut buckets = Buckets::default();
    let mut remaining = |text| {
        let decided = buckets.decide(&domain, &call([descriptor(text)]));
        decided.statuses().next().expect("a status").remaining
    };
    assert_eq!(["path=/a", "path=/b", "path=/a,user=x", "path=/b,user=x"].map(&mut remaining), [4, 3, 4, 4]);
}

#[test]
fn route_of_a_domain_is_its_escaped_name() {
    let domain = Domain::new("envoy-gateway/eg{1}".to_owned(), &[], Window::TokenBucket, &BucketNames::default());
    assert_eq!(domain.expect("a domain").route(), "/envoy-gateway/eg%7B1%7D");
}

#[test]
fn domains_with_equal_names_are_an_error() {
    let error = Domains::new([domain(&[]), domain(&[])]).expect_err("an error");
    assert_eq!(error, DuplicateDomain("edge".to_owned()));
    let domains = Domains::new([domain(&[])]).expect("domains");
    assert!(domains.get("edge").is_some() && domains.get("other").is_none() && domains.iter().count() == 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Other rules have other names, and a name breaks no hash tag.
    #[test]
    fn names_of_rules_are_unique(one in "[a.=%{}]{1,6}", other in "[a.=%{}]{1,6}", value in "[a.=%{}]{0,6}") {
        let name_of = |key: &str, value: &str| {
            let domain = domain(&[limited(key, value, 1)]);
            domain.limits()[0].limiter.name.clone()
        };
        let names = [name_of(&one, &value), name_of(&other, &value)];
        prop_assert_eq!(names[0] == names[1], one == other);
        prop_assert_eq!(names[0].matches(['{', '}']).count(), 2);
        let nested = domain(&[rule(&one, "", vec![limited(&other, "", 1)])]).limits()[0].limiter.name.clone();
        prop_assert_ne!(nested, name_of(&one, &other));
    }
}
