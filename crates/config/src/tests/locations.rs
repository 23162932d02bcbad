//! The positions in the rule file that the program keeps.

use crate::Config;

#[test]
fn limits_know_their_lines() {
    let text = "routes:
  - name: all
    match: {}
    limits:
      - name: one
        mode: OVERALL
        rate: 5
        interval: 1m
        candidate:
          rate: 6
          interval: 1m
      - { name: two, mode: OVERALL, rate: 5, interval: 1m }
";
    let config = Config::parse(text).expect("rules");
    let limits = &config.rules.routes.iter().next().expect("a route").limits;
    let lines: Vec<_> = limits.iter().map(|limit| (&*limit.name, limit.location.line)).collect();
    assert_eq!(lines, [("one", 5), ("one.candidate", 10), ("two", 12)]);
    assert!(limits.iter().all(|limit| &*limit.location.file == "<text>"));
}
