//! How much of something there may be.

use super::*;

#[test]
fn a_route_has_a_bounded_number_of_limits_candidates_included() {
    let route = |count: usize| {
        let candidate = "candidate: { rate: 3, interval: 1s }";
        let limit =
            |number| format!("      - {{ name: l{number}, mode: OVERALL, rate: 5, interval: 1s, {candidate} }}\n");
        format!("routes:\n  - name: a\n    match: {{}}\n    limits:\n{}", (0..count).map(limit).collect::<String>())
    };
    assert!(Config::parse(&route(50)).is_ok());
    let said = problems(&route(51));
    let first = "5:7: a route has at most 100 limits, candidates included, not 102";
    assert!(said.contains(first) && said.contains("help: leave some out"), "{said}");
}
