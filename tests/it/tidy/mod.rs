//! What the compiler does not check of the source tree: who may know whom, and how files are kept.
//!
//! Each rule is a function from text to findings, tried on a bad sample of its own below, so that a rule which finds
//! nothing is known to look.

mod crates;
mod imports;
mod samples;
mod tree;

use std::collections::BTreeSet;
use std::fs;

use self::tree::{all, read, root, rust};

/// The layers of `src/lib.rs`' map. A module names those of its own layer and of the layers below.
const LAYERS: [(&str, &[&str], &str); 7] = [
    (
        "0 core",
        &["boxed", "clock", "limit", "metrics", "timer"],
        "arithmetic, time and memory: no request, no socket, no file",
    ),
    (
        "1 vocabulary",
        &[
            "client",
            "condition",
            "cost",
            "facts",
            "path",
            "policy",
            "reason",
            "route",
            "rule",
            "rules",
            "sanitize",
            "upgrade",
        ],
        "what a request says and costs: no IO",
    ),
    (
        "2 machinery",
        &["http1", "http2", "store", "tls", "transport", "upstream"],
        "IO that knows charges and addresses, but no routes and no YAML",
    ),
    (
        "3 meaning",
        &["admission", "config", "rate_limiter"],
        "what the rules mean: once to a request, once to a reader of the file",
    ),
    ("4 gateway", &["forward", "headers", "layer", "local_response", "ruleset"], "the life of one request"),
    ("5 services", &["access", "admin", "server"], "what stands around requests: connections, operators, logs"),
    ("6 program", &["cli", "gateway", "internals", "lib", "main"], "every layer put together"),
];

/// Modules of one layer that do not know each other: `check` needs no store, and a decision needs no file.
const STRANGERS: [(&str, &str); 1] = [("admission", "config")];

/// Files that may name a higher layer: where, what, why.
const UPWARD: [(&str, &str, &str); 1] =
    [("src/forward/tests", "server", "forwarding is tried on real sockets, and a server is what reads them")];

/// What is in `lib.rs` for tests alone.
const TEST_ROOMS: [&str; 1] = ["wire"];

/// Tests that may sleep: where, why. All others wait on a condition or in virtual time.
const SLEEPERS: &[(&str, &str)] = &[
    ("src/admin/tests.rs", "sleeps in virtual time"),
    ("src/forward/tests/failures.rs", "the pauses of a slow client are what is tested"),
    ("src/forward/tests/silence.rs", "sleeps in virtual time"),
    ("src/forward/tests/slow.rs", "the pauses of a slow client are what is tested"),
    ("src/server/tests", "the pauses of a slow client are what is tested"),
    ("src/store/redis/mod.rs", "asks again until Redis answers"),
    ("tests/it/http2_shutdown.rs", "a deadline passes while a client has sent half a frame"),
    ("tests/chaos/", "what happens in so many seconds of faults and of calm is what is measured"),
    ("tests/it/http2_slow.rs", "the pauses of a slow client are what is tested"),
    ("tests/it/descriptors.rs", "what an idle program costs in a second is what is measured"),
    ("tests/it/rate_limiter.rs", "sleeps in virtual time; and asks Redis again, and leaves it in the middle of calls"),
    ("tests/it/redis_format.rs", "asks again until Redis has let its keys expire, on a clock that is not ours"),
    ("tests/it/replaced_rules.rs", "sleeps in virtual time"),
    ("tests/it/support/", "asks again until a condition holds; here, so that no test has to"),
    ("tests/it/tidy/", "names what it looks for"),
    ("tests/it/waiting.rs", "sleeps in virtual time"),
];

const LONGEST_FILE: usize = 400;

/// A file of the tree, its path relative to the root.
struct Source {
    path: String,
    text: String,
}

// === the rules, held against the tree ===

#[test]
fn every_file_opens_by_saying_what_it_is() {
    none(rust().iter().filter(|source| !source.text.starts_with("//! ")).map(|source| source.path.clone()));
}

#[test]
fn no_module_names_a_higher_layer() {
    none(rust().iter().flat_map(upward));
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    none(imports::circles(&rust()).into_iter());
}

#[test]
fn no_layer_knows_a_crate_of_a_higher_one() {
    none(rust().iter().flat_map(crates::strange));
}

