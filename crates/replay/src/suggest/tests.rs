//! Suggestions for generated logs.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use tidegate_config::{Config, RuleTexts};

const RULES: &str = "
routes:
  - name: login
    match: { path: /login }
    limits:
      - name: per-ip
        mode: PER_CLIENT
        client: ip
        rate: 30
        interval: 5m
        permits: 1
        on_missing_client: skip
        charge_on: [200-499]
  - name: api
    match: { path: /api }
    limits: [{ name: per-key, mode: PER_CLIENT, client: 'header:x-key', rate: 1, interval: 1m }]
";

/// The number of clients that guess passwords.
const ATTACKERS: u32 = 300;

/// The number of other clients.
const USERS: u32 = 9_697;

/// The number of users of a small log.
const FEW: u32 = 500;

/// An address that 2,000 people share.
const SHARED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// The second of a request, its client and its status.
type Logged = (u32, Ipv4Addr, u16);

/// A log in a temporary file. Dropping it removes the file.
struct Log(PathBuf);

impl Log {
    /// Writes a log of requests for `path`. No other test may use `name`.
    fn new(name: &str, path: &str, mut requests: Vec<Logged>) -> Self {
        requests.sort_unstable();
        let mut text = String::new();
        for (second, client, status) in requests {
            let time = format!("24/Nov/2026:12:{:02}:{:02} +0000", second / 60, second % 60);
            _ = writeln!(text, "{client} - - [{time}] \"GET {path} HTTP/1.1\" {status} 512 \"-\" \"curl/8.5.0\"");
        }
        let path = std::env::temp_dir().join(format!("tidegate-suggest-{name}-{}.log", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        Self(path)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Each attacker guesses five passwords a minute for ten minutes, and 98 % of the responses are 401.
fn attack(attackers: u32) -> Vec<Logged> {
    let requests = (0..attackers).flat_map(|attacker| {
        let address = Ipv4Addr::from(0xcb00_7100 + attacker); // from 203.0.113.0
        (0..50).map(move |number| {
            let status = if (number + attacker) % 50 == 0 { 200 } else { 401 };
            (number * 12 + attacker % 12, address, status)
        })
    });
    requests.collect()
}

/// Most users need one or two attempts in an hour. 61 of them try six times within a minute.
fn users(count: u32) -> Vec<Logged> {
    let requests = (0..count).flat_map(|user| {
        let address = Ipv4Addr::from(0x0a00_0000 + user);
        let (attempts, pause) = if user < 61 { (6, 8) } else { (1 + user % 2, 900) };
        let start = user * 7_919 % 1_700;
        (0..attempts).map(move |attempt| {
            let status = if attempt + 1 == attempts { 200 } else { 401 };
            (start + attempt * pause, address, status)
        })
    });
    requests.collect()
}

/// Many people log in from one address.
fn people() -> Vec<Logged> {
    (0..400).map(|number| (number * 17 / 2, SHARED, if number % 10 == 0 { 401 } else { 200 })).collect()
}

fn options(limit: &str) -> SuggestOptions {
    SuggestOptions {
        limit: limit.to_owned(),
        tier: None,
        tolerate: 0.001,
        failures: FAILURES.to_vec(),
        exclude: Vec::new(),
        groups: Vec::new(),
    }
}

fn suggested(log: &Log, options: &SuggestOptions) -> Result<Suggestion, SuggestError> {
    let config = Config::parse(RULES).unwrap_or_else(|problems| panic!("{problems}"));
    let texts = RuleTexts::new(RULES.into(), Vec::new());
    let files = LogFiles { paths: vec![log.0.clone()], format: None, host: None, progress: None };
    let find_entry = |limit: &Limit| LimitEntry::find(&texts, "<text>", limit);
    suggest(&config.rules, options, find_entry, &files, |_| Ok::<_, SuggestError>(()))
}

/// Regression test: the attackers were other clients, and a rate that hit 61 users was proposed.
#[test]
fn attackers_are_rejected_without_users() {
    let log = Log::new("attack", "/login", [attack(ATTACKERS), users(USERS)].concat());
    let suggestion = suggested(&log, &options("login/per-ip")).expect("a suggestion");
    assert_eq!(suggestion.clients, 9_997);
    assert_eq!(suggestion.abusers, AbuserCounts { by_responses: 300, by_demand: 0 });
    let Candidate { abusers, others, abuser_requests, .. } = suggestion.proposed;
    assert_eq!((abusers, others), (300, 0), "{}", suggestion.proposed.show());
    let acceptable = suggestion.candidates.iter().filter(|candidate| candidate.acceptable);
    let best = acceptable.map(|candidate| candidate.abuser_requests).max().expect("a candidate");
    assert!(abuser_requests * 10 >= best * 9, "{abuser_requests} of {best}");
    assert!(suggestion.top.iter().all(|top| top.abuser == Some(Sign::Responses) && top.failed > 40));
    let harsh = suggestion.candidates.iter().find(|candidate| candidate.others >= 61).expect("a lower rate");
    assert!(!harsh.acceptable, "{}", harsh.show());
}

#[test]
fn present_rate_is_a_candidate() {
    let log = Log::new("present", "/login", users(FEW));
    let suggestion = suggested(&log, &options("login/per-ip")).expect("a suggestion");
    let present: Vec<_> = suggestion.candidates.iter().filter(|candidate| candidate.present).collect();
    let [Candidate { rate: 30, requests: 0, interval, .. }] = &present[..] else { panic!("{present:?}") };
    assert_eq!(interval, "5m");
    assert!(suggestion.demand.iter().any(|demand| demand.interval == "5m"));
    // Without abusers, the proposal has the present interval, and rejects no client.
    assert_eq!((suggestion.proposed.interval.as_str(), suggestion.proposed.others), ("5m", 0));
    assert_eq!(suggestion.abusers.total(), 0);
}

#[test]
fn snippet_keeps_the_other_keys_of_the_limit() {
    let log = Log::new("keys", "/login", users(FEW));
    let suggestion = suggested(&log, &options("login/per-ip")).expect("a suggestion");
    let expected = "- { name: per-ip, mode: PER_CLIENT, client: ip, rate: 6, interval: 5m, permits: 1, \
                    on_missing_client: skip, charge_on: [200-499] }";
    assert_eq!(suggestion.snippet, expected);
}

#[test]
fn shared_address_counts_as_its_people() {
    let log = Log::new("shared", "/login", [attack(30), users(FEW), people()].concat());
    let shared: ipnet::IpNet = std::net::IpAddr::from(SHARED).into();
    let alone = suggested(&log, &options("login/per-ip")).expect("a suggestion");
    assert_eq!(alone.abusers, AbuserCounts { by_responses: 30, by_demand: 1 });
    assert!(alone.notes.iter().any(|note| note.contains("use --group or --exclude")), "{:?}", alone.notes);

    let group = SuggestOptions { groups: vec![(shared, 2_000)], ..options("login/per-ip") };
    let grouped = suggested(&log, &group).expect("a suggestion");
    assert_eq!(grouped.abusers, AbuserCounts { by_responses: 30, by_demand: 0 });
    assert_eq!(grouped.proposed.others, 0, "{}", grouped.proposed.show());
    let rejecting = grouped.candidates.iter().filter(|candidate| candidate.others >= 2_000);
    assert!(rejecting.clone().count() > 0 && rejecting.clone().all(|candidate| !candidate.acceptable));

    let exclude = SuggestOptions { exclude: vec![shared], ..options("login/per-ip") };
    let without = suggested(&log, &exclude).expect("a suggestion");
    assert_eq!((without.clients, without.abusers.total()), (530, 30));
    assert_eq!(without.notes, ["400 requests of excluded addresses left out"]);
    let other = "192.0.2.0/24".parse().expect("a network");
    let unused = SuggestOptions { exclude: vec![other], groups: vec![(other, 5)], ..options("login/per-ip") };
    let notes = suggested(&log, &unused).expect("a suggestion").notes;
    assert!(notes.iter().any(|note| note == "no request comes from an excluded address"), "{notes:?}");
    assert!(notes.iter().any(|note| note == "no client of the limit is an address of 192.0.2.0/24"), "{notes:?}");
}

#[test]
fn failures_of_most_clients_show_no_abusers() {
    let requests = (0..40).flat_map(|client| (0..12).map(move |at| (at * 60, Ipv4Addr::new(10, 0, 0, client), 404)));
    let log = Log::new("failures", "/login", requests.collect());
    let suggestion = suggested(&log, &options("login/per-ip")).expect("a suggestion");
    assert_eq!(suggestion.abusers.total(), 0);
    let note = "most requests of 40 of 40 clients failed, which does not distinguish abusers: set --failures";
    assert_eq!(suggestion.notes, [note]);
    let others = SuggestOptions { failures: Vec::new(), ..options("login/per-ip") };
    assert!(suggested(&log, &others).expect("a suggestion").notes.is_empty());
}

/// The names of the candidates in the replay are not the names of limits.
#[test]
fn outputs_have_no_internal_names() {
    let log = Log::new("names", "/login", users(FEW));
    let suggestion = suggested(&log, &options("login/per-ip")).expect("a suggestion");
    let json = serde_json::to_value(&suggestion).expect("JSON").to_string();
    let log = Log::new("names-api", "/api", users(FEW));
    let error = suggested(&log, &options("api/per-key")).expect_err("no client").to_string();
    for text in [&json, &error] {
        assert!(!text.contains("00\"") && !text.contains("@/0") && !text.contains("tidegate:"), "{text}");
    }
    let requests = users(FEW).len();
    let expected = format!(
        "no request of the logs is counted by `api/per-key`\nlimit api/per-key does not count {requests} requests: the log \
         lacks the client, `header:x-key`\nthe log has no field `x-key`, which the rules read"
    );
    assert_eq!(error, expected);
}

#[test]
fn suggestion_in_json_has_the_counts_of_clients() {
    let log = Log::new("json", "/login", users(FEW));
    let json: Value =
        serde_json::to_value(suggested(&log, &options("login/per-ip")).expect("a suggestion")).expect("JSON");
    assert_eq!(json["abusers"], json!({ "by_responses": 0, "by_demand": 0 }));
    assert_eq!((&json["limit"], &json["clients"], json.get("tier")), (&json!("login/per-ip"), &json!(FEW), None));
    let keys = ["rate", "interval", "present", "clients", "requests", "abusers", "others", "acceptable"];
    assert!(keys.iter().all(|key| json["proposed"].get(key).is_some()), "{json}");
}
