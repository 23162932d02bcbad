//! Finds import cycles between the modules of each crate, and between the files of each module.
//!
//! A file may use the items that the `mod.rs` of its folder declares: all files of a folder share them. This is not a
//! cycle.

use std::collections::{BTreeMap, BTreeSet};

use super::samples::sample;
use super::{Source, code_of, is_test_file, starts_a_word, without_tests};

/// `["upstream", "pool"]` for `upstream/pool.rs` in a crate; empty for its root.
pub(super) type Module = Vec<String>;

/// Returns the import cycles of each folder.
pub(super) fn find_cycles(sources: &[Source]) -> Vec<String> {
    let roots: BTreeSet<&str> = sources.iter().filter_map(|source| root(&source.path)).collect();
    roots.into_iter().flat_map(|root| find_cycles_of(root, sources)).collect()
}

/// Returns the folder of the crate's sources: `src` or `crates/limit/src`.
pub(super) fn root(path: &str) -> Option<&str> {
    let end = path.find("src/").filter(|at| *at == 0 || path.starts_with("crates/"))? + "src".len();
    path.get(..end)
}

fn find_cycles_of(root: &str, sources: &[Source]) -> Vec<String> {
    let imports = imports(root, sources);
    let folders: BTreeSet<&[String]> = imports.keys().filter_map(|module| Some(module.split_last()?.1)).collect();
    let mut findings = Vec::new();
    for folder in folders {
        let path = [root.to_owned()].iter().chain(folder).cloned().collect::<Vec<_>>().join("/");
        let cycle = cycle(siblings(&imports, folder));
        if !cycle.is_empty() {
            findings.push(format!("in {path}: {}", cycle.into_iter().collect::<Vec<_>>().join(", ")));
        }
    }
    findings
}

/// Returns the imports between the direct children of a folder. A child includes all files below it.
pub(super) fn siblings<'i>(
    imports: &'i BTreeMap<Module, BTreeSet<Module>>,
    folder: &[String],
) -> BTreeMap<&'i str, BTreeSet<&'i str>> {
    let unit = |module: &'i Module| module.strip_prefix(folder)?.first().map(String::as_str);
    let mut units: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in imports {
        let Some(from) = unit(from) else { continue };
        units.entry(from).or_default().extend(to.iter().filter_map(unit).filter(|to| *to != from));
    }
    units
}

/// Returns the units in cycles: repeatedly removes each unit that imports no other unit or that no other unit imports.
fn cycle<'i>(mut units: BTreeMap<&'i str, BTreeSet<&'i str>>) -> BTreeSet<&'i str> {
    loop {
        let left: BTreeSet<&str> = units.keys().copied().collect();
        let imported: BTreeSet<&str> = units.values().flatten().copied().collect();
        units.retain(|unit, to| {
            to.retain(|to| left.contains(to));
            !to.is_empty() && imported.contains(unit)
        });
        if units.len() == left.len() {
            return left;
        }
    }
}

/// Returns the imports of each module, without tests.
pub(super) fn imports(root: &str, sources: &[Source]) -> BTreeMap<Module, BTreeSet<Module>> {
    let code = sources.iter().filter(|source| !is_test_file(&source.path));
    let inside = code.filter_map(|source| Some((source.path.strip_prefix(root)?.strip_prefix('/')?, &source.text)));
    let code: BTreeMap<Module, String> = inside.map(|(path, text)| (module(path), code_only(text))).collect();
    let imports = |(own, text): (&Module, &String)| {
        let found = paths(text).into_iter().filter_map(|path| resolve(own, &path, &code));
        (own.clone(), found.filter(|to| to != own).collect())
    };
    code.iter().map(imports).collect()
}

fn module(path: &str) -> Module {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').filter(|part| !["lib", "main"].contains(part)).map(str::to_owned).collect()
}

fn code_only(text: &str) -> String {
    without_tests(text).lines().map(|line| code_of(line).to_owned() + "\n").collect()
}

/// Returns the module that a path names, or the module of the item that it names.
fn resolve(own: &Module, path: &[String], modules: &BTreeMap<Module, String>) -> Option<Module> {
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Module::new(),
        "super" => own.split_last()?.1.to_vec(),
        "self" => own.clone(),
        child => [own.as_slice(), &[child.to_owned()]].concat(),
    };
    while let Some(("super", after)) = rest.split_first().map(|(name, after)| (name.as_str(), after)) {
        (at, rest) = (at.split_last()?.1.to_vec(), after);
    }
    for name in rest {
        let below = [at.as_slice(), std::slice::from_ref(name)].concat();
        match modules.contains_key(&below) {
            true => at = below,
            false => break,
        }
    }
    (!at.is_empty() && modules.contains_key(&at)).then_some(at)
}

/// Returns all paths in a text, with groups expanded.
fn paths(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let word = code[..at].rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |before| before + 1);
        if word < at && starts_a_word(code, word) {
            read(&code[word..], &Vec::new(), &mut found);
        }
    }
    found
}

/// Reads the rest of a path that starts with `before`. Returns the text after the path.
fn read<'c>(mut code: &'c str, before: &Module, found: &mut Vec<Module>) -> &'c str {
    let mut path = before.clone();
    loop {
        if let Some(mut group) = code.strip_prefix('{') {
            while !group.is_empty() && !group.starts_with('}') {
                let after = read(group.trim_start(), &path, found);
                group = after.trim_start_matches(|c: char| c != ',' && c != '}').trim_start_matches(',').trim_start();
            }
            return group.strip_prefix('}').unwrap_or(group);
        }
        let end = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
        path.push(code[..end].to_owned());
        code = &code[end..];
        match code.strip_prefix("::") {
            Some(after) => code = after,
            None => {
                found.push(path);
                return code;
            }
        }
    }
}

// === test of the check itself ===

#[test]
fn import_cycles_are_found_at_all_levels() {
    let between_modules = [sample("src/a.rs", "use crate::b::B;"), sample("src/b/mod.rs", "use crate::{c::C, a::A};")];
    assert_eq!(find_cycles(&between_modules), ["in src: a, b"]);
    let in_a_crate = between_modules.map(|source| Source { path: format!("crates/c/{}", source.path), ..source });
    assert_eq!(find_cycles(&in_a_crate), ["in crates/c/src: a, b"]);

    let below = "mod a;\nmod b;\nfn f() { a::g() }";
    let files = |b: &str| {
        [sample("src/m/mod.rs", below), sample("src/m/a.rs", "use super::b::{self, B};"), sample("src/m/b.rs", b)]
    };
    for b in
        ["use super::a::A;", "use crate::m::{\n    a::{A, C},\n};", "fn f() -> super::a::A {}", "use super::{T, a};"]
    {
        assert_eq!(find_cycles(&files(b)), ["in src/m: a, b"], "{b}");
    }
    for b in ["use super::M;", "// see super::a::A", "#[cfg(test)]\nmod tests {\nuse super::super::a::A;\n}"] {
        assert!(find_cycles(&files(b)).is_empty(), "{b}");
    }

    let folders = [
        sample("src/m/x/mod.rs", ""),
        sample("src/m/x/deep.rs", "use super::super::y::Y;"),
        sample("src/m/y.rs", "use super::x::deep::D;"),
    ];
    assert_eq!(find_cycles(&folders), ["in src/m: x, y"]);
}