#[test]
fn the_layers_are_those_of_the_map_and_of_the_tree() {
    let of_the_table: BTreeSet<String> = LAYERS
        .iter()
        .flat_map(|(layer, modules, _)| modules.iter().map(move |module| format!("{layer}: {module}")))
        .collect();
    let map = read("src/lib.rs");
    let mut of_the_map = modules_of_the_map(&map.text);
    of_the_map.extend(["6 program: lib", "6 program: main"].map(String::from)); // they are the house, not modules of it
    assert_eq!(of_the_table, of_the_map);

    let folder = fs::read_dir(root().join("src")).expect("src");
    let in_the_tree: BTreeSet<String> =
        folder.map(|entry| module_of(&format!("src/{}", entry.expect("a file").file_name().display()))).collect();
    let in_the_table = LAYERS.iter().flat_map(|(_, modules, _)| modules.iter().map(ToString::to_string)).collect();
    assert_eq!(in_the_tree, in_the_table);
}

#[test]
fn nothing_unfinished_is_left_in_the_code() {
    none(rust().iter().flat_map(unfinished));
}

#[test]
fn no_test_hopes_that_a_while_is_long_enough() {
    let allowed = |source: &&Source| !SLEEPERS.iter().any(|(path, _)| source.path.starts_with(path));
    none(rust().iter().filter(allowed).flat_map(sleeps));
}

#[test]
fn every_exception_is_still_needed() {
    let sources = rust();
    let sleeps = |path: &str| sources.iter().any(|source| source.path.starts_with(path) && !sleeps(source).is_empty());
    none(SLEEPERS.iter().filter(|(path, _)| !sleeps(path)).map(|(path, _)| format!("{path} does not sleep")));
    let names =
        |source: &Source, module: &str| references(&source.path, &source.text).iter().any(|(_, name)| name == module);
    let used = |path: &str, module: &str| sources.iter().any(|one| one.path.starts_with(path) && names(one, module));
    none(
        UPWARD
            .iter()
            .filter(|(path, module, _)| !used(path, module))
            .map(|(path, module, _)| format!("{path}: {module}")),
    );
}

#[test]
fn no_line_ends_in_blanks() {
    none(all(&["rs", "lua", "toml", "md", "conf"]).iter().flat_map(trailing));
    none(all(&["yaml", "yml"]).iter().filter(|source| !source.path.contains("fixtures")).flat_map(trailing));
}

#[test]
fn no_file_is_longer_than_can_be_kept_in_mind() {
    none(rust().iter().filter_map(too_long));
}

#[test]
fn a_module_of_several_files_has_one_shape() {
    let sources = rust();
    none(sources.iter().filter_map(|source| beside_its_folder(&source.path, &sources)));
}

#[test]
fn every_script_opens_with_its_contract() {
    let mut scripts = all(&["lua"]);
    scripts.retain(|script| script.path.starts_with("lua/"));
    assert!(!scripts.is_empty());
    none(scripts.iter().flat_map(without_contract));
}

#[test]
fn every_link_to_a_file_leads_to_one() {
    let pages = all(&["md"]);
    none(pages.iter().flat_map(|page| links(&page.text).into_iter().filter_map(|link| dangling(page, &link))));
}

// === the rules ===

/// References to modules on higher layers, to strangers, and to what is in no module.
fn upward(source: &Source) -> Vec<String> {
    let Source { path, text } = source;
    let Some(own) = path.starts_with("src/").then(|| module_of(path)) else { return Vec::new() };
    let mut findings = Vec::new();
    for (line, module) in references(path, text) {
        let say = |what: &str| format!("{path}:{line}: `{own}` names `{module}`, {what}");
        match (layer(&own), layer(&module)) {
            _ if TEST_ROOMS.contains(&module.as_str()) && is_test_file(path) => {}
            _ if UPWARD.iter().any(|(from, to, _)| path.starts_with(from) && module == *to) => {}
            (_, None) => findings.push(say("which is on no layer: name the module that it is from")),
            (None, _) => findings.push(say("but is on no layer itself")),
            (Some(from), Some(to)) if to > from => findings.push(say(&format!("{} layers up", to - from))),
            _ if STRANGERS.contains(&(&own, &module)) || STRANGERS.contains(&(&module, &own)) => {
                findings.push(say("and they do not know each other"));
            }
            _ => {}
        }
    }
    findings
}

