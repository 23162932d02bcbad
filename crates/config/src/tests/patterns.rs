//! Patterns of paths and values, and spellings that would match nothing.

use super::*;
use tidegate_rules::route::{Case, ValueParts, ValuePattern, ValueRegex, ValueTest};

/// Returns the warnings about a rule file of a layer with these conditions.
fn warnings(conditions: &str) -> Vec<String> {
    let config = parse_layer(&format!("routes: [{{ name: a, match: {{ {conditions} }} }}]"));
    config.warnings.iter().map(ToString::to_string).collect()
}

fn parse_layer(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn patterns_of_values_are_read() {
    let config = parse_layer(
        r#"routes: [{ name: a, match: { case: insensitive, path: "/A/**/*.php", query: { v: B },
            headers: { x-a: [b, { prefix: "c ", suffix: d, contains: e, regex: "^f$$" }] }, not: { path: /G } } }]"#,
    );
    let matcher = &config.rules.routes.iter().next().expect("a route").matcher;
    let case = Case::Insensitive;
    let parts = ValueParts {
        prefix: b"c "[..].into(),
        suffix: b"d"[..].into(),
        contains: b"e"[..].into(),
        regex: ValueRegex::new("^f$", case).ok(),
        case,
    };
    let one_of = |test: &ValueTest| match test {
        ValueTest::OneOf(patterns) => patterns.clone(),
        ValueTest::Present | ValueTest::Absent => Vec::new(),
    };
    let whole = |text: &str| ValuePattern::AnyCase(text.as_bytes().into());
    assert_eq!(one_of(&matcher.values[0].test), [whole("b"), ValuePattern::Parts(Box::new(parts))]);
    assert_eq!(one_of(&matcher.values[1].test), [whole("B")]);
    assert_eq!(matcher.paths, [PathPattern::parse("/A/**/*.php").expect("a path").with_case(case)]);
    assert!(matcher.not[0].paths[0].matches("/g"), "the case also applies to `not`");
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

/// Each help that names another spelling is accepted without a warning.
#[test]
fn suggested_spellings_have_no_warnings() {
    for (key, value) in [
        ("headers: { x-a: VALUE }", "'*bot*'"),
        ("headers: { x-a: VALUE }", "'^curl/.*'"),
        ("headers: { x-a: VALUE }", "'~*bot'"),
        ("headers: { x-a: VALUE }", "'/bot/i'"),
        ("headers: { x-a: VALUE }", "'a|b'"),
        ("headers: { x-a: VALUE }", "'a*b*'"),
        ("headers: { x-a: VALUE }", "exists"),
        ("headers: { content-type: VALUE }", "application/json"),
        ("headers: { authorization: VALUE }", "Bearer"),
        ("headers: { user-agent: VALUE }", "curl"),
        ("cookies: { c: VALUE }", "'[0-9]+$$'"),
        ("query: { q: VALUE }", "'%bot%'"),
        ("path: VALUE", "/api/"),
        ("clients: VALUE", "10.0.0.0"),
        ("clients: VALUE", "0.0.0.0"),
    ] {
        let found = warnings(&key.replace("VALUE", value));
        let [warning] = &found[..] else { panic!("{value}: {found:?}") };
        let suggested = warning.split("write `").nth(1).and_then(|text| text.split('`').next());
        let suggested = suggested.or_else(|| warning.split("such as `").nth(1).and_then(|text| text.split('`').next()));
        let suggested = suggested.expect("another spelling");
        assert_eq!(warnings(&key.replace("VALUE", suggested)), [""; 0], "{value}");
    }
}

#[test]
fn prefix_of_keys_may_have_colons() {
    let text = "store: { url: 'redis://db', prefix: 'billing:' }
routes: [{ name: a, match: {}, limits: [{ name: b, mode: OVERALL, rate: 1, interval: 1s }] }]";
    let config = parse_layer(text);
    let limit = &config.rules.routes.iter().next().expect("a route").limits[0];
    assert_eq!(limit.limiter.name, "{billing:tidegate:a}:b");
    for prefix in ["a{b}", "a b", "", ":\u{e9}"] {
        assert!(Config::parse(&text.replace("billing:", prefix)).is_err(), "{prefix}");
    }
}

#[test]
fn redirect_to_any_host_is_warned_about() {
    let warnings = |conditions: &str, to: &str| warnings(&format!("{conditions} }}, redirect: {{ to: '{to}' ")).len();
    assert_eq!(warnings("path: /a/**", "https://{host}{uri}"), 1);
    assert_eq!(warnings("path: /a/**, host: [a.example, '*.b.example']", "https://{host}{uri}"), 0);
    assert_eq!(warnings("path: /a/**", "https://a.example{uri}"), 0);
}

#[test]
fn tier_of_an_api_key_needs_api_keys() {
    let rules = |identities: &str, require: &str| {
        format!(
            "identities: {identities}
tiers: {{ gold: {{ rate: 9, interval: 1s }} }}
routes: [{{ name: a, match: {{}}, require: {require},
  limits: [{{ name: b, mode: OVERALL, rate: 1, interval: 1s, when: {{ tier: gold }} }}] }}]"
        )
    };
    let jwt = "jwt: { jwks: jwks.json, issuer: a, audience: b }";
    let files = ReferencedFiles::in_current_folder().with_checks(&AnyIdentities).unchecked();
    let source = Source { files, ..Source::text(Purpose::Layer) };
    let read = |identities: &str, require| Config::read(&rules(identities, require), source);
    let error = read(&format!("{{ {jwt} }}"), "jwt").expect_err("no API keys").to_string();
    assert!(error.contains("this needs `identities.keys`"), "{error}");
    let both = format!("{{ {jwt}, keys: {{ header: X-Api-Key, file: keys.yaml }} }}");
    let warnings = |require| read(&both, require).expect("valid").warnings.len();
    assert_eq!([warnings("jwt"), warnings("keys"), warnings("[jwt, keys]")], [1, 0, 0]);
}
