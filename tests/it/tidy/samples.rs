//! Tests of the checks themselves, with bad samples.

use super::*;

pub(super) fn sample(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

#[test]
fn unfinished_sleeping_blank_and_long_code_is_found() {
    let text = ["fn f() { to", "do!() }\n// to", "do!\n#[ign", "ore]\n"].concat();
    assert_eq!(find_unfinished(&sample("src/a.rs", &text)).len(), 2);

    let nap = "fn f() { sleep(LONG) }\n";
    let tests = format!("{nap}#[cfg(test)]\nmod tests {{\n{nap}}}\n");
    assert_eq!(find_sleeps(&sample("src/a.rs", &tests)), ["src/a.rs:4"]);
    assert_eq!(find_sleeps(&sample("tests/it/a.rs", nap)), ["tests/it/a.rs:1"]);

    assert_eq!(find_trailing_whitespace(&sample("a.md", "a\nb \nc\t\nd\r\n")).len(), 3);
    let long = "//! Why.\n".to_owned() + &"f();\n".repeat(MAX_LINES);
    assert_eq!(check_length(&sample("src/a.rs", &long)), None);
    assert!(check_length(&sample("src/a.rs", &(long + "f();\n"))).is_some());

    let sources = [sample("src/a.rs", ""), sample("src/a/b.rs", ""), sample("src/ab.rs", "")];
    let found: Vec<_> = sources.iter().filter_map(|source| check_module_file(&source.path, &sources)).collect();
    assert_eq!(found, ["src/a.rs: move it to src/a/mod.rs"]);
}

#[test]
fn metrics_without_a_caller_are_found() {
    let metrics = "pub fn counted(&self) {}\npub fn forgotten<T>(&self, _: T) {}\npub const fn tested() {}\n";
    let user = "fn f() { metrics.counted(); }\n#[cfg(test)]\nmod tests { fn f() { x::tested(); } }\n";
    let sources = [sample("crates/metrics/src/a.rs", metrics), sample("src/b.rs", user)];
    let uncalled = metrics::find_uncalled(&sources);
    assert_eq!(uncalled, ["crates/metrics/src/a.rs: forgotten", "crates/metrics/src/a.rs: tested"]);
}

#[test]
fn missing_contracts_are_found() {
    let script = "-- a script\n-- KEYS  one\n\n-- ARGV  none\n";
    assert_eq!(
        check_contract(&sample("lua/a.lua", script)),
        ["lua/a.lua: `-- ARGV` is missing", "lua/a.lua: `-- Invariant:` is missing"]
    );
}
