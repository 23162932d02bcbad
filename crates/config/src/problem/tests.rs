//! Tests of problems as text.

use super::*;

#[test]
fn quote_is_one_short_line_without_credentials() {
    assert_eq!(quote("a\nb\u{1b}[2J"), "`a\\nb\\u{1b}[2J`");
    assert_eq!(quote("http://user:hu@sh@host/x"), "`http://***@host/x`");
    assert_eq!(quote(&"x".repeat(1000)).len(), MAX_QUOTED + "``...".len());
}

#[test]
fn errors_are_sorted_by_location_without_duplicates() {
    let mut problems = Problems::default();
    let location = |line, column| Location::new(0, line, column);
    problems.add(location(10, 1), "third", "c");
    problems.add(location(9, 20), "second", "b");
    problems.add(location(9, 3), "first", "a");
    problems.add(location(9, 3), "first", "a");
    let shown = problems.in_file(Path::new("rules.yaml")).to_string();
    let lines: Vec<_> = shown.lines().step_by(2).collect();
    assert_eq!(lines, ["rules.yaml:9:3: first", "rules.yaml:9:20: second", "rules.yaml:10:1: third", "3 errors"]);
}
