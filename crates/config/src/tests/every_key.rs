//! The rule files whose `/api/v1/config` is pinned use every key. The descriptions of the keys have valid examples.

use std::fs;

use crate::file;
use crate::file::keys::Presence;
use crate::file::used::{Keys, add_keys_of, known_keys};
use crate::problem::Problems;
use crate::sources::SourceFiles;
use crate::sources::referenced_files::ReferencedFiles;
use crate::yaml::key_value::KeyValue;
use crate::yaml::node::{Node, Value};
use crate::yaml::placeholders::Placeholders;
use crate::yaml::{self, Usage};

fn read(text: &str, problems: &mut Problems) -> Node {
    let mut sources = SourceFiles::default();
    let mut placeholders = Placeholders::new(ReferencedFiles::in_current_folder(), &mut sources);
    yaml::read(text, 0, &mut Usage::default(), &mut placeholders, problems).expect("a tree")
}

#[test]
fn pinned_rule_files_use_every_key() {
    let mut used = Keys::new();
    for entry in fs::read_dir("../../tests/fixtures/every_key").expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            let text = fs::read_to_string(&path).expect("a rule file");
            let root = read(&text, &mut Problems::default());
            assert!(matches!(root.value, Value::Map(_)), "{}", path.display());
            add_keys_of(&root, &file::FILE, &mut used);
        }
    }
    let unused: Vec<_> = known_keys().difference(&used).copied().collect();
    assert!(unused.is_empty(), "add these keys to tests/fixtures/every_key/: {unused:?}");
}

#[test]
fn defaults_and_examples_of_keys_are_valid() {
    let mut checked = 0;
    for key in file::SHAPES.iter().flat_map(|shape| shape.keys()) {
        let text = match key.presence {
            Presence::Required(example) => example.to_owned(),
            Presence::Default("1.2") => "min_version: '1.2'".to_owned(), // the page shows the value without quotes
            Presence::Default(value) => format!("{}: {value}", key.name),
            Presence::Optional => continue,
        };
        let mut problems = Problems::default();
        let root = read(&text, &mut problems);
        let entry = root.entries().first().expect("a key");
        let value = KeyValue { node: &entry.value, key: key.name }.validate(&key.kind, &mut problems);
        assert!(entry.key == key.name && value.is_ok() && problems.is_empty(), "{text}: {problems}");
        checked += 1;
    }
    assert!(checked > 50, "{checked} keys");
}
