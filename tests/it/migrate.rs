//! The rule files of `examples/migrate` are valid, and docs/migrate.md quotes the example files. `tests/migrate/run`
//! sends requests to the gateways.

use std::collections::BTreeSet;
use std::fs;

use crate::support::pages::{self, Page};
use crate::support::process::output;

const FOLDER: &str = "examples/migrate";

#[test]
fn migration_rule_files_are_valid() {
    let files = example_files();
    let rules: Vec<_> = files.iter().filter(|file| file.ends_with("/tidegate.yaml")).collect();
    assert!(rules.len() >= 6, "{files:?}");
    for file in rules {
        let checked = output(&["check", pages::root().join(file).to_str().expect("a path in UTF-8")]);
        assert!(checked.status.success(), "{file}: {}", String::from_utf8_lossy(&checked.stdout));
    }
}

/// Each block names its file after the language, and consists of successive lines of it. Blocks of commands have no file.
#[test]
fn migration_page_quotes_the_example_files() {
    let page = Page::read(pages::root().join("docs/migrate.md"));
    let mut quoted = BTreeSet::new();
    for block in page.blocks().into_iter().filter(|block| block.language != "sh") {
        let place = format!("docs/migrate.md:{}", block.line);
        let (_, file) = block.language.split_once(' ').unwrap_or_else(|| panic!("{place}: the block names no file"));
        let text = fs::read_to_string(pages::root().join(file)).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(text.contains(&block.code), "{place}: {file} does not contain these lines");
        quoted.insert(file.to_owned());
    }
    assert_eq!(quoted, example_files());
}

fn example_files() -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for folder in fs::read_dir(pages::root().join(FOLDER)).expect("a folder") {
        let folder = folder.expect("an entry").path();
        for file in fs::read_dir(folder).expect("a folder") {
            let path = file.expect("an entry").path();
            files.insert(path.strip_prefix(pages::root()).expect("a path in the folder").display().to_string());
        }
    }
    files
}
