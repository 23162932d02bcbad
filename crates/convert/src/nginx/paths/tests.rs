//! Patterns of common paths and regular expressions.

use super::*;

fn shown(regex: &str) -> String {
    match similar_to_regex(regex) {
        None => "none".to_owned(),
        Some(Paths { patterns, is_exact }) => format!("{}{}", if is_exact { "" } else { "~ " }, patterns.join(" ")),
    }
}

#[test]
fn prefixes_and_paths_have_patterns() {
    assert_eq!(prefix("/").as_deref(), Some("/**"));
    assert_eq!(prefix("/api").as_deref(), Some("/api*/**"));
    assert_eq!(prefix("/a b/").as_deref(), Some("/a%20b/**"));
    assert_eq!(exact("/a/"), Some(vec!["/a/".to_owned()]));
    assert_eq!((exact("/a*"), prefix("a"), prefix("/a;b/")), (None, None, None));
}

#[test]
fn common_regexes_have_patterns() {
    for (regex, patterns) in [
        (r"\.php$", "/**/*.php"),
        (r"\.(jpe?g|png)$", "/**/*.jpg /**/*.jpeg /**/*.png"),
        ("^/api/", "/api/**"),
        ("^/api", "/api*/**"),
        ("^/(a|b)/c$", "/a/c /b/c"),
        ("^/api(/|$)", "/api/**"),
        ("^/api(/.*)?$", "/api/**"),
        ("^/api(/|$)(.*)", "/api/**"),
        (r"^/user/([^/]+)/posts$", "/user/{p1}/posts"),
        (r"^/app/.*\.php$", "/app/**/*.php"),
        (r"^/v[12]/", "/v1/** /v2/**"),
        ("^/$", "/"),
        (".*", "/**"),
        ("/feed$", "/**/feed"),
        (r"^/a.*\.js$", "/a*.js /a*/**/*.js"),
        (r"^/x/(?<name>[^/]+)/(?<rest>.*)$", "/x/{p1}/**"),
    ] {
        assert_eq!(shown(regex), patterns, "{regex}");
    }
}

#[test]
fn other_regexes_have_similar_patterns_or_none() {
    for (regex, patterns) in [
        (r"^/user/\d+$", "~ /user/{p1}"),
        (r"/\.ht", "~ /.ht*/** /**/.ht*"),
        ("^/a/.*/b$", "~ /a/**/b"),
        (".php$", "~ /**/*php"),
        (r"^/(?!api)", "none"),
        (r"^/a/.*/b/.*/c$", "none"),
        ("(", "none"),
        (r"\.php\b", "none"),
    ] {
        assert_eq!(shown(regex), patterns, "{regex}");
    }
    assert_eq!(similar_to_regex(&"(a|b)".repeat(30)), None);
}

#[test]
fn patterns_below_a_prefix_keep_both_conditions() {
    assert_eq!(below("/app/", "/**/*.php").as_deref(), Some("/app/**/*.php"));
    assert_eq!(below("/app/", "/app/x").as_deref(), Some("/app/x"));
    assert_eq!(below("/", "/**/*.php").as_deref(), Some("/**/*.php"));
    assert_eq!(below("/app", "/**/*.php"), None);
}
