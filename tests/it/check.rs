//! `tidegate check` and the rule file: one fixture for each kind of mistake, what is said of it in a snapshot.

#![expect(clippy::expect_used, reason = "a test fails by panicking, its helpers too")]

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

#[test]
fn the_rule_files_that_come_with_it_have_no_mistakes() {
    let files = rule_files(Path::new("config"));
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        assert_eq!(said(&file), (0, format!("{}: no mistakes\n", file.display())));
    }
}

/// All rule files of a folder and of those in it.
fn rule_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let here = files.into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    here.chain(folders.iter().flat_map(|folder| rule_files(folder))).collect()
}

#[test]
fn a_file_that_cannot_be_read_is_neither_right_nor_wrong() {
    let (code, said) = said(Path::new("tests/fixtures/config/none.yaml"));
    assert_eq!(code, 2);
    assert!(said.starts_with("tests/fixtures/config/none.yaml: cannot be read: "), "{said}");
}

#[test]
fn a_file_above_one_mebibyte_or_not_in_utf_8_is_a_mistake() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, bytes, place) in [
        ("too_large.yaml", vec![b'#'; (1 << 20) + 1], "1:1: the file is larger than 1048576 bytes"),
        ("latin_1.yaml", b"# a comment\n# caf\xe9\n".to_vec(), "2:6: byte 0xe9 is not UTF-8"),
    ] {
        let file = folder.join(name);
        fs::write(&file, bytes).expect("a file of our own");
        let (code, said) = said(&file);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(place), "{said}");
    }
}
