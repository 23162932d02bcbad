//! Files that try to use much time or memory.

use std::fmt::Write;
use std::path::PathBuf;

use super::*;
use crate::sources::texts::Texts;
use crate::{ConvertError, Options};

fn outcome(text: &str) -> Result<Conversion, ConvertError> {
    let files = Texts::from([("nginx.conf", text)]);
    let options = Options { format: Some(Format::Nginx), ..Options::default() };
    crate::convert(&[PathBuf::from("nginx.conf")], &files, &options)
}

fn error(text: &str) -> String {
    outcome(text).unwrap_err().to_string()
}

#[test]
fn numbers_of_locations_and_names_are_bounded() {
    let mut locations = String::new();
    (0..6_000).for_each(|number| write!(locations, "location /{number}/ {{ proxy_pass http://a; }}").unwrap());
    assert_eq!(error(&format!("server {{ {locations} }}")), "a server has more than 5000 locations");
    let mut names = String::new();
    (0..3_000).for_each(|number| write!(names, " n{number}.example").unwrap());
    let message = "there are more than 5000 servers, or more than 2000 names of servers";
    assert_eq!(error(&format!("server {{ server_name {names}; }}")), message);
}

#[test]
fn repeated_headers_are_bounded() {
    let text = format!("http {{ {} }}", "add_header X-A b;\n".repeat(300));
    assert_eq!(error(&text), "nginx.conf:201: a block has more than 200 `add_header`");
}

#[test]
fn hosts_of_a_route_are_split() {
    let mut names = String::new();
    (0..1_500).for_each(|number| write!(names, " n{number}.example").unwrap());
    let text = format!(
        "server {{ listen 80; return 404; }} server {{ listen 80; server_name {names}; location / {{ proxy_pass http://a; }} }}"
    );
    let conversion = convert(&text);
    assert_eq!(upstream(&conversion, "http://n1499.example/"), "a");
}

#[test]
fn large_maps_are_bounded() {
    let mut entries = String::new();
    (0..12_000).for_each(|number| write!(entries, "~^{number}x {number};").unwrap());
    let conversion = convert(&with_limits(
        &format!("map $http_x $key {{ {entries} }} limit_req_zone $key zone=one:1m rate=1r/s;"),
        "limit_req zone=one;",
    ));
    assert_eq!(findings(&conversion, "map"), ["lost: `map` has more than 10000 entries"]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    #[test]
    fn any_words_are_converted_or_an_error(words in proptest::collection::vec(
        proptest::sample::select(vec![
            "http", "server", "location", "{", "}", ";", "listen 80;", "/", "~", "^~", "=", "\\.php$", "proxy_pass", "http://a",
            "limit_req", "zone=one", "burst=9", "$uri", "map", "geo", "default", "if", "($a", "=", "1)", "return", "301", "rewrite",
            "upstream", "a", "server_name", "*.b", "\"x y\"", "#", "\n", "limit_req_zone", "rate=1r/s", "zone=one:1m", "set", "$a",
        ]),
        0..60,
    )) {
        if let Ok(conversion) = outcome(&words.join(" ")) {
            proptest::prop_assert!(Config::parse(&conversion.rules).is_ok(), "{}", conversion.rules);
        }
    }
}
