//! Checks the files of the published crate, which `include` in Cargo.toml selects.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::pages;

/// The maximum number of files outside `src`.
const MAX_OTHER_FILES: usize = 100;

#[test]
fn package_has_the_files_that_users_need() {
    let files = packaged_files();
    let mut needed: BTreeSet<String> = ["Cargo.lock", "README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"]
        .map(String::from)
        .into_iter()
        .chain(links_of_readme("docs/"))
        .chain(links_of_readme("examples/"))
        .collect();
    let mut folders = vec![pages::root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("text");
            needed.insert(path.strip_prefix(pages::root()).expect("a path in the folder").display().to_string());
            needed.extend(included_files(&text, path.parent().expect("a folder")));
        }
    }
    assert!(needed.contains("lua/admit.lua") && needed.contains("docs/rules.md"), "{needed:?}");
    let missing: Vec<_> = needed.difference(&files).collect();
    assert!(missing.is_empty(), "add these files to `include` in Cargo.toml: {missing:?}");
}

#[test]
fn package_has_no_files_of_contributors() {
    let files = packaged_files();
    let folders = ["src/", "lua/", "dashboard/", "config/", "docs/", "examples/"];
    let is_known = |file: &&String| !file.contains('/') || folders.iter().any(|folder| file.starts_with(folder));
    let unknown: Vec<_> = files.iter().filter(|file| !is_known(file) || file.starts_with("docs/internals/")).collect();
    assert!(unknown.is_empty(), "remove these files from `include` in Cargo.toml: {unknown:?}");
    let others = files.iter().filter(|file| !file.starts_with("src/")).count();
    assert!(others <= MAX_OTHER_FILES, "{others} files outside `src`");
}

fn packaged_files() -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--list", "--allow-dirty", "--locked", "--offline"]).current_dir(pages::root());
    let output = cargo.output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// Returns the files in a folder to which README.md links.
fn links_of_readme(folder: &str) -> Vec<String> {
    let page = fs::read_to_string(pages::root().join("README.md")).expect("the page");
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let files = targets.filter(|target| target.starts_with(folder) && pages::root().join(target).is_file());
    files.map(str::to_owned).collect()
}

/// Returns the files outside `src` that a source file includes.
fn included_files(text: &str, folder: &Path) -> Vec<String> {
    let paths = text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let root = fs::canonicalize(pages::root()).expect("the folder");
    let absolute = paths.map(|path| fs::canonicalize(folder.join(path)).expect("an included file"));
    absolute.map(|path| path.strip_prefix(&root).expect("a path in the folder").display().to_string()).collect()
}
