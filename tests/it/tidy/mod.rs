//! Checks of the source tree that the compiler does not make: layers, imports, and the form of files.
//!
//! Each check is a function from text to findings. `samples` tests each check with a bad sample.

mod crates;
mod imports;
mod picture;
mod samples;
mod tree;

use std::collections::BTreeSet;
use std::fs;

use self::tree::{all, read, root, rust};

/// The layers in the table of ARCHITECTURE.md. A module may use modules of the same layer and of lower layers.
const LAYERS: [(&str, &[&str], &str); 7] = [
    ("0 core", &[], "algorithms, time and counters, in crates: no requests, no sockets, no files"),
    ("1 vocabulary", &["overrides"], "properties and cost of a request, and settings: no IO but files"),
    (
        "2 machinery",
        &["http1", "http2", "http_client", "pem", "store", "tls", "transport", "upstream"],
        "IO with charges and addresses, without routes and YAML",
    ),
    (
        "3 meaning",
        &["admission", "build", "explain", "recording", "redisson", "rejected", "replay"],
        "the meaning of the rules: for requests, and for readers of the rule file",
    ),
    (
        "4 gateway",
        &["credentials", "forward", "headers", "layer", "limiter", "local_response", "ruleset"],
        "the processing of one request",
    ),
    ("5 services", &["access", "admin", "server"], "services around requests: connections, operators, logs"),
    ("6 program", &["cli", "gateway", "internals", "lib", "main"], "the program that combines all layers"),
];

/// Modules of one layer that must not use each other: `check` needs no store, and a decision needs no rule file.
const FORBIDDEN_PAIRS: [(&str, &str); 1] = [("admission", "config")];

/// Files that may use a higher layer: the path, the module, the reason.
const UPWARD: [(&str, &str, &str); 0] = [];

/// Modules that `lib.rs` declares only for tests.
const TEST_MODULES: [&str; 1] = ["wire"];

/// The names that `lib.rs` gives to crates of the workspace and to their modules.
const CRATES: [&str; 30] = [
    "boxed",
    "client",
    "clock",
    "concurrency",
    "condition",
    "config",
    "cost",
    "evaluation",
    "facts",
    "hex",
    "identity",
    "json",
    "limit",
    "metrics",
    "path",
    "policy",
    "random",
    "rates",
    "reason",
    "route",
    "rule",
    "rules",
    "sanitize",
    "settings",
    "status_range",
    "template",
    "timer",
    "upgrade",
    "watch",
    "words",
];

