//! The search for the limit of a descriptor.

use super::*;

/// Returns the requests per unit of the limit that each descriptor finds.
fn found(rules: &[Rule], descriptors: &[&str]) -> Vec<Option<u32>> {
    let domain = domain(rules);
    let call = call(descriptors.iter().map(|text| descriptor(text)));
    let decided = Buckets::default().decide(&domain, &call);
    decided.statuses().map(|status| status.limit.map(|limit| limit.requests_per_unit)).collect()
}

#[test]
fn exact_value_precedes_wildcards_and_the_bare_key() {
    let rules = [limited("k", "", 1), limited("k", "a*", 2), limited("k", "ab*", 3), limited("k", "abc", 4)];
    let descriptors = ["k=abc", "k=abd", "k=a", "k=x", "k=", "l=abc"];
    assert_eq!(found(&rules, &descriptors), [Some(4), Some(2), Some(2), Some(1), Some(1), None]);
}

#[test]
fn wildcards_match_anywhere_in_a_value() {
    let rules = [limited("k", "foo*bar*baz", 1), limited("k", "*.png", 2), limited("k", "a*a", 3)];
    let matching = ["k=foobarbaz", "k=foo1bar2baz", "k=x.png", "k=aa", "k=a*a"];
    assert_eq!(found(&rules, &matching), [Some(1), Some(1), Some(2), Some(3), Some(3)]);
    assert_eq!(found(&rules, &["k=foobaz", "k=foobarba", "k=png", "k=a"]), [None; 4]);
}

#[test]
fn wildcard_of_a_key_matches_key_and_value() {
    let rules = [limited("k*", "", 1), limited("l*m", "x*", 2)];
    assert_eq!(
        found(&rules, &["kind=a", "k=b", "lom=xy", "lom=ay", "l=om_x"]),
        [Some(1), Some(1), Some(2), None, Some(2)]
    );
}

#[test]
fn limit_applies_only_at_its_depth() {
    let inner = rule("k", "v", vec![limited("l", "", 1), limited("l", "w", 2)]);
    let outer = Rule { rules: vec![limited("l", "", 4)], ..limited("o", "", 3) };
    let rules = [inner, outer];
    let descriptors = ["k=v", "k=v,l=x", "k=v,l=w", "k=v,l=w,m=x", "l=x", "k=x,l=w", "o=x", "o=x,l=x", ""];
    let limits = [None, Some(1), Some(2), None, None, None, Some(3), Some(4), None];
    assert_eq!(found(&rules, &descriptors), limits);
}

/// An entry without rules below an exact value does not fall back to the rules of the bare key.
#[test]
fn value_without_a_limit_exempts_itself() {
    let rules = [limited("k", "", 1), rule("k", "free", Vec::new())];
    assert_eq!(found(&rules, &["k=free", "k=other"]), [None, Some(1)]);
}

#[test]
fn key_and_value_are_not_joined() {
    let rules = [limited("user_x", "", 1), limited("user", "", 2)];
    assert_eq!(found(&rules, &["user=x", "user_x="]), [Some(2), Some(1)]);
}

#[test]
fn equal_rules_of_a_level_are_an_error() {
    let error = |rules: &[Rule]| {
        Domain::new("d".to_owned(), rules, Window::TokenBucket, &BucketNames::default()).expect_err("an error")
    };
    let duplicate = DomainError::Duplicate("k=v.l".to_owned());
    assert_eq!(error(&[rule("k", "v", vec![limited("l", "", 1), limited("l", "", 2)])]), duplicate);
}

#[test]
fn trace_names_the_rules_and_the_limit() {
    let nested = rule("k", "a*", vec![limited("l", "", 1)]);
    let domain = domain(&[nested, limited("k", "free", 2), rule("m", "", Vec::new())]);
    let trace = |text: &str| {
        let trace = domain.trace(&descriptor(text).entries);
        let rules: Vec<_> = trace.rules.iter().map(|rule| (rule.name, rule.matched, rule.is_counted)).collect();
        (rules, trace.limit.map(|limit| limit.name))
    };
    let outer = ("k=a*", Matched::Wildcard, true);
    assert_eq!(trace("k=ab,l=x"), (vec![outer, ("k=a*.l", Matched::Key, true)], Some("k=a*.l")));
    assert_eq!(trace("k=ab,n=x"), (vec![outer], None));
    assert_eq!(trace("k=free"), (vec![("k=free", Matched::Exact, false)], Some("k=free")));
    assert_eq!(trace("m=x"), (vec![("m", Matched::Key, true)], None));
}

#[test]
fn search_of_a_domain_ignores_rates() {
    let rated = |requests_per_unit| domain(&[limited("k", "", requests_per_unit)]);
    assert!(rated(5).has_equal_search(&rated(6)));
    assert!(!rated(5).has_equal_search(&rated(0)), "a rate of 0 has no bucket");
    assert!(!rated(5).has_equal_search(&domain(&[limited("k", "", 5), rule("l", "", Vec::new())])));
    let named = with(limited("k", "", 5), |limit| limit.name = Some("a".to_owned()));
    assert!(!rated(5).has_equal_search(&domain(&[named])));
}
