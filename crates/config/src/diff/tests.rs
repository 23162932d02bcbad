//! Comparisons of two rule files.

use super::*;
use crate::LibraryFiles;

const BASE: &str = "
listen: 127.0.0.1:8080
upstreams: { api: { targets: ['http://127.0.0.1:9000'] } }
routes:
  - name: login
    match: { path: /login }
    upstream: api
    limits: [{ name: per-ip, mode: PER_CLIENT, client: ip, rate: 5, interval: 1m }]
  - { name: rest, match: { path: /** }, upstream: api }
";

fn parse(text: &str) -> Config {
    Config::parse_for_gateway(text, &LibraryFiles).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// Returns the changes of a file in which these texts are replaced.
fn lines(replaced: &[(&str, &str)]) -> Vec<String> {
    let text = replaced.iter().fold(BASE.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replace(old, new)
    });
    let diff = ConfigDiff::new(&parse(BASE), &parse(&text));
    assert_eq!(diff.is_empty(), diff.lines().is_empty());
    diff.lines()
}

#[test]
fn equal_files_have_no_differences() {
    assert!(lines(&[]).is_empty());
    assert!(lines(&[("rate: 5, interval: 1m", "interval: 60s, rate: 5")]).is_empty());
}

#[test]
fn changed_rate_keeps_permits_in_use() {
    let expected = "limit login/per-ip: changed (rate), 5 per 1m (token_bucket) -> 9 per 1m (token_bucket), \
                    permits in use are kept";
    assert_eq!(lines(&[("rate: 5", "rate: 9")]), [expected]);
}

#[test]
fn other_mode_client_or_algorithm_starts_empty() {
    for (old, new) in [
        ("mode: PER_CLIENT, client: ip", "mode: OVERALL"),
        ("client: ip", "client: 'header:x-key'"),
        ("interval: 1m", "interval: 1m, algorithm: gcra, burst: 5"),
        ("interval: 1m", "interval: 1m, key: other"),
    ] {
        let lines = lines(&[(old, new)]);
        assert!(lines[0].ends_with("starts with no permits in use"), "{lines:?}");
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}

#[test]
fn limit_with_the_same_key_keeps_its_permits_in_another_route() {
    let limit = "limits: [{ name: per-ip, mode: PER_CLIENT, client: ip, rate: 5, interval: 1m }]";
    let rest = "{ name: rest, match: { path: /** }, upstream: api";
    let text = format!("store: redis://db\n{}", BASE.replace("interval", "key: shared, interval"));
    let keyed = limit.replace("interval", "key: shared, interval");
    let moved = text.replace(&keyed, "limits: []").replace(rest, &format!("{rest}, {keyed}"));
    let changes = ConfigDiff::new(&parse(&text), &parse(&moved)).lines();
    let expected = [
        "route login: changed (limits)",
        "route rest: changed (limits)",
        "limit rest/per-ip: added, 5 per 1m (redisson), permits in use are kept",
        "limit login/per-ip: removed, 5 per 1m (redisson)",
    ];
    assert_eq!(changes, expected);
}

#[test]
fn other_store_empties_all_limits() {
    let changes = lines(&[("upstreams:", "store: redis://db\nupstreams:")]);
    assert!(changes[0].contains("changed (store)") && changes[0].ends_with("no permits in use"), "{changes:?}");
    assert_eq!(changes[1], "setting store: changed");
    let redis = |more: &str| parse(&format!("store: {{ url: 'redis://{more} }}\n{BASE}"));
    let permits = |new: &str| ConfigDiff::new(&redis("u:p@db/1', timeout: 50ms"), &redis(new)).limits.len();
    assert_eq!(permits("u:q@db/1', timeout: 20ms"), 0, "the same buckets, reached in another way");
    assert_eq!(permits("u:p@db/2'"), 1);
    assert_eq!(permits("u:p@db/1', prefix: shop."), 1);
}

#[test]
fn routes_are_added_removed_changed_and_reordered() {
    let rest = "  - { name: rest, match: { path: /** }, upstream: api }\n";
    assert_eq!(lines(&[(rest, "")]), ["route rest: removed"]);
    let added = format!("{}{rest}", rest.replace("rest", "new").replace("/**", "/new"));
    assert_eq!(lines(&[(rest, &added)]), ["route new: added"]);
    assert_eq!(lines(&[("path: /login }", "path: /signin }")]), ["route login: changed (match)"]);
    let moved = rest.replace("/**", "/rest");
    let text = BASE.replace(rest, &moved);
    let swapped = text.replace(&moved, "").replace("routes:\n", &format!("routes:\n{moved}"));
    let diff = ConfigDiff::new(&parse(&text), &parse(&swapped));
    assert_eq!(diff.lines(), ["routes are in another order"]);
}

#[test]
fn listeners_and_upstreams_name_their_changed_keys() {
    let listen = "listen: 127.0.0.1:8080";
    let changed = "listen: { address: 127.0.0.1:8080, idle_timeout: 5s, max_streams: 7 }";
    assert_eq!(lines(&[(listen, changed)]), ["listener 127.0.0.1:8080: changed (max_streams, idle_timeout)"]);
    let moved = lines(&[(listen, "listen: 127.0.0.1:8081")]);
    assert_eq!(moved, ["listener 127.0.0.1:8081: added", "listener 127.0.0.1:8080: removed"]);
    assert_eq!(lines(&[("127.0.0.1:9000'", "127.0.0.1:9001'")]), ["upstream api: changed (targets)"]);
    let several = |text: &str| parse(&BASE.replace("listen: 127.0.0.1:8080", &format!("listen: [{text}]")));
    let diff = ConfigDiff::new(&several("127.0.0.1:0"), &several("127.0.0.1:0, 127.0.0.1:0"));
    assert_eq!(diff.lines(), ["listener 127.0.0.1:0 (2): added"]);
}

#[test]
fn other_settings_are_named_without_values() {
    let changed = "clients: { trusted_proxies: [10.0.0.0/8] }\nrequests: { encoded_slash: decode }\nadmin: off\n\
                   access_log: stdout\nmax_connections: 7\nupstreams:";
    let expected = ["max_connections", "admin", "access_log", "clients", "requests"];
    assert_eq!(lines(&[("upstreams:", changed)]), expected.map(|key| format!("setting {key}: changed")));
}

#[test]
fn shared_limit_is_one_difference_and_keeps_its_permits() {
    let shared = |text: &str, rate: u32| {
        let limits =
            format!("limits: {{ daily: {{ mode: PER_CLIENT, client: ip, rate: {rate}, interval: 1d }} }}\nroutes:");
        parse(&text.replace("routes:", &limits).replace("limits: [{", "limits: [daily, {"))
    };
    let both = BASE.replace("name: rest, match: { path: /** }", "name: rest, match: { path: /** }, limits: [daily]");
    let diff = |old: &Config, new: &Config| ConfigDiff::new(old, new).lines();
    let expected =
        "limit @/daily: changed (rate), 9 per 1d (token_bucket) -> 5 per 1d (token_bucket), permits in use are kept";
    assert_eq!(diff(&shared(&both, 9), &shared(&both, 5)), [expected]);
    // The route `rest` uses the limit, too: the limit itself has not changed.
    assert_eq!(diff(&shared(BASE, 9), &shared(&both, 9)), ["route rest: changed (limits)"]);
    let removed = ["route login: changed (limits)", "limit @/daily: removed, 9 per 1d (token_bucket)"];
    assert_eq!(diff(&shared(BASE, 9), &parse(BASE)), removed);
}

#[test]
fn moved_limit_is_no_difference() {
    let moved = format!("# A comment\n{BASE}");
    let (old, new) = (parse(BASE), parse(&moved));
    assert!(ConfigDiff::new(&old, &new).is_empty());
    let line = |config: &Config| routes(config)[0].1.limits[0].location.line;
    assert_eq!((line(&old), line(&new)), (8, 9));
    assert_ne!(old.rules, new.rules, "operators would see the old line");
}

const SERVICE: &str = "
service:
  grpc: 127.0.0.1:8081
  domains:
    - name: edge
      limits:
        - { name: a, match: { user: '*' }, mode: PER_CLIENT, rate: 5, interval: 1m }
        - { name: b, match: { path: '*' }, mode: OVERALL, rate: 5, interval: 1m }
";

#[test]
fn domains_and_their_limits_are_compared() {
    let lines = |old: &str, new: &str| ConfigDiff::new(&parse(old), &parse(new)).lines();
    assert!(lines(SERVICE, &SERVICE.replace("  domains", "\n  domains")).is_empty());
    let rate =
        "limit /edge/a: changed (rate), 5 per 1m (token_bucket) -> 6 per 1m (token_bucket), permits in use are kept";
    assert_eq!(lines(SERVICE, &SERVICE.replacen("rate: 5", "rate: 6", 1)), [rate]);
    // The clients of a PER_CLIENT limit depend on the descriptors.
    let matched = lines(SERVICE, &SERVICE.replace("user: '*'", "id: '*'").replace("path: '*'", "path: /*"));
    let expected = [
        "domain edge: changed (match)",
        "limit /edge/a: changed (match), 5 per 1m (token_bucket), starts with no permits in use",
        "limit /edge/b: changed (match), 5 per 1m (token_bucket), permits in use are kept",
    ];
    assert_eq!(matched, expected);
    let renamed = lines(SERVICE, &SERVICE.replace("name: edge", "name: inner").replace("8081", "8082"));
    let expected = [
        "domain inner: added",
        "domain edge: removed",
        "limit /inner/a: added, 5 per 1m (token_bucket), starts with no permits in use",
        "limit /inner/b: added, 5 per 1m (token_bucket), starts with no permits in use",
        "limit /edge/a: removed, 5 per 1m (token_bucket)",
        "limit /edge/b: removed, 5 per 1m (token_bucket)",
        "setting service.grpc: changed",
    ];
    assert_eq!(renamed, expected);
}
