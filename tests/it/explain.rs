//! `tidegate explain`: its output, in snapshots, and its exit codes.

use crate::support::process::{RuleFile, output};

const FILE: &str = "tests/fixtures/explain.yaml";
const AUTHORIZE: &str = "tests/fixtures/explain_authorize.yaml";

/// Returns the output of `tidegate explain`, with the exit code.
fn explain(file: &str, arguments: &[&str]) -> String {
    let output = output(&[&["explain", "-c", file], arguments].concat());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let code = output.status.code().expect("an exit code");
    format!("{}{}exit code {code}\n", text(&output.stdout), text(&output.stderr))
}

fn snapshot(name: &str, file: &str, arguments: &[&str]) {
    let text = explain(file, arguments);
    assert!(!text.contains("hunter2"), "{text}");
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("explain_{name}"), text);
    });
}

#[test]
fn explain_shows_route_client_and_limits() {
    let forwarded = "X-Forwarded-For: 6.6.6.6, 2001:db8::7, 10.2.3.4";
    let arguments =
        ["POST", "https://api.example.com/x/../login?a=1", "--peer", "10.0.0.1", "-H", forwarded, "-H", "X-Cost: 3"];
    snapshot("limits", FILE, &arguments);
}

/// A request takes its slot with its permits, or after its time slot.
#[test]
fn explain_shows_limits_before_requests_in_flight() {
    snapshot("concurrency", "tests/fixtures/explain_concurrency.yaml", &["GET", "http://a/"]);
}

#[test]
fn explain_shows_that_parameters_are_not_matched() {
    snapshot("parameters", FILE, &["GET", "http://a/x/..//free;v=1"]);
}

#[test]
fn http_1_0_request_needs_no_host() {
    snapshot("http_1_0", FILE, &["GET", "/free", "--http1.0"]);
}

#[test]
fn explain_hides_values_of_client_keys() {
    snapshot("value", FILE, &["GET", "http://a.example/keys/1", "-H", "X-Api-Key: hunter2"]);
}

#[test]
fn explain_shows_the_first_condition_that_is_not_met() {
    let env = ["-H", "X-Env: hunter2", "-H", "Cookie: sid=hunter2"];
    let ask = |name: &str, url: &str, more: &[&str]| {
        snapshot(&format!("condition_{name}"), FILE, &[&["GET", url], more].concat());
    };
    ask("host", "http://c.example/c/1", &[]);
    ask("header", "http://a.example/c/1", &[]);
    ask("absent", "http://a.example/c/1", &["-H", "X-Env: prod", "-H", "X-Debug: 1"]);
    ask("cookie", "http://a.example/c/1?v=2", &["-H", "X-Env: prod"]);
    ask("client", "http://a.example/c/1?v=2", &env);
    let env = [&env[..], &["--peer", "192.0.2.1"]].concat();
    ask("not", "http://a.example/c/inner/1?v=2&dry=1", &env);
    ask("met", "http://a.example/c/1?v=2&dry=1", &env);
    ask("ambiguous", "http://a.example/c/1?v=2&v=3", &env);
}

#[test]
fn explain_lists_removed_fields() {
    let arguments = ["GET", "http://a/free", "-H", "X-Real-IP: 6.6.6.6", "-H", "X_Odd: 1", "-H", "X-Own: 1"];
    snapshot("removed", FILE, &arguments);
    let arguments = ["GET", "http://a/free", "-H", "Connection: x-api-key", "-H", "X-Api-Key: 1"];
    snapshot("connection", FILE, &arguments);
}

#[test]
fn explain_reports_invalid_forwarding_fields() {
    let arguments = ["GET", "/free", "-H", "host: a", "--peer", "10.0.0.1", "-H", "x-forwarded-for: 6.6.6.6, unknown"];
    snapshot("garbage", FILE, &arguments);
    snapshot("proxies_only", FILE, &["GET", "http://a/free", "--peer", "10.0.0.1", "-H", "x-forwarded-for: 10.9.9.9"]);
}

#[test]
fn explain_reports_costs_above_the_capacity() {
    snapshot("never", FILE, &["GET", "http://a/dear", "-H", "x-cost: 4"]);
    snapshot("nothing", FILE, &["GET", "http://a/dear", "-H", "x-cost: 0"]);
}

#[test]
fn explain_shows_why_a_request_is_rejected() {
    snapshot("no_client", FILE, &["GET", "http://a.example/keys/1"]);
    snapshot("two_clients", FILE, &["GET", "http://a/keys/1", "-H", "x-api-key: a", "-H", "X-Api-Key: b"]);
    snapshot("no_cost", FILE, &["GET", "http://a/dear", "-H", "x-cost: cheap"]);
    snapshot("no_route", FILE, &["DELETE", "http://a.example/admin/x"]);
    snapshot("no_host", FILE, &["GET", "/free"]);
    snapshot("no_path", FILE, &["GET", "http://a/x/..;/login"]);
    snapshot("other_case", FILE, &["post", "http://a/free"]);
    snapshot("tunnel", FILE, &["CONNECT", "http://a/free"]);
    snapshot("server", FILE, &["OPTIONS", "*", "-H", "Host: a"]);
    snapshot("malformed_client", FILE, &["GET", "http://a/keys/1?key=a", "-H", "X-Api-Key: eyJ.!"]);
    snapshot("encoded_slash", FILE, &["GET", "http://a/x%2flogin"]);
    let long = format!("/{}", "x".repeat(9_000));
    assert!(
        explain(FILE, &["GET", &long]).ends_with("answered with 414: target is longer than 8192 bytes\nexit code 1\n")
    );
}

