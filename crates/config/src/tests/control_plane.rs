//! The domains that a control plane sends.

use tidegate_limit::Algorithm;
use tidegate_service::{Domain, Entry};

use crate::built::{Item, Map, Part};
use crate::diff::ConfigDiff;
use crate::{Config, ControlPlane, LibraryFiles, Service};

const RULES: &str = "
service:
  grpc: 127.0.0.1:8081
  descriptors: { xds: 'http://plane:18000', node: one }
  algorithm: { domains: { sent: gcra } }
  domains:
    - name: own
      limits: [{ name: per-user, match: { user: '*' }, mode: PER_CLIENT, rate: 5, interval: 1m }]
";

fn service(text: &str) -> Service {
    let config = Config::parse_for_gateway(text, &LibraryFiles).unwrap_or_else(|problems| panic!("{problems}"));
    config.service.expect("a service")
}

fn plane(text: &str) -> ControlPlane {
    service(text).control_plane.expect("a control plane")
}

fn map(entries: impl IntoIterator<Item = (&'static str, Item)>) -> Map {
    let mut map = Map::default();
    entries.into_iter().for_each(|(key, value)| map.set(key, value));
    map
}

/// Returns a descriptor with this key and limit.
fn descriptor(key: &str, unit: &str) -> Item {
    let limit = map([("unit", unit.into()), ("requests_per_unit", 7.into())]);
    Part { kind: "descriptor", name: key.into(), keys: map([("key", key.into()), ("rate_limit", limit.into())]) }.into()
}

fn resource(name: &str, domain: &str, descriptors: impl IntoIterator<Item = Item>) -> Part {
    let keys = map([("domain", domain.into()), ("descriptors", descriptors.into_iter().collect())]);
    Part { kind: "resource", name: name.into(), keys }
}

/// Returns the name and the algorithm of the limit of a descriptor.
fn found(service: &Service, domain: &str, key: &str) -> Option<(String, Algorithm)> {
    let trace = service.domains.get(domain).map(|domain: &Domain| domain.trace(&[Entry { key, value: "x" }]))?;
    trace.limit.and_then(|named| Some((named.name.to_owned(), named.limit?.limiter.quota.algorithm())))
}

#[test]
fn sent_domains_are_added_to_the_own_domains() {
    let own = service(RULES);
    assert!(own.domains.is_partial() && own.domains.get("sent").is_none());
    let sent = own.with_sent_domains(&[resource("a", "sent", [descriptor("user", "MINUTE")])]).expect("domains");
    assert_eq!(sent.service.domains.iter().map(Domain::name).collect::<Vec<_>>(), ["own", "sent"]);
    assert!(!sent.service.domains.is_partial() && sent.warnings.is_empty());
    assert_eq!(found(&sent.service, "sent", "user"), Some(("user".to_owned(), Algorithm::Gcra { burst: 7 })));
    let rule = sent.service.domains.get("sent").and_then(|domain| domain.rule_limits().next()).expect("a limit").rule;
    assert_eq!(&*rule.location.file, "xds:a");
    // The next configuration has all domains (state of the world).
    let next = sent.service.with_sent_domains(&[]).expect("domains");
    assert_eq!(next.service.domains.iter().map(Domain::name).collect::<Vec<_>>(), ["own"]);
}

#[test]
fn errors_name_the_resource_and_the_descriptor() {
    let nested = {
        let keys =
            map([("key", "tenant".into()), ("descriptors", [descriptor("user", "fortnight")].into_iter().collect())]);
        Part { kind: "descriptor", name: "tenant".into(), keys }.into()
    };
    let resources = [
        resource("first", "edge", [descriptor("user", "week"), descriptor("user", "day"), nested]),
        resource("second", "edge", []),
        resource("third", "own", []),
        resource("fourth", "", []),
    ];
    let problems = service(RULES).with_sent_domains(&resources).expect_err("errors");
    let lines: Vec<_> = problems.iter().map(|problem| problem.to_string().replace("\n  help: ", " | ")).collect();
    let expected = [
        "descriptor `user` of resource `first`: a descriptor with the key `user` is already at position 1 | remove one of them, or join their `descriptors`",
        "descriptor `user` of descriptor `tenant` of resource `first`: `fortnight` is not a unit | use `second`, `minute`, `hour`, `day`, `week`, `month` or `year`",
        "resource `second`: domain `edge` is already at position 1 | give each domain its own name",
        "resource `third`: domain `own` is already in the rule file | give each domain its own name",
        "resource `fourth`: `domain` is missing | name the domain of the proxy's filter",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn only_a_changed_connection_is_another_control_plane() {
    let before = plane(RULES);
    assert!(before.has_same_connection(&plane(&RULES.replace("rate: 5", "rate: 6"))));
    for (old, new) in [("plane:18000", "plane:18001"), ("one", "two"), ("http:", "https:")] {
        assert!(!before.has_same_connection(&plane(&RULES.replace(old, new))), "{new}");
    }
    let diff = |text: &str| {
        let parse = |text: &str| Config::parse_for_gateway(text, &LibraryFiles).expect("valid rules");
        ConfigDiff::new(&parse(RULES), &parse(text)).settings
    };
    assert_eq!(diff(&RULES.replace("node: one", "node: one, required: false")), ["service.descriptors"]);
    assert!(diff(RULES).is_empty());
}

#[test]
fn optional_control_plane_has_complete_domains() {
    assert!(!service(&RULES.replace("node: one", "required: false")).domains.is_partial());
    assert_eq!(plane(&RULES.replace(", node: one", "")).node, "default");
}
