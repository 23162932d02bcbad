//! A property test: the search finds the limit that a plain description of the rules finds.

use proptest::prelude::*;
use regex::Regex;

use super::*;

/// The key, the value, and whether there is a limit, of each rule of two levels.
type Plain = (String, String, bool, Vec<(String, String, bool)>);

fn key() -> impl Strategy<Value = String> {
    prop_oneof![3 => Just("k".to_owned()), 2 => Just("l".to_owned()), 1 => Just("k*".to_owned())]
}

fn pattern() -> impl Strategy<Value = String> {
    "[ab*]{0,4}"
}

fn plain_rules() -> impl Strategy<Value = Vec<Plain>> {
    let inner = prop::collection::vec((key(), pattern(), any::<bool>()), 0..4);
    prop::collection::vec((key(), pattern(), any::<bool>(), inner), 0..6)
}

/// Removes rules with the key and the value of an earlier rule.
fn without_duplicates<R>(rules: Vec<R>, name: impl Fn(&R) -> (String, String)) -> Vec<R> {
    let mut seen = std::collections::HashSet::new();
    rules.into_iter().filter(|rule| seen.insert(name(rule))).collect()
}

fn matches(pattern: &str, text: &str) -> bool {
    let parts: Vec<_> = pattern.split('*').map(regex::escape).collect();
    Regex::new(&format!("^(?s:{})$", parts.join(".*"))).expect("a pattern").is_match(text)
}

/// Returns the position of the rule for an entry among the keys and values of a level.
fn position(level: &[(&str, &str)], (key, value): (&str, &str)) -> Option<usize> {
    let wild = |(rule_key, rule_value): &(&str, &str)| {
        let in_key = rule_key.contains('*');
        match rule_value.is_empty() {
            true => in_key && matches(rule_key, &format!("{key}_{value}")),
            false if in_key => matches(&format!("{rule_key}_{rule_value}"), &format!("{key}_{value}")),
            false => rule_value.contains('*') && *rule_key == key && matches(rule_value, value),
        }
    };
    let exact = level.iter().position(|rule| !value.is_empty() && *rule == (key, value));
    exact.or_else(|| level.iter().position(wild)).or_else(|| level.iter().position(|rule| *rule == (key, "")))
}

/// Returns the number of the limit: ten times the number of its rule in the first level, plus its number in the second.
fn expected(rules: &[Plain], entries: &[(String, String)]) -> Option<u32> {
    let number = |at: usize| u32::try_from(at).expect("a small number") + 1;
    let outer: Vec<_> = rules.iter().map(|(key, value, ..)| (key.as_str(), value.as_str())).collect();
    let [(key, value), rest @ ..] = entries else { return None };
    let at = position(&outer, (key, value))?;
    let (.., has_limit, inner) = &rules[at];
    let [(key, value), rest @ ..] = rest else { return has_limit.then(|| 10 * number(at)) };
    let levels: Vec<_> = inner.iter().map(|(key, value, _)| (key.as_str(), value.as_str())).collect();
    let below = position(&levels, (key, value))?;
    (rest.is_empty() && inner[below].2).then(|| 10 * number(at) + number(below))
}

fn build(rules: &[Plain]) -> Vec<Rule> {
    let number = |at: usize| u32::try_from(at).expect("a small number") + 1;
    let one = |key: &str, value: &str, limit: Option<u32>| match limit {
        Some(limit) => limited(key, value, limit),
        None => rule(key, value, Vec::new()),
    };
    let with_inner = |(at, (key, value, has_limit, inner)): (usize, &Plain)| {
        let below = |(below, (key, value, has_limit)): (usize, &(String, String, bool))| {
            one(key, value, has_limit.then(|| 10 * number(at) + number(below)))
        };
        let rules = inner.iter().enumerate().map(below).collect();
        Rule { rules, ..one(key, value, has_limit.then(|| 10 * number(at))) }
    };
    rules.iter().enumerate().map(with_inner).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn search_agrees_with_the_description(
        rules in plain_rules(),
        descriptors in prop::collection::vec(prop::collection::vec(("[kl]", "[ab_]{0,4}"), 0..4), 1..8),
    ) {
        let inner = |rules| without_duplicates(rules, |(key, value, _): &(String, String, bool)| (key.clone(), value.clone()));
        let rules = rules.into_iter().map(|(key, value, limit, rules)| (key, value, limit, inner(rules))).collect();
        let rules: Vec<Plain> = without_duplicates(rules, |(key, value, ..)| (key.clone(), value.clone()));
        let domain = domain(&build(&rules));
        for descriptor in &descriptors {
            let entries = descriptor.iter().map(|(key, value)| Entry { key, value }).collect();
            let call = call([Descriptor { entries, ..Descriptor::default() }]);
            let decided = domain.charges(&call);
            prop_assert_eq!(decided.charges.len(), usize::from(expected(&rules, descriptor).is_some()));
            let found = decided.charges.iter().next().map(|entry| entry.charge.limiter.quota.rate());
            prop_assert_eq!(found, expected(&rules, descriptor));
        }
    }

    /// A call charges each limited descriptor once, and no bucket twice.
    #[test]
    fn charges_have_the_permits_of_the_descriptors(
        descriptors in prop::collection::vec(("[kl]", "[ab]{1,2}", prop::option::of(0..5_u64)), 1..12),
        hits_addend in 0..4_u32,
    ) {
        let domain = domain(&[limited("k", "", 1_000), limited("k", "a", 1_000)]);
        let mut call = call([]);
        call.hits_addend = hits_addend;
        for (key, value, hits_addend) in &descriptors {
            let entries = vec![Entry { key, value }];
            call.descriptors.push(Descriptor { entries, limit: None, hits_addend: *hits_addend });
        }
        let decided = domain.charges(&call);
        let cost = |hits: Option<u64>| hits.unwrap_or_else(|| hits_addend.max(1).into());
        let expected: u64 = descriptors.iter().filter(|(key, ..)| key == "k").map(|(.., hits)| cost(*hits)).sum();
        let charged: u64 = decided.charges.iter().map(|entry| u64::from(entry.charge.taken())).sum();
        prop_assert_eq!(charged, expected);
        let buckets: std::collections::HashSet<_> = decided.charges.as_slice().iter().map(Charge::bucket_id).collect();
        prop_assert_eq!(buckets.len(), decided.charges.len());
    }
}
