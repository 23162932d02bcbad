//! The rules decide about a recorded request as about the original.

mod held;
mod identity;

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use http::header::{HeaderMap, HeaderValue};
use http::{HeaderName, Method, Uri};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use tidegate_config::Config;
use tidegate_rules::request::facts::HostRequirement;
use tidegate_rules::rules::{LimitCheck, MissingInput, Rules};

const RULES: &str = "
routes:
  - name: beta
    match: { path: /**, headers: { x-plan: [beta, gold, s3cret] }, not: [{ cookies: { old: present } }] }
    limits: [{ name: key, mode: PER_CLIENT, client: 'header:x-plan', rate: 1, interval: 1m }]
  - name: lab
    match: { path: /**, query: { lab: 'a b' }, clients: [10.0.0.0/8, 2001:db8::/48] }
    limits: [{ name: key, mode: PER_CLIENT, client: 'query:lab', rate: 1, interval: 1m }]
  - name: rest
    match: { path: /** }
    limits:
      - { name: header, mode: PER_CLIENT, client: 'header:x-key', rate: 1, interval: 1m }
      - { name: bearer, mode: PER_CLIENT, client: 'header:authorization', shadow: true, rate: 1, interval: 1m }
      - { name: cookie, mode: PER_CLIENT, client: 'cookie:sid', on_missing_client: skip, rate: 1, interval: 1m }
      - { name: query, mode: PER_CLIENT, client: 'query:key', on_missing_client: ip, rate: 1, interval: 1m }
      - { name: pair, mode: PER_CLIENT, client: ['query:key', ip, path], shadow: true, rate: 1, interval: 1m }
      - { name: cost, mode: OVERALL, permits: { header: x-cost, default: 1, max: 50 }, rate: 100, interval: 1m }
      - { name: some, mode: OVERALL, rate: 100, interval: 1m, when: { cookies: { tier: [gold, 'x y'] } } }
      - { name: parts, mode: OVERALL, rate: 100, interval: 1m, when: { case: insensitive, headers: { x-plan: { prefix: G } } } }
      - { name: end, mode: OVERALL, rate: 100, interval: 1m, when: { query: { key: [{ suffix: old, contains: g }] } } }
      - { name: not, mode: OVERALL, rate: 100, interval: 1m, when: { not: [{ query: { key: absent } }] } }
";

/// A constant of a condition, read from a file.
const SECRET: &str = "s3cret";

static PARSED: LazyLock<Arc<Rules>> =
    LazyLock::new(|| Config::parse(RULES).unwrap_or_else(|problems| panic!("{problems}")).rules);
static INPUTS: LazyLock<Arc<Inputs>> = LazyLock::new(|| Arc::new(Inputs::new(&PARSED, &|text| text == SECRET)));

/// A request of a test.
#[derive(Clone, Debug)]
struct Sent {
    address: IpAddr,
    target: String,
    fields: Vec<(&'static str, String)>,
}

impl Sent {
    fn headers(&self) -> HeaderMap {
        let field = |(name, value): &(&'static str, String)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).expect("a value"))
        };
        self.fields.iter().map(field).collect()
    }

    /// Calls `test` with the facts, unless the request is invalid.
    fn with_facts<T>(&self, rules: &Rules, test: impl FnOnce(&Facts<'_>) -> T) -> Option<T> {
        let (headers, uri) = (self.headers(), self.target.parse::<Uri>().ok()?);
        let facts = rules.read(&Method::GET, &uri, HostRequirement::Optional, &headers, self.address).ok()?;
        Some(test(&Facts { peer_is_client: true, ..facts }))
    }
}

/// Returns the request that a replay reads from the members of a line.
fn replayed(members: &str) -> Sent {
    let line: Value = serde_json::from_str(members).expect("JSON");
    let names = ["x-plan", "x-key", "authorization", "x-cost", "cookie"];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let fields = names
        .into_iter()
        .flat_map(|name| line["headers"][name].as_array().into_iter().flatten().map(move |value| (name, text(value))));
    let (address, target) = (text(&line["client"]).parse().expect("an address"), text(&line["path"]));
    Sent { address, target, fields: fields.collect() }
}

/// Returns the decision of the rules: the route, and the check of each limit. Clients are numbers, in the order of their
/// first request.
fn decision(rules: &Rules, facts: &Facts<'_>, clients: &mut Vec<(String, ClientId)>) -> (String, Vec<String>) {
    let Some((_, route)) = rules.routes.find(facts) else { return (String::new(), Vec::new()) };
    if route.matcher.is_ambiguous(facts) {
        return ("ambiguous".to_owned(), Vec::new());
    }
    let mut number = |limit: &str, client: ClientId| {
        let client = (limit.to_owned(), client);
        clients.iter().position(|other| *other == client).unwrap_or_else(|| {
            clients.push(client);
            clients.len() - 1
        })
    };
    let checks = route.limits.iter().map(|limit| match rules.check_limit(limit, facts) {
        LimitCheck::Charge(charge) => {
            format!("{:?} {}", charge.client.map(|client| number(&limit.name, client)), charge.permits)
        }
        LimitCheck::Skip(MissingInput::Client(error)) => format!("skip {error:?}"),
        LimitCheck::Deny(MissingInput::Client(error)) => format!("deny {error:?}"),
        check => format!("{check:?}"),
    });
    (route.name.to_string(), checks.collect())
}

/// Spellings of values: equal ones, unequal ones, and ambiguous ones.
fn value() -> impl Strategy<Value = String> {
    let likely = prop::sample::select(vec![
        "k1",
        "k2",
        "%6b1",
        "\"k1\"",
        " k1 ",
        "gold",
        "g%6fld",
        "beta",
        "a b",
        "a+b",
        "a%20b",
        "x y",
        "",
        "-",
        "%",
        "7",
        "050",
        "51",
        "eyJhIjox",
        "eyJ!",
        "Bearer t",
        "bearer  t",
        "Bearer t u",
        "Basic eDp5",
        "REDACTED",
        "k1\u{a0}",
        "k1,k2",
        "k1;k2",
        "\"k1",
    ]);
    prop_oneof![8 => likely.prop_map(str::to_owned), 1 => "[!-~]{1,12}"]
}

fn pairs(names: &'static [&'static str], separators: &'static [&'static str]) -> impl Strategy<Value = String> {
    let pair = (prop::sample::select(names), value(), prop::sample::select(separators));
    let pairs = prop::collection::vec(pair, 0..4);
    pairs.prop_map(|pairs| pairs.iter().map(|(name, value, separator)| format!("{name}={value}{separator}")).collect())
}

fn sent() -> impl Strategy<Value = Sent> {
    let names = prop::sample::select(vec!["x-plan", "x-key", "authorization", "x-cost"]);
    let cookies = pairs(&["sid", "SID", "tier", "old", "s%69d", "other", "sid[]"], &["; ", ";", ", "]);
    let query = pairs(&["key", "Key", "lab", "k%65y", "other", "key[]", "%zz"], &["&", "&", ";"]);
    let address = prop_oneof![
        (0..4_u8).prop_map(|last| IpAddr::from([10, 0, 0, last])),
        (0..4_u8).prop_map(|last| IpAddr::from([192, 0, 2, last])),
        (0..4_u16).prop_map(|last| IpAddr::from([0x2001, 0xdb8, 0, last / 2, 0, 0, 0, last])),
    ];
    let fields = prop::collection::vec((names, value()), 0..4);
    (address, query, cookies, fields).prop_map(|(address, query, cookies, mut fields)| {
        fields.push(("cookie", cookies));
        let fields = fields.into_iter().filter(|(name, value)| *name != "cookie" || !value.is_empty()).collect();
        Sent { address, target: format!("/a?{}", query.replace([' ', '"', '\u{a0}'], "%22")), fields }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn recorded_requests_are_decided_as_the_originals(requests in prop::collection::vec(sent(), 1..6), key: [u8; 32]) {
        let (rules, inputs, key) = (&*PARSED, &*INPUTS, Key::from(key));
        let (mut clients, mut recorded_clients) = (Vec::new(), Vec::new());
        for sent in requests {
            let original = sent.with_facts(rules, |facts| {
                let members = inputs.line(facts, Some(sent.address), None, &key)?;
                Some((decision(rules, facts, &mut clients), members))
            });
            // The gateway rejects ambiguous requests and does not record them.
            let Some((original, members)) = original.flatten().filter(|(original, _)| original.0 != "ambiguous") else {
                continue;
            };
            let recorded = replayed(&members).with_facts(rules, |facts| decision(rules, facts, &mut recorded_clients));
            prop_assert_eq!(recorded, Some(original), "{}", members);
        }
    }
}

fn sent_request(fields: &[(&'static str, &str)], target: &str) -> Sent {
    let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Sent { address: IpAddr::from([192, 0, 2, 1]), target: target.to_owned(), fields }
}

#[test]
fn usual_and_hostile_spellings_are_recorded() {
    let (rules, inputs) = (&*PARSED, &*INPUTS);
    let is_recorded = |request: &Sent| {
        let line = request.with_facts(rules, |facts| inputs.line(facts, None, None, &Key::from([1; 32])));
        line.expect("a valid request").is_some()
    };
    let pairs = [
        "",
        "N=k1",
        "N=",
        "N",
        "N=%6b1",
        "N=eyJ!",
        "N=eyJhIjox",
        "N=k1%",
        "N=%00",
        "o=1S N=k1",
        "N=gold",
        "N=g%6fld",
        "N=k1SN=k2",
        "N=goldSN=k2",
        "N[]=k1",
        "N=x%20y",
        "N=a%20b",
        "N=k1SN[]=k2",
    ];
    for pair in pairs {
        for name in ["sid", "SID", "s%69d", "tier", "TIER", "old"] {
            let cookie = pair.replace('N', name).replace('S', ";");
            assert!(is_recorded(&sent_request(&[("cookie", &cookie)], "/")), "{cookie}");
        }
        for name in ["key", "KEY", "k%65y", "lab", "LAB"] {
            let query = pair.replace("S ", "&").replace('S', "&").replace('N', name);
            assert!(is_recorded(&sent_request(&[], &format!("/?{query}"))), "{query}");
        }
    }
    for value in [
        "k1",
        " k1 ",
        "eyJ!",
        "Bearer t",
        "bearer  t",
        "Bearer t u",
        "Basic eDp5",
        "k1\u{a0}",
        "7",
        "051",
        "-",
        "",
        "gold",
        "Gold",
    ] {
        for name in ["x-key", "x-plan", "authorization", "x-cost"] {
            assert!(is_recorded(&sent_request(&[(name, value)], "/")), "{name}: {value}");
        }
        for name in ["x-key", "authorization", "x-cost"] {
            assert!(is_recorded(&sent_request(&[(name, value), (name, "7")], "/")), "{name}: {value}");
        }
    }
}

#[test]
fn recorded_client_values_are_hashed() {
    let rules = &*PARSED;
    let fields = [
        ("x-key", "secret-1"),
        ("authorization", "Bearer secret-2"),
        ("cookie", "sid=secret-3; other=secret-4; tier=secret-5"),
        ("x-other", "secret-6"),
        ("x-cost", "7"),
        ("x-plan", "secret-7"),
    ];
    let request = sent_request(&fields, "/a;p=secret/%62?key=secret-8&other=secret-9&lab=secret-10");
    let members =
        request.with_facts(rules, |facts| INPUTS.line(facts, Some(request.address), Some("rest"), &Key::from([1; 32])));
    let members = members.flatten().expect("a line");
    assert!(!members.contains("secret") && !members.contains("other") && !members.contains("192.0.2.1"), "{members}");
    let line: Value = serde_json::from_str(&members).expect("JSON");
    assert!(line["path"].as_str().is_some_and(|path| path.starts_with("/a/b?lab=h")), "{members}");
    assert_eq!((&line["headers"]["x-cost"][0], &line["route"]), (&"7".into(), &"rest".into()));
    let plan = sent_request(&[("x-plan", "gold")], "/")
        .with_facts(rules, |facts| INPUTS.line(facts, None, None, &Key::from([1; 32])));
    assert!(plan.flatten().expect("a line").contains("\"x-plan\":[\"gold\"]"));
    let secret = sent_request(&[("x-plan", SECRET)], "/")
        .with_facts(rules, |facts| INPUTS.line(facts, None, None, &Key::from([1; 32])));
    assert_eq!(secret, Some(None), "the secret constant was recorded");
}

fn lines(recorder: &Recorder, request: &Sent) -> Vec<PendingLine> {
    let (rules, inputs) = (&*PARSED, &*INPUTS);
    let found = request
        .with_facts(rules, |facts| recorder.lines(inputs, rules.routes.find(facts).map(|(_, route)| route), facts));
    found.expect("a valid request")
}

fn all() -> Selection {
    Selection { sample: 1.0, clients: Vec::new() }
}

#[tokio::test]
async fn reader_gets_lines_until_the_end() {
    let recorder = Arc::new(Recorder::default());
    assert!(!recorder.is_active());
    let [mut first, mut second] = [(), ()].map(|()| recorder.start(all()).expect("a recording"));
    assert!(recorder.is_active());
    let request = sent_request(&[("x-key", "k")], "/");
    let pending = lines(&recorder, &request);
    assert_eq!((pending.len(), first.in_flight(), second.in_flight()), (2, 1, 1));
    pending.into_iter().for_each(|line| line.send(7, "allowed", Some(200)));
    let [line, other] = [first.lines().await, second.lines().await].map(|lines| lines.expect("lines"));
    assert_eq!(first.in_flight(), 0);
    assert!(
        line.starts_with("{\"time\":7,\"limits\":\"allowed\",\"status\":200,\"client\":\"") && line.ends_with("}\n"),
        "{line}"
    );
    let key = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["headers"]["x-key"].clone();
    assert_ne!(key(&line), key(&other), "the keys are equal");
    let in_flight = lines(&recorder, &request);
    drop(second);
    for line in in_flight {
        line.send(8, "allowed", None);
    }
    assert_eq!(first.in_flight(), 0);
    assert!(first.lines().await.expect("a line").starts_with("{\"time\":8,\"limits\":\"allowed\",\"client\""));
    assert!(!recorder.end("") && recorder.end(first.id()));
    assert_eq!(first.lines().await, None);
    assert!(!recorder.is_active() && lines(&recorder, &request).is_empty());
}

#[tokio::test]
async fn slow_reader_loses_lines_and_memory_is_bounded() {
    let recorder = Arc::new(Recorder::default());
    let mut reader = recorder.start(all()).expect("a recording");
    let (short, long) =
        (sent_request(&[("x-key", "k")], "/"), sent_request(&[], &format!("/{}", "a".repeat(MAX_LINE))));
    let send =
        |request: &Sent| lines(&recorder, request).into_iter().for_each(|line| line.send(7, "allowed", Some(200)));
    send(&long);
    assert_eq!((reader.dropped(), reader.waiting_lines()), (1, None));
    let half = sent_request(&[], &format!("/{}", "a".repeat(MAX_LINE / 2)));
    let sent = MAX_QUEUED / (MAX_LINE / 2) + 10;
    (0..sent).for_each(|_| send(&half));
    let dropped = reader.dropped() - 1;
    assert!((9..20).contains(&dropped), "{dropped}");
    let mut taken = 0;
    while let Some(lines) = reader.waiting_lines() {
        assert!(lines.len() < CHUNK_AT_MOST && lines.ends_with('\n'));
        taken += lines.lines().count() as u64;
    }
    assert_eq!(taken + dropped, sent as u64);
    send(&short);
    assert!(reader.waiting_lines().is_some());
}

/// A chunk, and one more line.
const CHUNK_AT_MOST: usize = (64 << 10) + MAX_LINE;

#[tokio::test]
async fn recordings_are_few_and_end_with_the_gateway() {
    let recorder = Arc::new(Recorder::default());
    let mut readers: Vec<_> = (0..MAX_RECORDINGS).map(|_| recorder.start(all()).expect("a recording")).collect();
    assert_eq!(recorder.start(all()).err(), Some(RecordingError::TooMany));
    readers.pop();
    readers.push(recorder.start(all()).expect("a recording"));
    recorder.close();
    assert_eq!(readers[0].lines().await, None);
    drop(readers);
    assert_eq!(recorder.start(all()).err(), Some(RecordingError::Closed));
}

#[tokio::test]
async fn sample_has_all_requests_of_a_client_or_none() {
    let recorder = Arc::new(Recorder::default());
    let _reader = recorder.start(Selection { sample: 0.5, clients: Vec::new() }).expect("a recording");
    let mut sampled = 0;
    for client in 0..200 {
        // Another spelling and another address are the same client.
        let mut requests = [
            sent_request(&[("x-key", &format!("k{client}"))], "/"),
            sent_request(&[("x-key", &format!(" k{client} "))], "/b?key=1"),
        ];
        requests[1].address = IpAddr::from([192, 0, 2, client]);
        let [first, second] = requests.map(|request| lines(&recorder, &request).len());
        assert_eq!(first, second);
        sampled += first;
    }
    assert!((50..150).contains(&sampled), "{sampled}");
}

#[tokio::test]
async fn further_client_sources_are_recorded() {
    let recorder = Arc::new(Recorder::default());
    let clients = vec![ClientSource::Header(HeaderName::from_static("x-org"))];
    let held = INPUTS.held(&clients);
    assert!(held.has(&clients[0]) && !INPUTS.held(&[]).has(&clients[0]));
    let mut fields = Vec::new();
    held.add_fields(&mut |name| fields.push(name.to_string()));
    fields.sort();
    assert_eq!(fields, ["authorization", "cookie", "x-cost", "x-key", "x-org", "x-plan"]);
    let mut reader = recorder.start(Selection { sample: 1.0, clients }).expect("a recording");
    lines(&recorder, &sent_request(&[("x-org", "acme")], "/"))
        .into_iter()
        .for_each(|line| line.send(7, "allowed", None));
    let line = reader.lines().await.expect("a line");
    assert!(line.contains("\"x-org\":[\"h") && !line.contains("acme"), "{line}");
}

#[test]
fn route_decides_about_the_sample() {
    let rules = &*PARSED;
    let source = |name: &str| sampled_by(rules.routes.iter().find(|route| *route.name == *name)).to_string();
    assert_eq!((source("beta").as_str(), source("rest").as_str()), ("header:x-plan", "header:x-key"));
    assert_eq!(sampled_by(None), &ClientSource::Ip);
}
