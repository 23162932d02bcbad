//! The notes of the keys of a route agree with the checks.

use crate::Config;
use crate::file::ROUTE;
use crate::file::keys::{Key, Note};

/// Returns the keys of a route about which a message ends with `end`. The route has all keys without `absent`.
fn reported(absent: &[&str], end: &str) -> Vec<&'static str> {
    let present = ROUTE.keys().filter(|key| !absent.contains(&key.name));
    let route: Vec<String> = present.map(|key| format!("{}: {{}}", key.name)).collect();
    let problems = Config::parse(&format!("routes: [{{ {} }}]", route.join(", "))).expect_err("errors");
    let is_reported = |key: &Key| problems.iter().any(|problem| problem.message() == format!("`{}` {end}", key.name));
    ROUTE.keys().filter(|key| is_reported(key)).map(|key| key.name).collect()
}

#[test]
fn checks_report_the_keys_with_a_note() {
    let with = |note: Note| ROUTE.keys().filter(move |key| key.notes.contains(&note)).map(|key| key.name);
    let without_upstream = reported(&["upstream", "redirect", "respond"], "has no effect without `upstream`");
    assert_eq!(without_upstream, with(Note::NeedsUpstream).collect::<Vec<_>>(), "see `check/routes/rewrite.rs`");
    let with_authorize = reported(&[], "has no effect with `authorize`");
    assert_eq!(with_authorize, with(Note::NotWithAuthorize).collect::<Vec<_>>(), "see `check/routes/authorize.rs`");
}

#[test]
fn every_key_of_a_route_has_a_note() {
    let without: Vec<_> = ROUTE.keys().filter(|key| key.notes.is_empty()).map(|key| key.name).collect();
    assert!(without.is_empty(), "write in `file/limits.rs` which routes these keys apply to: {without:?}");
}
