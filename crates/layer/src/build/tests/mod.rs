//! Built rules have the meaning and the errors of a rule file with the same keys.

mod random;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prop_assert_eq;
use proptest::test_runner::{Config as CaseConfig, TestRunner};

use self::random::{built, routes, yaml};
use super::*;
use tidegate_rules::rules;

/// Returns the rules without the lines of limits, or the texts of all errors.
fn meaning(config: Result<Config, Problems>) -> Result<rules::Rules, BTreeSet<String>> {
    let place = regex::Regex::new(r"(on line|at position) \d+").expect("an expression");
    let text = |problem: &tidegate_config::Problem| {
        let (message, help) = (problem.message(), problem.help());
        place.replace_all(&format!("{message} {help}"), "before").into_owned()
    };
    let config = config.map_err(|problems| problems.iter().map(text).collect::<BTreeSet<_>>())?;
    let mut rules = Arc::unwrap_or_clone(config.rules);
    let routes = rules.routes.iter().cloned().map(|mut route| {
        route.limits.iter_mut().for_each(|limit| limit.location = Default::default());
        route
    });
    rules.routes = tidegate_rules::route::Routes::new(routes.collect());
    Ok(rules)
}

#[test]
fn built_rules_equal_the_rule_file() {
    let config = CaseConfig { cases: 1_024, ..CaseConfig::default() };
    let (mut runner, valid) = (TestRunner::new(config), Cell::new(0));
    let result = runner.run(&routes(), |routes| {
        let (text, built) = (yaml(&routes), meaning(built(&routes).build()));
        valid.set(valid.get() + u32::from(built.is_ok()));
        prop_assert_eq!(built, meaning(Config::parse(&text)), "{}", text);
        Ok(())
    });
    result.expect("equal rules");
    assert!((200..1_000).contains(&valid.get()), "{} valid rules", valid.get());
}

