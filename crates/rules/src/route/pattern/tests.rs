//! Compares patterns with naive matchers.

use proptest::prelude::*;

use super::*;

fn path(text: &str) -> PathPattern {
    PathPattern::parse(text).expect(text)
}

#[test]
fn path_patterns_match_segments_and_prefixes() {
    for (pattern, yes, no) in [
        ("/", &["/"][..], &["/a"][..]),
        ("/login", &["/login", "/login/"], &["/", "/login/x", "/logins", "/Login"]),
        ("/users/{id}/posts", &["/users/7/posts"], &["/users/posts", "/users/7/8/posts", "/users/7"]),
        ("/static/**", &["/static", "/static/", "/static/a/b"], &["/statics", "/"]),
        ("/**", &["/", "/a", "/a/b/"], &[]),
        ("/v*/users", &["/v1/users", "/v/users/"], &["/w1/users", "/v1/x/users", "/v1/users/7"]),
        ("/img-*.png", &["/img-.png", "/img-a.b.png/"], &["/img-png", "/img-a/b.png", "/IMG-a.png"]),
        ("/**/*.css", &["/a.css", "/a/b/.css", "/a.css/"], &["/", "/a.css/b", "/acss"]),
        ("/a/**/b/{id}", &["/a/b/7", "/a/x/y/b/7"], &["/a/7", "/b/7", "/a/b"]),
        ("/a/**/a", &["/a/a", "/a/a/a"], &["/a", "/a/b"]),
    ] {
        let pattern = path(pattern);
        assert!(yes.iter().all(|path| pattern.matches(path)), "{pattern}");
        assert!(!no.iter().any(|path| pattern.matches(path)), "{pattern}");
    }
}

/// Tries each number of segments for `**`, and each length for a `*`.
fn naive(pattern: &[&str], parts: &[&str]) -> bool {
    let segment = |pattern: &str, part: &str| {
        pattern.starts_with('{')
            || regex::Regex::new(&format!("^{}$", pattern.replace('*', ".*"))).expect("an expression").is_match(part)
    };
    match pattern {
        [] => parts.is_empty(),
        ["**", rest @ ..] => (0..=parts.len()).any(|count| naive(rest, &parts[count..])),
        [first, rest @ ..] => parts.first().is_some_and(|part| segment(first, part)) && naive(rest, &parts[1..]),
    }
}

proptest! {
    #[test]
    fn paths_match_like_a_naive_matcher(
        mut pattern in prop::collection::vec(prop::sample::select(vec!["a", "ab", "a*", "*b", "a*b", "{x}"]), 0..5),
        rest in prop::option::of(0_usize..5),
        parts in prop::collection::vec(prop::sample::select(vec!["a", "b", "ab", "acb"]), 0..6),
    ) {
        if let Some(at) = rest {
            pattern.insert(at.min(pattern.len()), "**");
        }
        let (pattern_text, sent) = (format!("/{}", pattern.join("/")), format!("/{}", parts.join("/")));
        prop_assert_eq!(path(&pattern_text).matches(&sent), naive(&pattern, &parts), "{} {}", pattern_text, sent);
    }

    #[test]
    fn any_text_is_a_pattern_or_an_error(text in "/?[/a*{}.;%2F:]{0,12}", sent in "(/[a.:%]{1,3}){0,4}/?") {
        if let Ok(pattern) = PathPattern::parse(&text) {
            let displayed = pattern.to_string();
            prop_assert_eq!(&path(&displayed), &pattern, "{} is shown as {}", text, displayed);
            prop_assert_eq!(pattern.covers(&pattern) && pattern.overlaps(&pattern), true);
            prop_assert!(!pattern.is_plain() || !displayed.contains('*') || displayed.ends_with("/**"));
            _ = pattern.matches(&sent);
        }
    }
}

#[test]
fn patterns_that_cannot_match_are_errors() {
    for text in [
        "/a;x",
        "/a%40b",
        "/a%2fb",
        "login",
        "",
        "/a//b",
        "/a/../b",
        "/%61",
        "/a/**/b/**",
        "/{}",
        "/a{b}",
        "/a**",
        "/*",
        "/a/*/b",
        "/a?x=1",
        "/a b",
        "/%*1",
        "/a*/%61",
        "*.css",
        "/**.css",
        "/a*{b}",
        "/*;v",
    ] {
        assert!(PathPattern::parse(text).is_err(), "{text}");
    }
    for text in ["", "a b", "http://a", "a:80", "*", "*a.example", "a..b", "a.*.b", "_", "*.-"] {
        assert!(HostPattern::parse(text).is_err(), "{text}");
    }
}

#[test]
fn patterns_without_case_match_ascii_letters_in_both_cases() {
    let any = |text| path(text).with_case(Case::Insensitive);
    assert!(any("/Login/*.PHP").matches("/login/A.php") && !path("/Login").matches("/login"));
    assert!(any("/%C3%A4").matches("/%c3%a4") && !any("/%C3%A4").matches("/%C3%84"), "only ASCII letters");
    assert!(any("/A").covers(&path("/a")) && any("/A").covers(&any("/a")) && !path("/a").covers(&any("/a")));
    assert!(any("/A").overlaps(&path("/a")) && path("/a").overlaps(&any("/A")) && !path("/A").overlaps(&path("/a")));
}

#[test]
fn displayed_pattern_is_parsed_to_the_same() {
    for text in ["/", "/a", "/{id}/b", "/**", "/a/**", "/v*/users", "/**/*.css", "/a/**/{b}/c"] {
        assert_eq!(path(text).to_string(), text);
    }
}

#[test]
fn wildcard_host_matches_only_subdomains() {
    let below = HostPattern::parse("*.Example.com").expect("a pattern");
    assert!(below.matches("a.example.com") && below.matches("a.b.example.com"));
    assert!(!below.matches("example.com") && !below.matches("badexample.com"));
}
