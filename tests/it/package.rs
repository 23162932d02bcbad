//! Checks the files of the published crates. `include` in Cargo.toml selects the files of `tidegate`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::support::pages;

/// The maximum number of files outside `src`.
const MAX_OTHER_FILES: usize = 100;

#[test]
fn package_has_the_files_that_users_need() {
    let files = packaged_files("tidegate");
    let mut needed: BTreeSet<String> = ["Cargo.lock", "README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"]
        .map(String::from)
        .into_iter()
        .chain(links_of_readme("docs/"))
        .chain(links_of_readme("examples/"))
        .collect();
    needed.extend(compiled_files(pages::root()));
    assert!(needed.contains("dashboard/main.js") && needed.contains("docs/rules.md"), "{needed:?}");
    let missing: Vec<_> = needed.difference(&files).collect();
    assert!(missing.is_empty(), "add these files to `include` in Cargo.toml: {missing:?}");
}

/// A package contains only files below its own folder.
#[test]
fn packages_have_the_files_that_they_are_compiled_from() {
    let mut included = 0;
    for entry in fs::read_dir(pages::root().join("crates")).expect("a folder") {
        let folder = entry.expect("an entry").path();
        let name = format!("tidegate-{}", folder.file_name().expect("a name").display());
        let (needed, files) = (compiled_files(&folder), packaged_files(&name));
        included += needed.iter().filter(|file| !file.ends_with(".rs")).count();
        let missing: Vec<_> = needed.difference(&files).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
    assert!(included > 10, "{included}: the scripts of Redis");
}

#[test]
fn package_has_no_files_of_contributors() {
    let files = packaged_files("tidegate");
    let folders = ["src/", "dashboard/", "config/", "docs/", "examples/"];
    let is_known = |file: &&String| !file.contains('/') || folders.iter().any(|folder| file.starts_with(folder));
    let unknown: Vec<_> = files.iter().filter(|file| !is_known(file) || file.starts_with("docs/internals/")).collect();
    assert!(unknown.is_empty(), "remove these files from `include` in Cargo.toml: {unknown:?}");
    let others = files.iter().filter(|file| !file.starts_with("src/")).count();
    assert!(others <= MAX_OTHER_FILES, "{others} files outside `src`");
}

fn packaged_files(package: &str) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--list", "--allow-dirty", "--locked", "--offline", "-p", package]);
    let output = cargo.current_dir(pages::root()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// Returns the files in `src` of a package, and the files that these include, relative to the folder of the package.
fn compiled_files(package: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![package.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).expect("a file");
            let text = String::from_utf8_lossy(&bytes); // some files are binary
            let relative = |path: &Path| path.strip_prefix(package).expect("a path below").display().to_string();
            found.insert(relative(&path));
            found.extend(included_files(&text, path.parent().expect("a folder")).iter().map(|path| relative(path)));
        }
    }
    found
}

/// Returns the files in a folder to which README.md links.
fn links_of_readme(folder: &str) -> Vec<String> {
    let page = fs::read_to_string(pages::root().join("README.md")).expect("the page");
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let files = targets.filter(|target| target.starts_with(folder) && pages::root().join(target).is_file());
    files.map(str::to_owned).collect()
}

/// Returns the files that a source file includes, without following links.
fn included_files(text: &str, folder: &Path) -> Vec<PathBuf> {
    let paths = text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    paths.map(|path| without_parents(&folder.join(path))).collect()
}

/// Returns a path without `..`.
fn without_parents(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = found.pop(),
            part => found.push(part),
        }
    }
    found
}
