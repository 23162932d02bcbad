//! `explain` and the gateway give the same answer to random requests: heads at their limits, spellings of paths,
//! preflights, credentials, conditions, and the requests of proxies.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::case_count;
use crate::support::gateway::TestGateway;
use crate::support::process::RuleFile;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::upstream::Origin;

fn rules(origin: &Origin, keys: &RuleFile) -> String {
    format!(
        "clients: {{ trusted_proxies: [127.0.0.0/8] }}
identities: {{ keys: {{ header: X-Key, file: {keys} }} }}
upstreams: {{ api: {{ targets: ['http://{origin}'] }} }}
routes:
  - {{ name: ask, match: {{ path: /_ask }}, authorize: {{}} }}
  - {{ name: nginx, match: {{ path: /_nginx }}, authorize: {{ nginx: true }} }}
  - {{ name: envoy, match: {{ path: '/_envoy/**' }}, authorize: {{}} }}
  - {{ name: blocked, match: {{ clients: [203.0.113.0/24] }}, respond: {{ status: 403 }} }}
  - {{ name: moved, match: {{ path: /old/** }}, redirect: {{ to: 'https://a.example{{path}}', status: 308 }} }}
  - name: shop
    match: {{ path: '/shop/**', methods: [GET, POST, PUT] }}
    upstream: api
    cors: {{ origins: ['https://app.example'], methods: [GET, PUT] }}
    quota: /shop/quota
    max_body: 1KiB
    reject: {{ status: 420, content_type: text/plain, body: slow }}
    limits:
      - {{ name: none, mode: OVERALL, rate: 9, interval: 1h, permits: {{ header: X-Cost, max: 9 }} }}
      - {{ name: own, mode: PER_CLIENT, client: 'header:X-Tenant', on_missing_client: ip, rate: 1000000, interval: 1s }}
  - name: gold-key
    match: {{ path: '/account/{{id}}', identity: {{ 'key:tier': gold }} }}
    upstream: api
    quota: /account-quota
    require: {{ keys: {{ team: {{ not: b }} }} }}
    limits: [{{ name: ip, mode: PER_CLIENT, client: ip, rate: 1000000, interval: 1s }}]
  - name: account
    match: {{ path: '/account/{{id}}', not: {{ methods: [DELETE] }} }}
    upstream: api
    require: keys
    quota: /account-quota
    limits:
      - {{ name: key, mode: PER_CLIENT, client: 'key:id', rate: 1000000, interval: 1s }}
      - {{ name: ip, mode: PER_CLIENT, client: ip, rate: 1000000, interval: 1s }}
  - name: gold
    match: {{ path: /tier, headers: {{ X-Tier: gold }}, query: {{ v: ['1'] }}, cookies: {{ sid: present }} }}
    upstream: api
  - {{ name: tier, match: {{ path: /tier }}, upstream: api, max_body: 1KiB }}
  - {{ name: host, match: {{ host: '*.example', path: '/h/**' }}, upstream: api }}
",
        keys = keys.path(),
        origin = origin.address
    )
}

#[derive(Clone, Debug)]
struct Sent {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
}

fn words(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

fn target() -> impl Strategy<Value = String> {
    let segment = words(&[
        "shop", "account", "tier", "old", "h", "1", "..", ".", "", "%2e%2e", "..;", "a;v=1", "%73hop", "a%2fb", "%5c",
        "%252e", "SHOP", "a%00", "%ff", "*", "quota",
    ]);
    let path = prop::collection::vec(segment, 1..4).prop_map(|segments| format!("/{}", segments.join("/")));
    let known = words(&[
        "/shop/a",
        "/shop/a",
        "/shop/quota",
        "/account/1",
        "/account/1",
        "/account-quota",
        "/tier",
        "/tier",
        "/old/x",
        "/h/a",
        "/_ask",
        "/_ask",
        "/_nginx",
        "/_nginx",
        "/_envoy/shop/a",
        "/_envoy/account/1",
        "/_envoy/_ask",
        "*",
        "/none",
    ]);
    let query = words(&["", "", "", "?v=1", "?v=%31", "?v=1&v=2", "?v=2", "?a=b&v=1", "?v", "?V=1"]);
    let whole = (prop_oneof![1 => path, 4 => known], query)
        .prop_map(|(path, query)| if path == "*" { path } else { path + &query });
    // `max_target` is 8,192 bytes.
    let long = (8_180_usize..8_200).prop_map(|length| format!("/shop/{}", "x".repeat(length - 6)));
    let absolute = words(&["http://a.example/shop/a", "https://B.Example:443/h/a", "http://user@c.example/h/a"]);
    prop_oneof![20 => whole, 1 => long, 1 => absolute]
}

fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let field = prop::sample::select(vec![
        ("X-Key", "k-one"),
        ("X-Key", "k-one"),
        ("X-Key", "k-gold"),
        ("X-Key", "k-other"),
        ("X-Key", "k-none"),
        ("X-Tier", "gold"),
        ("X-Tier", " gold\t"),
        ("X-Tier", "silver"),
        ("X_Tier", "gold"),
        ("Cookie", "sid=1"),
        ("Cookie", "a=b; sid=2"),
        ("X-Tenant", "a"),
        ("X-Tenant", "b"),
        ("X-Cost", "3"),
        ("X-Cost", "99"),
        ("X-Cost", "-1"),
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-For", "198.51.100.1, 127.0.0.9"),
        ("X-Forwarded-For", "unknown"),
        ("Origin", "https://app.example"),
        ("Origin", "https://app.example"),
        ("Origin", "https://evil.example"),
        ("Access-Control-Request-Method", "PUT"),
        ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", "x-tier"),
        ("X-Original-URI", "/shop/a"),
        ("X-Original-URI", "/account/1"),
        ("X-Original-URI", "/old/x"),
        ("X-Original-URI", "/_ask"),
        ("X-Original-URI", "/none"),
        ("X-Original-Method", "GET"),
        ("X-Original-Method", "OPTIONS"),
        ("X-Forwarded-Uri", "/tier"),
        ("X-Forwarded-Method", "GET"),
        ("X-Forwarded-Host", "b.example"),
        ("Max-Forwards", "0"),
        ("Max-Forwards", "1"),
        ("Max-Forwards", "+0"),
        ("Via", "1.1 tidegate"),
        ("Connection", "x-tier"),
        ("Content-Length", "12"),
        ("Content-Length", "1025"),
        ("X-HTTP-Method-Override", "POST"),
    ]);
    let few = prop::collection::vec(field, 0..5);
    // `max_fields` is 100, and `max_field_bytes` is 16,384.
    let many = (95_usize..102).prop_map(|count| vec![("X-A".to_owned(), "1".to_owned()); count]);
    let large = (16_300_usize..16_400).prop_map(|length| vec![("X-A".to_owned(), "x".repeat(length))]);
    let few = few.prop_map(|few| few.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
    prop_oneof![30 => few, 1 => many, 1 => large]
}

/// Requests whose framing is valid: the codec checks it before any rule.
fn request() -> impl Strategy<Value = Sent> {
    let method =
        words(&["GET", "GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "OPTIONS", "TRACE", "Sweep", "get"]);
    let long = words(&["X-TIDEGATE-TEST-METHOD-OF-32-CHA", "X-TIDEGATE-TEST-METHOD-OF-33-CHAR"]);
    let host =
        words(&["a.example", "a.example", "a.example", "A.EXAMPLE.:80", "b.example", "other", "other", "a b", ""]);
    (prop_oneof![30 => method, 1 => long], target(), host, fields()).prop_map(|(method, target, host, mut fields)| {
        let mut has_length = false;
        fields.retain(|(name, _)| name != "Content-Length" || !std::mem::replace(&mut has_length, true));
        if !host.is_empty() {
            fields.insert(0, ("Host".to_owned(), host));
        }
        Sent { method, target, fields }
    })
}

impl Sent {
    fn bytes(&self) -> String {
        let fields: String = self.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = self.fields.iter().find(|(name, _)| name == "Content-Length");
        let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
        format!("{} {} HTTP/1.1\r\n{fields}\r\n{}", self.method, self.target, "x".repeat(length))
    }

    /// Returns the body of a request for an explanation.
    fn to_json(&self, peer: &str) -> String {
        let mut headers = serde_json::Map::new();
        for (name, value) in &self.fields {
            let values = headers.entry(name.to_lowercase()).or_insert_with(|| json!([]));
            values.as_array_mut().expect("values").push(json!(value));
        }
        json!({ "method": self.method, "url": self.target, "headers": headers, "peer": peer }).to_string()
    }

    /// Sends the request from this address. Returns the status, and whether the origin responded.
    async fn by_gateway(&self, gateway: &TestGateway, peer: &str) -> (u64, bool) {
        let mut client = Raw::connect_from(peer, gateway.address).await;
        let response = client.ask(self.bytes()).await;
        (response.status().into(), response.field("x-origin").is_some())
    }

    /// Explains the request in the same form.
    async fn by_explanation(&self, admin: &mut Raw, peer: &str) -> (u64, bool) {
        let body = self.to_json(peer);
        let head = "POST /api/v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let response: Message = admin.ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
        let explained: Value = serde_json::from_str(&response.text()).expect("JSON");
        if response.status() == 400 {
            return (400, false); // the target is not a URL
        }
        let status = |key: &str| explained[key].as_u64();
        match (status("status"), explained["admitted"].as_bool(), status("status_if_granted")) {
            (Some(status), ..) => (status, false),
            (None, Some(true), granted) => granted.map_or((200, true), |status| (status, false)),
            (None, Some(false), _) => (status("status_if_refused").expect("a status"), false),
            (None, None, _) => panic!("{self:?}: {explained}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanation_and_gateway_give_the_same_answer() {
    let origin = Origin::with_response("HTTP/1.1 200 OK\r\nX-Origin: 1\r\nContent-Length: 0\r\n\r\n").await;
    let keys = "k-one: { id: one }
k-gold: { id: two, tier: gold, attributes: { team: a } }
k-other: { id: three, tier: gold, attributes: { team: b } }
";
    let keys = RuleFile::new("explain-decides-keys", keys);
    let gateway = TestGateway::start(&rules(&origin, &keys));
    let mut admin = Raw::connect(gateway.admin).await;
    let (mut runner, strategy) = (TestRunner::deterministic(), request());
    let (mut seen, mut differences) = (std::collections::BTreeMap::new(), Vec::new());
    for number in 0..case_count(10_000) {
        let peer = format!("127.0.0.{}", number % 250 + 1);
        let sent = strategy.new_tree(&mut runner).expect("a request").current();
        let explained = sent.by_explanation(&mut admin, &peer).await;
        let decided = sent.by_gateway(&gateway, &peer).await;
        // The bound on requests for quotas, ten a second of a client, is not explained.
        let is_quota_bound = decided.0 == 429 && sent.target.contains("quota");
        if explained != decided && !is_quota_bound {
            differences.push(format!("explained {explained:?}, decided {decided:?}: {sent:?}"));
        }
        *seen.entry(decided).or_insert(0_usize) += 1;
    }
    differences.truncate(20);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // Each kind of answer occurs.
    let statuses = [200, 204, 308, 400, 401, 403, 404, 405, 413, 414, 420, 431, 501];
    for answer in statuses.map(|status| (status, false)).into_iter().chain([(200, true)]) {
        assert!(seen.contains_key(&answer), "{answer:?} does not occur: {seen:?}");
    }
}
