//! Checks of the source tree that the compiler does not make: import cycles, and the form of files.
//!
//! Each check is a function from text to findings. `samples` tests each check with a bad sample.

mod imports;
mod metrics;
mod picture;
mod samples;
mod tree;

use self::tree::{all, rust};

/// Tests that may sleep: the path, the reason. All other tests wait for a condition or use virtual time.
const SLEEPERS: &[(&str, &str)] = &[
    ("src/admin/tests.rs", "sleeps in virtual time"),
    ("crates/proxy/src/server/tests", "tests the pauses of a slow client"),
    ("crates/store/src/redis/mod.rs", "polls until Redis replies"),
    ("tests/it/concurrency/fairness.rs", "holds slots for some milliseconds, and counts the calls of a second"),
    ("tests/it/concurrency/law.rs", "shows that a request waits"),
    ("tests/it/concurrency/limits.rs", "shows that a request waits, and aborts requests during a call"),
    ("tests/it/forward/failures.rs", "tests the pauses of a slow client, and sleeps in virtual time"),
    ("tests/it/forward/http2_origin/streams.rs", "tests the pauses of a slow origin"),
    ("tests/it/forward/uploads.rs", "tests the pauses of a slow client and a slow origin"),
    ("tests/it/http2_shutdown.rs", "lets a deadline pass while a client has sent half a frame"),
    ("tests/chaos/", "measures seconds with and without faults"),
    ("tests/it/http2_slow.rs", "tests the pauses of a slow client"),
    ("tests/it/descriptors.rs", "measures the CPU time of an idle program in one second"),
    ("tests/it/rate_limiter.rs", "sleeps in virtual time, polls Redis, and cancels calls"),
    ("tests/it/redis_format.rs", "polls until keys expire on the clock of Redis"),
    ("tests/it/reload/", "polls a running program, lets polls of its file pass, and paces its load"),
    ("tests/it/replaced_rules.rs", "sleeps in virtual time"),
    ("tests/it/support/", "polls conditions on behalf of the tests"),
    ("tests/it/tidy/", "contains the word that it searches for"),
    ("tests/it/upstream_panic.rs", "stops a gateway for longer than its timeout"),
    ("tests/it/upstream_restarts.rs", "keeps restarting upstreams down for a moment"),
    ("tests/it/waiting.rs", "sleeps in virtual time"),
    ("tests/it/stalls.rs", "stalls Redis for a little longer than its timeout"),
    ("tests/it/waiting_redis.rs", "lets clients of several gateways compete for a while"),
];

/// The maximum length of a file, without comment lines.
const MAX_LINES: usize = 400;

/// A file of the source tree. Its path is relative to the root.
struct Source {
    path: String,
    text: String,
}

// === the checks, applied to the source tree ===

#[test]
fn every_file_has_a_module_doc() {
    let missing = |source: &&Source| !source.text.starts_with("//! ");
    let advice = "start each file with a line `//! ` that says what the file contains";
    assert_none(advice, rust().iter().filter(missing).map(|source| source.path.clone()));
}

#[test]
fn no_modules_have_import_cycles() {
    let advice =
        "remove one import of each cycle: move the shared items to the `mod.rs` of the folder or to a new file";
    assert_none(advice, imports::find_cycles(&rust()).into_iter());
}

#[test]
fn code_has_no_unfinished_parts() {
    assert_none("finish this code, or remove it", rust().iter().flat_map(find_unfinished));
}

#[test]
fn only_listed_tests_sleep() {
    let allowed = |source: &&Source| !SLEEPERS.iter().any(|(path, _)| source.path.starts_with(path));
    let advice = "wait for a condition (`until`, `wait_for`) or use virtual time (`start_paused`) instead of sleeping";
    assert_none(advice, rust().iter().filter(allowed).flat_map(find_sleeps));
}

#[test]
fn all_exceptions_are_still_needed() {
    let sources = rust();
    let sleeps =
        |path: &str| sources.iter().any(|source| source.path.starts_with(path) && !find_sleeps(source).is_empty());
    let unused = SLEEPERS.iter().filter(|(path, _)| !sleeps(path)).map(|(path, _)| (*path).to_owned());
    assert_none("does not sleep: remove it from `SLEEPERS` in tests/it/tidy/mod.rs", unused);
}

