//! `tidegate check` and the rule file: one fixture for each kind of mistake, what is said of it in a snapshot.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate::cli::check::check;

/// What `tidegate check FILE` says, with its exit code.
fn said(file: &Path) -> (u8, String) {
    let mut out = Vec::new();
    let code = check(file, &mut out).expect("a vector takes what is written");
    (code, String::from_utf8(out).expect("messages are UTF-8"))
}

/// Relative, since messages show it.
fn fixtures() -> Vec<PathBuf> {
    let folder = fs::read_dir("tests/fixtures/config").expect("fixtures");
    let mut files: Vec<_> = folder.map(|entry| entry.expect("a fixture").path()).collect();
    files.sort();
    files
}

#[test]
fn every_mistake_is_named_with_its_place_and_a_help() {
    for file in fixtures() {
        let (code, said) = said(&file);
        let name = file.file_stem().expect("a name").to_string_lossy();
        assert_eq!(code, 1, "{name}: {said}");
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name.into_owned(), said);
        });
    }
}

#[test]
fn no_message_repeats_a_secret() {
    for file in fixtures() {
        let (_, said) = said(&file);
        assert!(!said.contains("hunter2") && !said.contains("1234567890123456"), "{said}");
    }
}