/// Tests that may sleep: the path, the reason. All other tests wait for a condition or use virtual time.
const SLEEPERS: &[(&str, &str)] = &[
    ("src/admin/tests.rs", "sleeps in virtual time"),
    ("src/server/tests", "tests the pauses of a slow client"),
    ("src/store/redis/mod.rs", "polls until Redis replies"),
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
fn no_module_uses_a_higher_layer() {
    let advice = "use only modules of the same layer or of lower layers: move the item down, or pass it as an argument";
    assert_none(advice, rust().iter().flat_map(find_higher_layers));
}

#[test]
fn no_modules_have_import_cycles() {
    let advice =
        "remove one import of each cycle: move the shared items to the `mod.rs` of the folder or to a new file";
    assert_none(advice, imports::find_cycles(&rust()).into_iter());
}

#[test]
fn layers_use_no_crates_of_higher_layers() {
    let advice = "move the code to a higher layer, or lower the layer of the crate in tests/it/tidy/crates.rs";
    assert_none(advice, rust().iter().flat_map(crates::find_higher_crates));
}

#[test]
fn layers_match_the_architecture_and_the_source_tree() {
    let table: BTreeSet<String> = LAYERS
        .iter()
        .flat_map(|(layer, modules, _)| modules.iter().map(move |module| format!("{layer}: {module}")))
        .collect();
    let mut page = modules_of_the_table(&read("ARCHITECTURE.md").text);
    page.extend(["6 program: lib", "6 program: main"].map(String::from)); // the page lists no crate roots
    assert_eq!(table, page, "list each module in `LAYERS` of tests/it/tidy/mod.rs and in ARCHITECTURE.md");

    let folder = fs::read_dir(root().join("src")).expect("src");
    let tree: BTreeSet<String> =
        folder.map(|entry| module_of(&format!("src/{}", entry.expect("a file").file_name().display()))).collect();
    let listed = LAYERS.iter().flat_map(|(_, modules, _)| modules.iter().map(ToString::to_string)).collect();
    assert_eq!(tree, listed, "list each module of src in `LAYERS` of tests/it/tidy/mod.rs, and no others");
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
    let names =
        |source: &Source, module: &str| references(&source.path, &source.text).iter().any(|(_, name)| name == module);
    let uses = |path: &str, module: &str| sources.iter().any(|one| one.path.starts_with(path) && names(one, module));
    let unused = UPWARD.iter().filter(|(path, module, _)| !uses(path, module));
    assert_none(
        "does not use this module: remove it from `UPWARD` in tests/it/tidy/mod.rs",
        unused.map(|(path, module, _)| format!("{path}: {module}")),
    );
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
fn every_script_starts_with_its_contract() {
    let mut scripts = all(&["lua"]);
    scripts.retain(|script| script.path.starts_with("lua/"));
    assert!(!scripts.is_empty());
    let advice = "start the script with comments that document its keys, its arguments and its invariant";
    assert_none(advice, scripts.iter().flat_map(check_contract));
}

// === the checks ===

/// Returns the uses of higher layers, of forbidden modules, and of items outside modules.
fn find_higher_layers(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let Some(own) = path.starts_with("src/").then(|| module_of(path)) else { return Vec::new() };
    let mut findings = Vec::new();
    for (line, module) in references(path, text) {
        let report = |fault: &str| format!("{path}:{line}: `{own}` uses `{module}`, {fault}");
        match (layer(&own), layer(&module)) {
            _ if TEST_MODULES.contains(&module.as_str()) && is_test_file(path) => {}
            _ if UPWARD.iter().any(|(from, to, _)| path.starts_with(from) && module == *to) => {}
            _ if CRATES.contains(&module.as_str()) => {}
            (_, None) => findings.push(report("which is in no layer: write the path of its module")),
            (None, _) => findings.push(report(&format!("but `LAYERS` does not list `{own}`"))),
            (Some(from), Some(to)) if to > from => {
                findings.push(report(&format!("which is in the higher layer `{}`", LAYERS[to].0)));
            }
            _ if FORBIDDEN_PAIRS.contains(&(&own, &module)) || FORBIDDEN_PAIRS.contains(&(&module, &own)) => {
                findings.push(report("which `FORBIDDEN_PAIRS` forbids"));
            }
            _ => {}
        }
    }
    findings
}

/// Returns each name after `crate::`, or after enough `super::` to reach the root, with its line.
fn references(path: &str, text: &str) -> Vec<(usize, String)> {
    let code: String = text.lines().map(|line| code_of(line).to_owned() + "\n").collect();
    let depth = path.trim_end_matches("/mod.rs").matches('/').count();
    let to_the_root = "super::".repeat(depth);
    let mut found = Vec::new();
    for way in ["crate::", to_the_root.as_str()] {
        for (at, _) in code.match_indices(way).filter(|(at, _)| starts_a_word(&code, *at)) {
            let line = code[..at].matches('\n').count() + 1;
            let names = first_names(&code[at + way.len()..]);
            // In an inner module the same `super::` leads elsewhere, where no item has the name of a top-level module.
            let names = names.into_iter().filter(|name| way == "crate::" || layer(name).is_some());
            found.extend(names.map(|name| (line, name)));
        }
    }
    found
}

fn starts_a_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':')
}

/// Returns `a` for `a::b`, and `a` and `c` for `{a::b, c::{d, e}}`.
fn first_names(path: &str) -> Vec<String> {
    let name = |part: &str| part.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(name(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the modules in the rows of the table, in the form `6 program: cli`.
fn modules_of_the_table(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.filter(|row| row.starts_with(|c: char| c.is_ascii_digit()));
    let modules = |row: &str| -> Vec<String> {
        let (layer, modules) = row.split_once(" | ").expect("two columns");
        modules.split('`').skip(1).step_by(2).map(|module| format!("{layer}: {module}")).collect()
    };
    rows.flat_map(modules).collect()
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

/// Returns the top-level module of a file in `src`.
fn module_of(path: &str) -> String {
    let module = path.trim_start_matches("src/").split('/').next().unwrap_or_default();
    module.trim_end_matches(".rs").to_owned()
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|(_, modules, _)| modules.contains(&module))
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