#[test]
fn no_line_has_trailing_whitespace() {
    let mut sources = all(&["rs", "lua", "toml", "md", "conf", "yaml", "yml"]);
    sources.retain(|source| !source.path.contains("fixtures") || !source.path.contains(".y"));
    assert_none("remove the whitespace at the end of the line", sources.iter().flat_map(find_trailing_whitespace));
}

#[test]
fn no_file_is_too_long() {
    let advice = format!("move items to other files: a file has at most {MAX_LINES} lines without comment lines");
    assert_none(&advice, rust().iter().filter_map(check_length));
}

#[test]
fn modules_with_folders_use_mod_rs() {
    let sources = rust();
    let advice = "a module with a folder is in the `mod.rs` of the folder";
    assert_none(advice, sources.iter().filter_map(|source| check_module_file(&source.path, &sources)));
}

#[test]
fn every_method_of_metrics_has_a_caller() {
    assert_none("call this method where its event happens, or remove it", metrics::find_uncalled(&rust()).into_iter());
}

#[test]
fn every_script_starts_with_its_contract() {
    let mut scripts = all(&["lua"]);
    scripts.retain(|script| script.path.starts_with("lua/"));
    assert!(!scripts.is_empty());
    let advice = "start the script with comments that document its keys, its arguments and its invariant";
    assert_none(advice, scripts.iter().flat_map(check_contract));
}

// === the checks ===

fn starts_a_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':')
}

fn find_unfinished(source: &Source) -> Vec<String> {
    // Split, so that this file does not contain the words.
    let words = [["to", "do!"], ["unimple", "mented!"], ["db", "g!"], ["#[ign", "ore"]].map(|halves| halves.concat());
    let unfinished = |line: &str| words.iter().any(|word| code_of(line).contains(word));
    lines(source, unfinished)
}

fn find_sleeps(source: &Source) -> Vec<String> {
    let from = if is_test_file(&source.path) { 0 } else { without_tests(&source.text).len() };
    let before = source.text[..from].matches('\n').count();
    let tests = source.text[from..].lines().enumerate().filter(|(_, line)| code_of(line).contains("sleep("));
    tests.map(|(number, _)| format!("{}:{}", source.path, before + number + 1)).collect()
}

fn find_trailing_whitespace(source: &Source) -> Vec<String> {
    lines(source, |line| line.ends_with([' ', '\t', '\r']))
}

fn check_length(source: &Source) -> Option<String> {
    let length = source.text.lines().filter(|line| !line.trim_start().starts_with("//")).count();
    (length > MAX_LINES).then(|| format!("{}: {length} lines", source.path))
}

/// Finds a file `a.rs` next to a folder `a/`; the module belongs into `a/mod.rs`.
fn check_module_file(path: &str, sources: &[Source]) -> Option<String> {
    let folder = format!("{}/", path.strip_suffix(".rs")?);
    let inside = |source: &Source| source.path.starts_with(&folder);
    sources.iter().any(inside).then(|| format!("{path}: move it to {folder}mod.rs"))
}

fn check_contract(script: &Source) -> Vec<String> {
    let opening: Vec<&str> = script.text.lines().take_while(|line| line.starts_with("--")).collect();
    let missing = |word: &&str| !opening.iter().any(|line| line.trim_start_matches("-- ").starts_with(word));
    let words = ["KEYS", "ARGV", "Invariant:"];
    words.iter().copied().filter(missing).map(|word| format!("{}: `-- {word}` is missing", script.path)).collect()
}

// === helpers of the checks ===

/// Panics with the advice and all findings if there are any.
#[track_caller]
fn assert_none(advice: &str, findings: impl Iterator<Item = String>) {
    let findings: Vec<String> = findings.collect();
    assert!(findings.is_empty(), "{advice}:\n{}\n", findings.join("\n"));
}

fn lines(source: &Source, bad: impl Fn(&str) -> bool) -> Vec<String> {
    let found = source.text.split('\n').enumerate().filter(|(_, line)| bad(line));
    found.map(|(number, line)| format!("{}:{}: {}", source.path, number + 1, line.trim())).collect()
}

/// Returns the line without its comment. `//` after a colon is part of a URL.
fn code_of(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
    comment.map_or(line, |(at, _)| &line[..at])
}

fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("/testing.rs")
}

/// Returns the part of a file before its test module.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}