/// Rules with every key that a library can use.
fn every_key() -> Rules {
    let value = Condition::any([Condition::prefix("a"), Condition::suffix("b"), Condition::contains("c"), "d".into()]);
    let conditions = || Match::new().host("a.b").path("/p").method("GET").client("10.0.0.0/8").case(Case::Insensitive);
    let conditions = || conditions().scheme(Scheme::Https);
    let conditions =
        || conditions().header("x-h", "v").query("q", Condition::present()).cookie("c", Condition::absent());
    let quota = |algorithm| Quota::new(10, MINUTE).algorithm(algorithm).max_wait(SECOND).queue(5);
    let gcra = quota(Algorithm::Gcra).burst(20).warm_up(MINUTE);
    let windows = Quota::new(1, CalendarUnit::Month).algorithm(Algorithm::FixedWindow).timezone("Europe/Rome");
    let sliding = Quota::per_second(3).algorithm(Algorithm::SlidingWindow).segments(4);
    let gcra = Limit::per_client("gcra", Client::ip().and(Client::cookie("sid"))).quota(gcra);
    let sliding = Limit::per_client("sliding", Client::path()).quota(sliding);
    let gcra = gcra
        .candidate(Quota::per_hour(4))
        .on_store_failure(OnStoreFailure::Deny)
        .on_missing_client(OnMissingClient::Skip);
    let gcra = gcra.duplicates(Duplicates::First).partitions(2);
    let gcra = gcra.when(conditions().except(conditions())).permits_from_header("x-cost", 1, 2);
    let failures =
        Limit::overall("failures").quota(Quota::per_minute(100)).charge_on([401..=403]).reserve(true).shards(2);
    let tiers = Limit::per_client("tiers", Client::query("key")).tier(By::extension("plan"), "free").when_tier(["pro"]);
    let number = Limit::per_client("number", Client::header("x-key")).rate_by(By::header("x-rate"), 5, 50, SECOND);
    let shared = Limit::per_client("shared", Client::host()).quota(windows).permits(1).shadow(true);
    let redisson = Limit::overall("redisson").key("java").adopt(true);
    let fields = FieldChanges::new().set("x-a", "1").add("x-b", "2").remove("x-c");
    let cors = Cors::new(["https://a.b"]).methods(["GET"]).headers(["x-a"]).expose(["x-b"]);
    let slots = Concurrency::new().max(9).per_client(2).client(Client::tls_san()).queue(3).max_wait(SECOND);
    let first = Route::new("first").host("a.b").path("/p").method("GET").client("10.0.0.0/8").case(Case::Insensitive);
    let first = first.header("x-h", value).query("q", Condition::regex("^a$")).cookie("c", "v");
    let first = first
        .scheme(Scheme::Https)
        .except(Match::new().path("/p/q"))
        .limit(gcra)
        .limit(failures)
        .limit(tiers)
        .limit(number);
    let first =
        first.limit(redisson).limit(sliding).shared_limit("shared").concurrency(slots).max_body(1_000).quota("/quota");
    let first = first.cors(cors.credentials(true).max_age(HOUR)).response_headers(fields);
    let first = first.reject(Reject::new("{}").status(430).content_type("text/plain"));
    let first = first.headers([RateLimitFields::Ietf, RateLimitFields::Legacy]);
    let rules = Rules::new().route(first).shared_limit(shared).tier("free", Tier::new(1, SECOND).burst(1));
    let rules = rules.tier("pro", Tier::new(9, DAY)).trusted_proxies(["10.0.0.1"]).ipv6_prefix(56);
    let rules = rules.encoded_slash(EncodedSlash::Keep).slashes(Slashes::Keep).underscores(Underscores::Keep);
    let rules = rules.strip(["default", "x-strip-*"]).keep(["x-strip-not"]).request_id(true);
    let rules = rules.route(Route::new("moved").path("/old").redirect(Redirect::to("/new").status(308)));
    let respond = Respond::new(404).body("none").content_type("text/plain").header("x-a", "1");
    let rules = rules.route(Route::new("gone").path("/gone").respond(respond));
    let marked = Route::new("marked").path("/marked").limit(Limit::overall("marked").rate(5, SECOND));
    let rules = rules.route(marked.mark_over_limit("x-over-limit"));
    rules.route(Route::new("proxy").path("/authorize").authorize(true))
}

#[test]
fn rules_with_every_key_are_valid() {
    let config = every_key().build().expect("rules");
    assert!(config.warnings().is_empty(), "{:?}", config.warnings());
    assert_eq!(config.rules.routes.iter().count(), 5);
}

