//! Who imports whom: between the modules of `src`, and between the files of each module.
//!
//! A file may use what the `mod.rs` above it declares, which is the vocabulary of all files beside it; that is no circle.

use std::collections::{BTreeMap, BTreeSet};

use super::samples::sample;
use super::{Source, code_of, is_test_file, starts_a_word, without_tests};

/// `["upstream", "pool"]` for `src/upstream/pool.rs`; nothing for the root.
type Module = Vec<String>;

/// Modules, and files of a module, that import each other in a circle.
pub(super) fn circles(sources: &[Source]) -> Vec<String> {
    let imports = imports(sources);
    let folders: BTreeSet<&[String]> = imports.keys().filter_map(|module| Some(module.split_last()?.1)).collect();
    let mut findings = Vec::new();
    for folder in folders {
        let path = ["src".to_owned()].iter().chain(folder).cloned().collect::<Vec<_>>().join("/");
        let circle = circle(beside_each_other(&imports, folder));
        if !circle.is_empty() {
            findings.push(format!("in {path}: {}", circle.into_iter().collect::<Vec<_>>().join(", ")));
        }
    }
    findings
}

/// Who imports whom among what is right below a folder, with all that is below each.
fn beside_each_other<'i>(
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

/// Those that are left when whoever imports none of the others, or is imported by none of them, is taken away.
fn circle<'i>(mut units: BTreeMap<&'i str, BTreeSet<&'i str>>) -> BTreeSet<&'i str> {
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

/// What each module imports, tests aside.
fn imports(sources: &[Source]) -> BTreeMap<Module, BTreeSet<Module>> {
    let code = sources.iter().filter(|source| source.path.starts_with("src/") && !is_test_file(&source.path));
    let code: BTreeMap<Module, String> = code.map(|source| (module(&source.path), code_alone(&source.text))).collect();
    let imports = |(own, text): (&Module, &String)| {
        let found = paths(text).into_iter().filter_map(|path| resolve(own, &path, &code));
        (own.clone(), found.filter(|to| to != own).collect())
    };
    code.iter().map(imports).collect()
}

fn module(path: &str) -> Module {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').filter(|part| !["lib", "main"].contains(part)).map(str::to_owned).collect()
}

fn code_alone(text: &str) -> String {
    without_tests(text).lines().map(|line| code_of(line).to_owned() + "\n").collect()
}

/// The module that a path leads to, or is in.
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

/// Every path in a text, those in groups one by one.
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

/// Reads a path, whose beginning was read before; returns what follows it.
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

// === the rule finds what it looks for ===

#[test]
fn a_circle_is_found_between_modules_between_files_and_between_folders() {
    let between_modules = [sample("src/a.rs", "use crate::b::B;"), sample("src/b/mod.rs", "use crate::{c::C, a::A};")];
    assert_eq!(circles(&between_modules), ["in src: a, b"]);

    let below = "mod a;\nmod b;\nfn f() { a::g() }";
    let files = |b: &str| {
        [sample("src/m/mod.rs", below), sample("src/m/a.rs", "use super::b::{self, B};"), sample("src/m/b.rs", b)]
    };
    for b in
        ["use super::a::A;", "use crate::m::{\n    a::{A, C},\n};", "fn f() -> super::a::A {}", "use super::{T, a};"]
    {
        assert_eq!(circles(&files(b)), ["in src/m: a, b"], "{b}");
    }
    for b in ["use super::M;", "// see super::a::A", "#[cfg(test)]\nmod tests {\nuse super::super::a::A;\n}"] {
        assert!(circles(&files(b)).is_empty(), "{b}");
    }

    let folders = [
        sample("src/m/x/mod.rs", ""),
        sample("src/m/x/deep.rs", "use super::super::y::Y;"),
        sample("src/m/y.rs", "use super::x::deep::D;"),
    ];
    assert_eq!(circles(&folders), ["in src/m: x, y"]);
}
