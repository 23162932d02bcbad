//! Tests of Sentinel: the traps of its rules, and decisions about traces by its own laws.

use crate::format::Format;
use crate::options::Options;
use crate::testing::{converted, converted_with, finding, shown};
use crate::tests::laws::sentinel::{Param, Throttling, WarmUp, Window};
use crate::tests::laws::{Request, at, decisions};
use crate::{Conversion, Verdict};

fn sentinel(text: &str) -> Conversion {
    converted(Format::Sentinel, [("rules.json", text)])
}

fn count(admitted: &[bool]) -> usize {
    admitted.iter().filter(|admitted| **admitted).count()
}

#[test]
fn windows_of_a_second_are_stricter() {
    let conversion = sentinel(r#"[{ "resource": "/a", "count": 4.9, "grade": 1 }]"#);
    let trace = at("/a", std::array::from_fn::<u64, 300, _>(|number| number as u64 * 83));
    let mut law = Window::new(4.9);
    let expected: Vec<_> = trace.iter().map(|request| law.admits(request.time)).collect();
    let own = decisions(&conversion, &trace);
    assert!(conversion.rules.contains("rate: 4"), "{}", conversion.rules);
    assert!(count(&own) < count(&expected) && count(&own) * 2 > count(&expected), "{own:?} {expected:?}");
    assert_eq!(finding(&conversion, "/a: count").0, Verdict::Stricter);
}

#[test]
fn counts_below_one_admit_nothing() {
    let conversion = sentinel(r#"[{ "resource": "/a", "count": 0.5 }]"#);
    assert!(!Window::new(0.5).admits(0));
    assert!(conversion.rules.contains("respond: { status: 429 }"), "{}", conversion.rules);
}

#[test]
fn queues_are_leaky_buckets() {
    for (rate, max_wait) in [("10", 500), ("0.5", 4_500), ("2.5", 1_000), ("20", 0), ("4", 100)] {
        let conversion = sentinel(&format!(
            r#"[{{ "resource": "/a", "count": {rate}, "controlBehavior": 2, "maxQueueingTimeMs": {max_wait} }}]"#
        ));
        for step in [37, 211, 1_009] {
            let trace = at("/a", std::array::from_fn::<u64, 200, _>(|number| number as u64 * step));
            let mut law = Throttling::new(rate.parse().unwrap(), max_wait);
            let expected: Vec<_> = trace.iter().map(|request| law.admits(request.time)).collect();
            assert_eq!(decisions(&conversion, &trace), expected, "{rate} {max_wait} {step}\n{}", conversion.rules);
        }
        assert_eq!(finding(&conversion, "/a: count").0, Verdict::Same);
    }
}

#[test]
fn warm_up_begins_at_a_third() {
    let conversion = sentinel(r#"[{ "resource": "/a", "count": 30, "controlBehavior": 1, "warmUpPeriodSec": 10 }]"#);
    let trace = at("/a", std::array::from_fn::<u64, 2_000, _>(|number| 500 + number as u64 * 10));
    let mut law = WarmUp::new(30.0, 10.0);
    let expected: Vec<_> = trace.iter().map(|request| law.admits(request.time)).collect();
    let own = decisions(&conversion, &trace);
    let of = |admitted: &[bool], second: usize| count(&admitted[second * 100..][..100]);
    // Cold, both admit about a third. Warm, both admit the full rate.
    assert!(
        (8..=16).contains(&of(&own, 1)) && (8..=16).contains(&of(&expected, 1)),
        "{} {}",
        of(&own, 1),
        of(&expected, 1)
    );
    assert!((28..=32).contains(&of(&own, 19)) && (28..=32).contains(&of(&expected, 19)), "{}", of(&own, 19));
    // A burst after the warm-up.
    let burst = at("/a", [30_000; 30]);
    let all: Vec<_> = trace.iter().chain(&burst).cloned().collect();
    assert!(count(&decisions(&conversion, &all)[2_000..]) <= 10);
    assert_eq!(finding(&conversion, "/a: count").0, Verdict::Stricter);
}

#[test]
fn buckets_of_parameters_return_with_the_interval() {
    let conversion = sentinel(
        r#"[{ "resource": "/a", "resourceMode": 0, "count": 5, "intervalSec": 2, "paramItem": { "parseStrategy": 0 } }]"#,
    );
    let mut trace = at("/a", [0, 1, 2, 3, 4, 5, 2_003, 2_004]);
    trace.push(Request { client: 2, time: 2_005, target: "/a", ..Request::default() });
    trace.extend(at("/a", [4_100, 4_101, 4_102, 4_103, 4_104, 4_105]));
    let mut law = Param::new(5, 2_000, 0);
    let expected: Vec<_> = trace.iter().map(|request| law.admits(request.client, request.time)).collect();
    assert_eq!(decisions(&conversion, &trace), expected, "{}", conversion.rules);
    // Sentinel fills the bucket twice within an interval.
    let trace = at("/a", [0, 1_996, 1_997, 1_998, 1_999, 2_001, 2_002, 2_003, 2_004, 2_005]);
    let mut law = Param::new(5, 2_000, 0);
    let expected: Vec<_> = trace.iter().map(|request| law.admits(1, request.time)).collect();
    assert_eq!((count(&expected), count(&decisions(&conversion, &trace))), (10, 6));
    assert_eq!(finding(&conversion, "/a: count").0, Verdict::Stricter);
}

#[test]
fn bursts_of_parameters_are_looser() {
    let conversion = sentinel(r#"[{ "resource": "/a", "resourceMode": 0, "count": 2, "intervalSec": 1, "burst": 3 }]"#);
    let trace = at("/a", [0, 0, 0, 0, 0, 0, 600, 1_001, 1_001]);
    let mut law = Param::new(2, 1_000, 3);
    let expected: Vec<_> = trace.iter().map(|request| law.admits(1, request.time)).collect();
    let own = decisions(&conversion, &trace);
    assert_eq!(own[..6], expected[..6]);
    assert!(own[6] && !expected[6], "{own:?} {expected:?}");
    assert_eq!(finding(&conversion, "/a: count").0, Verdict::Looser);
}

#[test]
fn cluster_thresholds_are_averages_by_default() {
    let rule = |config: &str| {
        let text = format!(
            r#"[{{ "resource": "/a", "count": 10, "clusterMode": true, "clusterConfig": {{ "flowId": 1{config} }} }}]"#
        );
        let options = Options { replicas: 3.try_into().unwrap(), ..Options::default() };
        converted_with(&options, [("rules.json", &text)])
    };
    let (average, global) = (rule(""), rule(r#", "thresholdType": 1, "fallbackToLocalWhenFail": false"#));
    assert!(
        average.rules.contains("rate: 30") && average.rules.contains("on_store_failure: local"),
        "{}",
        average.rules
    );
    assert!(global.rules.contains("rate: 10") && global.rules.contains("on_store_failure: allow"), "{}", global.rules);
}

#[test]
fn exceptions_are_tiers() {
    let conversion = sentinel(
        r#"[{
	"resource": "com.example.Service:login(java.lang.String)", "paramIdx": 0, "grade": 1, "count": 5, "durationInSec": 60, "burstCount": 0,
	"paramFlowItemList": [{ "object": "vip", "count": 100, "classType": "java.lang.String" }, { "object": "a b", "count": 1 }]
}]"#,
    );
    insta::assert_snapshot!("exceptions", shown(&conversion));
    let options = Options { replicas: 2.try_into().unwrap(), ..Options::default() };
    let text =
        r#"[{ "resource": "/a", "paramIdx": 0, "count": 5, "paramFlowItemList": [{ "object": "vip", "count": 7 }] }]"#;
    let doubled = converted_with(&options, [("rules.json", text)]);
    assert!(doubled.rules.contains("vip: { rate: 14") && doubled.rules.contains("rate: 10"), "{}", doubled.rules);
}

#[test]
fn rules_of_all_kinds_are_reported() {
    let conversion = sentinel(
        r#"[
{ "resource": "GET:/orders/{id}", "count": 20, "limitApp": "default", "strategy": 0, "controlBehavior": 0 },
{ "resource": "/orders/{id}/items", "count": 10, "grade": 0 },
{ "resource": "/orders/{id}/items", "count": 10, "limitApp": "mobile" },
{ "resource": "/related", "count": 10, "strategy": 1, "refResource": "/other" },
{ "resource": "sayHello", "count": 2, "controlBehavior": 3, "warmUpPeriodSec": 5, "maxQueueingTimeMs": 1000 },
{ "resource": "slow", "grade": 0, "count": 500, "timeWindow": 10 },
{ "resource": "secret", "limitApp": "a,b", "strategy": 0 },
{ "highestSystemLoad": -1, "qps": 100, "avgRt": -1 },
{ "app": "gateway", "rule": { "resource": "shop", "resourceMode": 1, "count": 3, "intervalSec": 1,
  "paramItem": { "parseStrategy": 2, "fieldName": "X-User", "pattern": "a.*", "matchStrategy": 2 } } },
{ "apiName": "shop", "predicateItems": [{ "pattern": "/shop/**", "matchStrategy": 1 }, { "pattern": "/cart" }] }
]"#,
    );
    insta::assert_snapshot!("kinds", shown(&conversion));
}
