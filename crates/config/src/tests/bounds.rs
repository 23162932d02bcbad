//! The highest number of limits, and their partitions and shards.

use super::*;

#[test]
fn number_of_limits_of_a_route_is_bounded() {
    let route = |count: usize| {
        let candidate = "candidate: { rate: 3, interval: 1s }";
        let limit =
            |number| format!("      - {{ name: l{number}, mode: OVERALL, rate: 5, interval: 1s, {candidate} }}\n");
        format!("routes:\n  - name: a\n    match: {{}}\n    limits:\n{}", (0..count).map(limit).collect::<String>())
    };
    assert!(Config::parse(&route(50)).is_ok());
    let errors = problems(&route(51));
    let first = "5:7: a route has at most 100 limits, candidates included, not 102";
    assert!(errors.contains(first) && errors.contains("help: remove limits"), "{errors}");
}

#[test]
fn partitions_and_shards_are_read() {
    let limits = "[{ name: a, mode: PER_CLIENT, client: ip, rate: 5, interval: 1s, partitions: 8 },
        { name: b, mode: OVERALL, rate: 5, interval: 1s, shards: 2, candidate: { rate: 9, interval: 1s } },
        { name: c, mode: OVERALL, rate: 5, interval: 1s, shards: 1 }]";
    let config = Config::parse(&format!("routes: [{{ name: r, match: {{}}, limits: {limits} }}]"));
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    let limits = config.rules.routes.iter().flat_map(|route| &route.limits);
    let parts = limits.map(|limit| (limit.limiter.partitions(), limit.limiter.shards().len()));
    assert_eq!(parts.collect::<Vec<_>>(), [(Some(8), 0), (None, 2), (None, 2), (None, 0)]);
}