/// A new key of the rule file needs a method here.
#[test]
fn builders_have_every_key_of_a_library() {
    let identities = ApiKeys::in_header("keys.yaml", "x-key");
    let tokens = Tokens::new("jwks.json", "https://id.example.com/", ["api"]).from("cookie:t").max_token(4_096);
    let tokens = tokens.claim("client_id", IdentityCondition::any(["web", "app"]));
    let rules = every_key().api_keys(identities).issuer("customers", tokens);
    let rules = rules.passwords(Passwords::in_file("users.htpasswd").realm("pages"));
    let admins = Required::token().claim("/roles", "admin").key("tier", IdentityCondition::not(["free"]));
    let admins = Route::new("admins").identity("jwt:sub", IdentityCondition::present()).require_credentials(admins);
    let users = Required::password().user("ann");
    let rules = rules.route(admins.require_credentials(users).require_credentials(Required::api_key()));
    let rules = rules.route(Route::new("identified").require(IdentityKind::Key));
    let [mut used, known] = built::used_and_known_keys(&rules.keys);
    let [more, _] = built::used_and_known_keys(&Rules::new().api_keys(ApiKeys::in_cookie("k", "c")).keys);
    used.extend(more);
    used.extend(&built::used_and_known_keys(&Rules::new().api_keys(ApiKeys::in_query("k", "q")).keys)[0]);
    let maps = [
        "`clients`",
        "`requests`",
        "`identities`",
        "`keys`",
        "`jwt`",
        "`basic`",
        "a route",
        "`require`",
        "an exclusion",
        "`redirect`",
        "`respond`",
        "changes of header fields",
        "`reject`",
        "`on_limit`",
        "`cors`",
        "`authorize`",
        "a `match`",
        "a pattern",
        "a `not`",
        "`concurrency`",
        "a limit",
        "`when`",
        "a tier",
        "`tier` of a limit",
        "`rate` of a limit",
        "`permits`",
        "a `candidate`",
    ];
    // A program has its own `include` and `jwt.ca`, since a layer fetches no key sets, and has no listener.
    let gateway = ["ca", "listener", "json_bytes"];
    // A layer cannot ask services.
    let of_services = ["service", "headers", "pass", "cache", "timeout", "on_failure"];
    // A layer does not read bodies.
    let of_bodies = ["json", "usage", "weights", "prices", "reserve", "max_input", "on_lost", "on_disconnect"];
    let is_of_gateway = |map: &str, key: &str| {
        gateway.contains(&key)
            || (map == "`require`" && of_services.contains(&key))
            || (map == "`permits`" && of_bodies.contains(&key))
            || (map == "`on_limit`" && key == "upstream")
    };
    let missing: Vec<_> =
        known.difference(&used).filter(|(map, key)| maps.contains(map) && !is_of_gateway(map, key)).collect();
    assert!(maps.iter().all(|map| known.iter().any(|(known, _)| known == map)), "a map was renamed");
    // The conditions of the candidate and of `when` share their methods with a match.
    assert!(missing.iter().all(|(map, _)| ["a `candidate`", "`when`", "a `not`"].contains(map)), "{missing:?}");
}

#[test]
fn errors_name_the_part_and_have_no_line() {
    let limit = |name| Limit::per_client(name, Client::header("x key")).rate(5, Duration::from_micros(1_500));
    let rules = Rules::new().route(Route::new("all").limit(limit("a")).limit(limit("a"))).shared_limit(limit("b"));
    let error = rules.tier("pro", Tier::new(0, SECOND)).route(Route::new("other")).build().expect_err("errors");
    let text = error.to_string();
    for line in [
        "limit `a` of route `all`: limit `a` is already at position 1",
        "limit `a` of route `all`: `interval` must be a duration, not `1.5ms`",
        "limit `a` of route `all`: `x key` is not a header field name",
        "shared limit `b`: `x key` is not a header field name",
        "tier `pro`: `rate` must be a whole number from 1 to 2147483648, not `0`",
        "route `other`: route `other` is unreachable: route `all` at position 1 matches all its requests",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(error.iter().all(|problem| problem.line().is_none() && problem.column().is_none()));
    assert_eq!(format!("{error:?}"), text);
}

/// The second limit would replace the first.
#[test]
fn names_that_are_given_twice_are_an_error() {
    let limit = |rate| Limit::overall("daily").rate(rate, DAY);
    let route = Route::new("all").shared_limit("daily").header("x-a", "1").header("x-a", "2");
    let rules = Rules::new().route(route).shared_limit(limit(1)).shared_limit(limit(2));
    let error = rules.tier("pro", Tier::new(1, DAY)).tier("pro", Tier::new(2, DAY)).build().expect_err("errors");
    let lines: Vec<_> = error.iter().map(ToString::to_string).collect();
    let twice = |part: &str, name: &str| format!("{part}: `{name}` is given twice\n  help: keep one of them");
    assert_eq!(lines, [twice("the rules", "daily"), twice("the rules", "pro"), twice("route `all`", "x-a")]);
}

#[test]
fn rules_without_routes_are_an_error() {
    let error = Rules::new().build().expect_err("no routes");
    assert!(error.to_string().starts_with("the rules: the rule file needs `routes`\n"), "{error}");
}
