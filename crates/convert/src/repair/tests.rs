//! Tests of repairs.

use super::*;
use crate::draft::value::{Map, Value};
use crate::draft::{Limit, Listen, Match, Mode, Route, Target, Upstream};
use crate::testing::check;

fn route(draft: &mut Draft, name: &str, path: &str) -> Route {
    let upstream = Some(draft.unknown_upstream());
    let matches = Match { paths: vec![path.to_owned()], ..Match::default() };
    Route { name: name.to_owned(), matches, upstream, place: Some(Place::start_of(name)), ..Route::default() }
}

/// Repairs the draft, and returns the findings.
#[track_caller]
fn repaired(draft: &mut Draft) -> Vec<String> {
    let mut report = Report::default();
    repair(draft, &mut report);
    check(&draft.text("Written"));
    report.findings.iter().map(|it| format!("{} {} {}: {}", it.place, it.verdict, it.setting, it.reason)).collect()
}

#[test]
fn unreachable_routes_are_left_out() {
    let mut draft = Draft::default();
    for (name, path) in [("a", "/a/**"), ("b", "/a/b"), ("c", "/**"), ("d", "/a/x")] {
        let route = route(&mut draft, name, path);
        draft.routes.push(route);
    }
    let findings = repaired(&mut draft);
    assert!(findings.len() == 2 && findings.iter().all(|finding| finding.contains(" same route ")), "{findings:?}");
    assert_eq!(draft.routes.len(), 2);
}

#[test]
fn smallest_part_with_an_error_is_left_out() {
    let mut draft = Draft::default();
    let mut bad = route(&mut draft, "bad", "/a");
    let limit = |name: &str, client: &str| Limit {
        name: name.to_owned(),
        mode: Mode::PerClient,
        client: vec![client.to_owned()],
        rate: Some(1),
        interval: Some(crate::draft::Interval::Time(std::time::Duration::from_secs(1))),
        place: Some(Place::start_of("limits")),
        ..Limit::default()
    };
    bad.limits = ["ip", "header:te"].map(|client| LimitUse::Own(Box::new(limit(client, client)))).to_vec();
    bad.limits.iter_mut().for_each(|used| {
        if let LimitUse::Own(limit) = used {
            limit.name = limit.name.replace(':', "-");
        }
    });
    bad.more.set("timeout", "1s");
    let fields = Map::of([("set", Map::of([("content-length", "1".into())]).into())]);
    bad.more.set("response_headers", fields);
    draft.routes.push(bad);
    let findings = repaired(&mut draft);
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].starts_with("limits:1 lost limit header-te of the route bad: left out: "), "{findings:?}");
    assert!(findings[1].starts_with("bad:1 lost response_headers of the route bad: left out: "), "{findings:?}");
    assert_eq!((draft.routes[0].limits.len(), draft.routes[0].more.entries.len()), (1, 1));
}

#[test]
fn items_that_cannot_be_corrected_are_left_out() {
    let mut draft = Draft::default();
    let good = route(&mut draft, "good", "/good");
    let bad = route(&mut draft, "bad", "no path");
    let targets = vec![Target { url: "ftp://a".to_owned(), weight: 1 }];
    draft.upstreams.push(Upstream { name: "ftp".to_owned(), targets, ..Upstream::default() });
    let ftp = Route { upstream: Some("ftp".to_owned()), ..route(&mut draft, "ftp", "/ftp") };
    draft.routes.extend([bad, good, ftp]);
    draft.listen.push(Listen { address: "0.0.0.0:80".to_owned(), ..Listen::default() });
    draft.listen.push(Listen { address: "nowhere".to_owned(), ..Listen::default() });
    draft.more.set("requests", Map::of([("slashes", Value::Text("lose".to_owned()))]));
    let findings = repaired(&mut draft);
    for setting in ["route bad", "upstream ftp and its routes", "listener nowhere", "requests"] {
        assert!(findings.iter().any(|it| it.contains(&format!(" lost {setting}: "))), "{setting}: {findings:?}");
    }
    let names: Vec<_> = draft.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["good"]);
}
