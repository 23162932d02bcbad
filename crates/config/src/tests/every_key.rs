//! The rule files whose `/api/v1/config` is pinned use every key. The descriptions of the keys have valid examples.

use std::fs;

use crate::file;
use crate::file::keys::{Kind, Presence};
use crate::file::located::Located;
use crate::file::read::{FromMap, FromYaml, MapReader, read_item};
use crate::file::used::{Keys, add_keys_of, known_keys};
use crate::problem::{Checked, Problems};
use crate::sources::SourceFiles;
use crate::sources::referenced_files::ReferencedFiles;
use crate::values::units::{Bytes, Interval, Millis};
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

/// A map with fixed keys, whose values are not read.
struct AnyMap;

/// A value that is not read.
struct AnyValue;

impl FromMap for AnyMap {
    fn from_map(_: &MapReader<'_>, _: &mut Problems) -> Self {
        Self
    }
}

impl FromYaml for AnyValue {
    fn from_yaml(_: KeyValue<'_>, _: &'static Kind, _: &mut Problems) -> Checked<Self> {
        Ok(Self)
    }
}

/// Reads a value of this kind, and reports its errors.
fn read_value(node: &Node, kind: &'static Kind, problems: &mut Problems) {
    let (key, is_map) = ("key", matches!(node.value, Value::Map(_)));
    match kind {
        Kind::Flag => drop(read_item::<bool>(node, key, kind, problems)),
        Kind::Integer(..) => drop(read_item::<u64>(node, key, kind, problems)),
        Kind::Decimal(_) => drop(read_item::<f64>(node, key, kind, problems)),
        Kind::Duration(..) => drop(read_item::<Millis>(node, key, kind, problems)),
        Kind::Size(..) => drop(read_item::<Bytes>(node, key, kind, problems)),
        Kind::Interval(..) => drop(read_item::<Interval>(node, key, kind, problems)),
        Kind::Word(words) => {
            let text = node.scalar().map(|scalar| &scalar.text);
            assert!(words.iter().any(|word| Some(word.name) == text.map(String::as_str)), "{text:?}");
        }
        Kind::List(item_kind) | Kind::Many(item_kind) | Kind::OneOrMany(item_kind) => {
            _ = read_item::<Vec<Located<AnyValue>>>(node, key, kind, problems);
            node.items().iter().for_each(|item| read_value(item, item_kind, problems));
        }
        Kind::OrMap(kind, _) if !is_map => read_value(node, kind, problems),
        Kind::Map(shape) | Kind::Short(_, shape) | Kind::OrMap(_, shape) => {
            _ = read_item::<AnyMap>(node, key, kind, problems);
            for entry in node.entries() {
                if let Some(key) = shape.key(&entry.key) {
                    read_value(&entry.value, &key.kind, problems);
                }
            }
            if let (Kind::Short(key, _), false) = (kind, is_map) {
                read_value(node, &shape.key(key).expect("a key").kind, problems);
            }
        }
        Kind::OrNone(kind) => read_value(node, kind, problems),
        Kind::Entries(kind) => node.entries().iter().for_each(|entry| read_value(&entry.value, kind, problems)),
        _ => drop(read_item::<String>(node, key, kind, problems)),
    }
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
        read_value(&entry.value, &key.kind, &mut problems);
        assert!(entry.key == key.name && problems.is_empty(), "{text}: {problems}");
        checked += 1;
    }
    assert!(checked > 50, "{checked} keys");
}

#[test]
fn invalid_examples_are_reported() {
    let cases = [
        ("routes", "a"),
        ("routes", "[]"),
        ("routes", "[{ name: a }]"),
        ("listen", "[]"),
        ("listen", "{ address: a, port: 1 }"),
        ("admin", "[a]"),
        ("store", "{ timeout: 1x }"),
    ];
    for (key, text) in cases {
        let mut problems = Problems::default();
        let root = read(&format!("{key}: {text}"), &mut problems);
        let kind = &file::FILE.key(key).expect("a key").kind;
        read_value(&root.entries()[0].value, kind, &mut problems);
        assert!(!problems.is_empty(), "{key}: {text}");
    }
}