/// What stands after `crate::`, alone or in a group, or after as many `super::` as lead there; each with its line.
fn references(path: &str, text: &str) -> Vec<(usize, String)> {
    let code: String = text.lines().map(|line| code_of(line).to_owned() + "\n").collect();
    let depth = path.trim_end_matches("/mod.rs").matches('/').count();
    let to_the_root = "super::".repeat(depth);
    let mut found = Vec::new();
    for way in ["crate::", to_the_root.as_str()] {
        for (at, _) in code.match_indices(way).filter(|(at, _)| starts_a_word(&code, *at)) {
            let line = code[..at].matches('\n').count() + 1;
            let names = first_names(&code[at + way.len()..]);
            // A `super::` too few or in an inner module leads elsewhere; what is there has other names than modules.
            let names = names.into_iter().filter(|name| way == "crate::" || layer(name).is_some());
            found.extend(names.map(|name| (line, name)));
        }
    }
    found
}

fn starts_a_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':')
}

/// `a` of `a::b`, and `a` and `c` of `{a::b, c::{d, e}}`.
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

/// The modules in the rows of the map, as `6 program: cli`.
fn modules_of_the_map(lib: &str) -> BTreeSet<String> {
    let rows = lib.lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter(|row| row.starts_with(|c: char| c.is_ascii_digit()));
    let modules = |row: &str| -> Vec<String> {
        let (layer, modules) = row.split_once(" | ").expect("two columns");
        modules.split('`').skip(1).step_by(2).map(|module| format!("{layer}: {module}")).collect()
    };
    rows.flat_map(modules).collect()
}

fn unfinished(source: &Source) -> Vec<String> {
    // Put together, so that this file is none of those it looks for.
    let words = [["to", "do!"], ["unimple", "mented!"], ["db", "g!"], ["#[ign", "ore"]].map(|halves| halves.concat());
    let unfinished = |line: &str| words.iter().any(|word| code_of(line).contains(word));
    lines(source, unfinished)
}

fn sleeps(source: &Source) -> Vec<String> {
    let from = if is_test_file(&source.path) { 0 } else { without_tests(&source.text).len() };
    let before = source.text[..from].matches('\n').count();
    let tests = source.text[from..].lines().enumerate().filter(|(_, line)| code_of(line).contains("sleep("));
    tests.map(|(number, _)| format!("{}:{}", source.path, before + number + 1)).collect()
}

fn trailing(source: &Source) -> Vec<String> {
    lines(source, |line| line.ends_with([' ', '\t', '\r']))
}

fn too_long(source: &Source) -> Option<String> {
    let length = source.text.lines().filter(|line| !line.trim_start().starts_with("//")).count();
    (length > LONGEST_FILE).then(|| format!("{}: {length} lines", source.path))
}

/// A file `a.rs` with files in `a/`; their module is `a/mod.rs`.
fn beside_its_folder(path: &str, sources: &[Source]) -> Option<String> {
    let folder = format!("{}/", path.strip_suffix(".rs")?);
    let inside = |source: &Source| source.path.starts_with(&folder);
    sources.iter().any(inside).then(|| format!("{path} stands beside {folder}, and should be {folder}mod.rs"))
}

fn without_contract(script: &Source) -> Vec<String> {
    let opening: Vec<&str> = script.text.lines().take_while(|line| line.starts_with("--")).collect();
    let missing = |word: &&str| !opening.iter().any(|line| line.trim_start_matches("-- ").starts_with(word));
    let words = ["KEYS", "ARGV", "Invariant:"];
    words.iter().copied().filter(missing).map(|word| format!("{}: no {word}", script.path)).collect()
}

/// The targets of the page's links that are files.
fn links(page: &str) -> Vec<String> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with(['#', '<']));
    files.map(|target| target.split('#').next().unwrap_or_default().to_owned()).collect()
}

fn dangling(page: &Source, link: &str) -> Option<String> {
    let folder = root().join(&page.path);
    let target = folder.parent().expect("a folder").join(link);
    (!target.exists()).then(|| format!("{}: {link}", page.path))
}

// === what the rules stand on ===

fn none(findings: impl Iterator<Item = String>) {
    let findings: Vec<String> = findings.collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

fn lines(source: &Source, bad: impl Fn(&str) -> bool) -> Vec<String> {
    let found = source.text.split('\n').enumerate().filter(|(_, line)| bad(line));
    found.map(|(number, line)| format!("{}:{}: {}", source.path, number + 1, line.trim())).collect()
}

/// The line without its comment; `//` after a colon is an address.
fn code_of(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
    comment.map_or(line, |(at, _)| &line[..at])
}

/// The top-level module that a file of `src` belongs to.
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

/// A file up to its module of tests.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}
