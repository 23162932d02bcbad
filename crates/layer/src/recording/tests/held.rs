//! Recordings hold what their rules read, and no more.

use super::*;
use crate::recording::held::{Lacking, bounded};

#[test]
fn values_of_conditions_identify_clients() {
    let line = |cookie: &str, query: &str| {
        let request = sent_request(&[("cookie", cookie)], query);
        let line =
            request.with_facts(&PARSED, |facts| INPUTS.line(facts, Some(request.address), None, &Key::from([1; 32])));
        line.flatten().expect("a line")
    };
    let lines = [("tier=a", "/"), ("tier=b", "/"), ("old=a", "/"), ("old=b", "/"), ("tier=a", "/?lab=b")];
    let lines = lines.map(|(cookie, query)| line(cookie, query));
    for (index, line) in lines.iter().enumerate() {
        assert!(!lines[..index].contains(line), "{line}");
    }
    assert_eq!(line("tier=a", "/"), lines[0]);
}

/// Returns what these rules read, and a recording by [`RULES`] lacks.
fn lacking(rules: &str) -> Vec<String> {
    let rules = Config::parse(rules).unwrap_or_else(|problems| panic!("{problems}")).rules;
    Inputs::new(&rules, &|_| false).lacking(&INPUTS.held(&[])).certain
}

#[test]
fn recording_holds_what_its_rules_read() {
    // Only the secret constant is not recorded.
    assert_eq!(lacking(RULES), ["values of conditions on `header:x-plan`"]);
    assert_eq!(INPUTS.unheld(), ["values of conditions on `header:x-plan`"]);
    let secret = Inputs::new(&PARSED, &|text| text.contains('/'));
    let lacking = secret.lacking(&secret.held(&[]));
    assert!(!lacking.certain.iter().any(|lacking| lacking.contains("network")), "{lacking:?}");
    assert_eq!(lacking.possible, ["the addresses of 2 networks"], "the mark does not list them");
    assert!(secret.unheld().is_empty(), "the networks are kept");
    let marked = Mark { holds: Some(INPUTS.held(&[])), ..Mark::default() }.to_line();
    assert!(!marked.contains(SECRET), "{marked}");
    assert_eq!(Mark::parse(marked.as_bytes()).and_then(|mark| mark.holds), Some(INPUTS.held(&[])));
}

#[test]
fn long_lists_are_kept_and_not_noted() {
    let constants = |count: usize| (0..count).map(|number| format!("c{number:0999}")).collect::<Vec<_>>().join(", ");
    let networks =
        |count: usize| (0..count).map(|low| format!("10.{}.{}.0/24", low >> 8, low & 255)).collect::<Vec<_>>();
    let inputs = |networks: &[String], constants: &str| {
        let matches = format!("clients: [{}], headers: {{ x-plan: [{constants}] }}", networks.join(", "));
        let rules = format!(
            "routes:\n  - name: a\n    match: {{ path: /a, {matches} }}\n  - name: b\n    match: {{ path: /b, {matches} }}"
        );
        let rules = Config::parse(&rules).unwrap_or_else(|problems| panic!("{problems}")).rules;
        Inputs::new(&rules, &|_| false)
    };
    // Both routes have the same lists, which are below the bounds only once.
    let whole = inputs(&networks(4096), &constants(60));
    let held = whole.held(&[]);
    assert!(!held.more_networks && !held.more_constants);
    assert_eq!(whole.lacking(&held), Lacking::default());
    let long = inputs(&networks(4097), &constants(70));
    assert!(long.unheld().is_empty(), "a recording keeps all of them");
    let lacking = long.lacking(&long.held(&[]));
    assert!(lacking.certain.is_empty(), "{lacking:?}");
    assert_eq!(lacking.possible, ["values of conditions on `header:x-plan`", "the addresses of a network"]);
    assert_eq!(long.lacking(&held).certain, lacking.possible);
}

#[test]
fn long_names_are_bounded() {
    let clients: Vec<_> = (0..9).map(|number| ClientSource::Query(format!("n{number}").repeat(2_000))).collect();
    let inputs = INPUTS.with_clients(&clients);
    let held = INPUTS.held(&clients);
    assert!(held.more_names && !INPUTS.held(&[]).more_names);
    let line = Mark { holds: Some(held.clone()), ..Mark::default() }.to_line();
    assert!(line.len() < 40_000, "{}", line.len());
    assert!(inputs.lacking(&held).possible.iter().any(|name| name.contains("n8n8")));
    let lacks = inputs.lacking(&INPUTS.held(&[])).certain;
    assert_eq!(lacks.len(), 1 + clients.len());
    let bounded = bounded(lacks);
    assert!(bounded.len() < clients.len() && bounded.last().is_some_and(|last| last == "other values"));
}

#[test]
fn other_rules_lack_values() {
    let limit = |more: &str| format!("{{ name: a, mode: PER_CLIENT, rate: 1, interval: 1m, {more} }}");
    let with = |matches: &str, limits: &str| {
        lacking(&format!("routes:\n  - name: a\n    match: {{ path: /**, {matches} }}\n    limits: [{limits}]"))
    };
    for (client, lacks) in [
        ("header:x-key", &[][..]),
        ("['cookie:SID', 'query:k%65y']", &["`query:k%65y`"]),
        ("['header:x-org', 'cookie:org', ip, path, host]", &["`header:x-org`", "`cookie:org`"]),
        ("header:cookie", &["`header:cookie`"]),
        ("['header:cookie', 'cookie:sid']", &["`header:cookie`"]),
        ("tls:san", &["`tls:san`"]),
    ] {
        assert_eq!(with("", &limit(&format!("client: {client}"))), lacks, "{client}");
    }
    for (matches, lacks) in [
        ("headers: { x-plan: gold }, cookies: { tier: present }, query: { lab: 'a b' }", &[][..]),
        ("headers: { x-plan: [gold, silver] }", &["values of conditions on `header:x-plan`"]),
        ("headers: { authorization: 'Basic eDp5' }", &["values of conditions on `header:authorization`"]),
        ("not: [{ query: { beta: present } }]", &["`query:beta`"]),
        ("clients: [10.0.0.0/8, 0.0.0.0/0, 2001::/16]", &[]),
        ("clients: [10.0.0.0/9, 192.0.2.0/24]", &["the addresses of 2 networks"]),
    ] {
        assert_eq!(with(matches, ""), lacks, "{matches}");
    }
    for (cost, lacks) in
        [("x-cost", &[][..]), ("x-plan", &["the costs in `header:x-plan`"]), ("x-n", &["`header:x-n`"])]
    {
        let cost = format!("permits: {{ header: {cost}, default: 1, max: 1 }}, client: ip");
        assert_eq!(with("", &limit(&cost)), lacks, "{cost}");
    }
    assert_eq!(
        lacking("clients: { ipv6_prefix: 128 }\nroutes: [{ name: a, match: { path: / } }]"),
        ["the bits of IPv6 addresses behind the first 64"]
    );
}