#[test]
fn explain_lists_the_methods_that_a_preflight_allows() {
    let preflight = |origin: &'static str| ["-H", origin, "-H", "Access-Control-Request-Method: GET", "-H", "Host: a"];
    for (name, path, origin) in [
        ("preflight", "/cors", "Origin: https://app.example"),
        ("preflight_any_method", "/cors-any", "Origin: https://app.example"),
        ("preflight_rejected", "/cors", "Origin: https://other.example"),
    ] {
        snapshot(name, AUTHORIZE, &[&["OPTIONS", path], &preflight(origin)[..]].concat());
    }
}

#[test]
fn explain_evaluates_the_original_request_of_a_proxy() {
    let fields = ["-H", "X-Original-Method: POST", "-H", "X-Original-URI: /login?a=1", "--peer", "10.0.0.1"];
    let ask = |name: &str, url: &str, more: &[&str]| {
        snapshot(&format!("authorize_{name}"), AUTHORIZE, &[&["GET", url], more].concat());
    };
    ask("limited", "http://a.example.com/_authorize", &fields);
    ask("nginx", "http://a.example.com/_nginx", &fields);
    ask("path", "http://a/_envoy/free", &["--peer", "10.0.0.1"]);
    ask("untrusted", "http://a.example.com/_authorize", &fields[..4]);
    ask("unknown", "http://a.example.com/_nginx", &["--peer", "10.0.0.1"]);
    ask("no_route", "http://a/_envoy/none", &["--peer", "10.0.0.1"]);
    ask("respond", "http://a/_envoy/closed", &["--peer", "10.0.0.1"]);
    ask("recursive", "http://a/_envoy/_envoy/free", &["--peer", "10.0.0.1"]);
    ask("missing_client", "http://a/_envoy/keys/1", &["--peer", "10.0.0.1"]);
}

#[test]
fn explain_reads_the_scheme_and_the_listener() {
    let ask = |name: &str, arguments: &[&str]| {
        snapshot(&format!("scheme_{name}"), "tests/fixtures/explain_schemes.yaml", arguments);
    };
    ask("http", &["GET", "http://a.example/x?y", "--listener", "public"]);
    ask("https", &["GET", "https://a.example/x?y", "--listener", "public"]);
    ask("listener", &["GET", "/x", "-H", "host: a.example", "--listener", "internal"]);
}

#[test]
fn explain_shows_the_limit_of_each_descriptor() {
    let ask = |name: &str, arguments: &[&str]| {
        let arguments = [&["--descriptor"], arguments].concat();
        snapshot(&format!("descriptor_{name}"), "tests/fixtures/explain_service.yaml", &arguments);
    };
    ask("own", &["edge", "user=alice", "generic_key=search,path=/v1/a", "generic_key=search", "other=x"]);
    ask("wildcard", &["plans", "user=partner-1", "path=/v1/x,method=POST", "path=/v1/x"]);
    ask("replaced", &["plans", "user=alice", "plan=enterprise"]);
    ask("unlimited", &["plans", "plan=enterprise"]);
    ask("zero", &["plans", "banned=x"]);
    ask("unknown_domain", &["other", "user=alice"]);
    ask("no_value", &["edge", "user"]);
    let without = explain(FILE, &["--descriptor", "edge", "user=alice"]);
    assert_eq!(without, "the rule file has no `service`\nexit code 1\n");
}

/// Regression test: a key set by URL was an error, as in a layer.
#[test]
fn explain_accepts_a_key_set_by_url() {
    let rules = "identities: { jwt: { jwks: https://id.test/a, issuer: https://id.test/, audience: api } }\n\
                 routes: [{ name: all, match: {}, require: jwt }]\n";
    let file = RuleFile::new("explain-key-set", rules);
    let text = explain(file.path(), &["GET", "http://a/"]);
    assert!(text.contains("answered with 401: credentials are missing"), "{text}");
}

#[test]
fn usage_errors_have_exit_code_2() {
    snapshot("bad_file", "tests/fixtures/config/many_errors.yaml", &["GET", "http://a/"]);
    for (arguments, complaint) in [
        (&["GET"][..], "<URL>"),
        (&["G T", "http://a/"], "a method is a word such as GET or POST"),
        (&["GET", "a.example/x"], "write http://host/path, or /path"),
        (&["GET", "http://a b/"], "write http://host/path, or /path"),
        (&["GET", "http://a/#b"], "write http://host/path, or /path, without a fragment"),
        (&["GET", "http://a/", "--json"], "`--json` needs `--live`"),
        (&["GET", "http://a/", "--descriptor", "edge", "a=b"], "cannot be used with"),
        (&["--live", "--descriptor", "edge", "a"], "write KEY=VALUE"),
        (&["--descriptor", "edge"], "--descriptor"),
        (&["GET", "http://a/", "-H", "no colon"], "write NAME: VALUE"),
        (&["GET", "http://a/", "-H", "a b: c"], "is not a valid header field name"),
        (&["GET", "http://a/", "--peer", "a.example"], "invalid IP address syntax"),
    ] {
        let text = explain(FILE, arguments);
        assert!(text.contains(complaint) && text.ends_with("exit code 2\n"), "{arguments:?}: {text}");
    }
    let file = RuleFile::new("explain-off", &format!("admin: off\n{}", std::fs::read_to_string(FILE).expect("a file")));
    let text = explain(file.path(), &["GET", "http://a/", "--live"]);
    assert!(text.contains("`admin` is `off`") && text.ends_with("exit code 2\n"), "{text}");
    assert!(explain("no/such/file.yaml", &["GET", "http://a/"]).ends_with("exit code 2\n"));
}
