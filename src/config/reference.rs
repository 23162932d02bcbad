//! The reference of the rule file for people, written of the descriptions of its keys.

use std::fmt::Write;

use super::file::SHAPES;
use super::keys::{Key, Kind, Need, Shape};
use super::problem::quote;
use super::units::{Bytes, Millis};
use crate::limit::calendar::Unit;

const OPENING: &str = "# The rule file

Every key there is, written by the program from what it checks files against: `cargo run --example rules` writes this page
anew. `tidegate check FILE` lists all mistakes of a file, each with its line and what would help.

A duration is `250ms`, `10s`, `1m30s`, `2h`, `1d`; a size is `512B`, `16KiB`, `10MiB`, `1GiB`. A name is one to 64 letters, digits and
`._-`. An unknown key is a mistake.
";

/// The page `docs/rules.md`.
pub fn reference() -> String {
    let mut page = OPENING.to_owned();
    for shape in SHAPES {
        section(shape, &mut page);
    }
    page
}

fn section(shape: &Shape, page: &mut String) {
    _ = write!(page, "\n## {}\n\n{}\n\n", title(shape), shape.about.trim());
    page.push_str("| key | value | without it | what it does |\n|---|---|---|---|\n");
    for Key { name, kind, need, about } in shape.keys().filter(|key| !matches!(key.kind, Kind::Unbuilt)) {
        let without = match need {
            Need::Needed(example) => format!("needed: `{example}`"),
            Need::Default(value) => format!("`{value}`"),
            Need::Optional => String::new(),
        };
        _ = writeln!(page, "| `{name}` | {} | {without} | {} |", value(kind), about.trim());
    }
    let unbuilt: Vec<_> = shape.keys().filter(|key| matches!(key.kind, Kind::Unbuilt)).map(|key| key.name).collect();
    if !unbuilt.is_empty() {
        let names: Vec<_> = unbuilt.iter().map(|name| quote(name)).collect();
        _ = writeln!(page, "\nNot built yet: {}.", names.join(", "));
    }
}

/// What a shape describes, as a heading.
fn title(shape: &Shape) -> String {
    let mut letters = shape.what.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn link(shape: &Shape) -> String {
    let anchor: String = shape.what.to_lowercase().chars().filter(|letter| *letter != '`').collect();
    format!("[{}](#{})", shape.what, anchor.replace(' ', "-"))
}

/// A sentence as a part of another.
fn plain(sentence: &str) -> String {
    let sentence = sentence.trim().trim_end_matches('.');
    if sentence.chars().nth(1).is_some_and(char::is_uppercase) {
        return sentence.to_owned(); // HTTP, TLS
    }
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// What a value must be, in words.
fn value(kind: &Kind) -> String {
    match kind {
        Kind::Text | Kind::Address | Kind::Secret => "text".to_owned(),
        Kind::Name => "a name".to_owned(),
        Kind::Word(words) => {
            let told =
                words.built.iter().zip(words.told).map(|(word, told)| format!("{}: {}", quote(word), plain(told)));
            told.collect::<Vec<_>>().join("; ")
        }
        Kind::Flag => "`true`, `false`".to_owned(),
        Kind::Whole(least, most) => format!("a whole number, {least} to {most}"),
        Kind::Duration(least, most) => format!("a duration, {} to {}", Millis::show(*least), Millis::show(*most)),
        Kind::Size(least, most) => format!("a size, {} to {}", Bytes::show(*least), Bytes::show(*most)),
        Kind::Interval(least, most) => {
            let units: Vec<_> = Unit::ALL.into_iter().map(|unit| quote(unit.name())).collect();
            format!("{}, or {}", value(&Kind::Duration(*least, *most)), units.join(", "))
        }
        Kind::Map(shape) => format!("a map: {}", link(shape)),
        Kind::Short(key, shape) => format!("{}, or its {} alone", value(&Kind::Map(shape)), quote(key)),
        Kind::List(words @ Kind::Word(_)) => format!("a list of words, {}", value(words)),
        Kind::List(kind) => format!("a list, each {}", value(kind)),
        Kind::Many(kind) => format!("a list of at least one, each {}", value(kind)),
        Kind::OneOrMany(kind) => format!("{}; or a list of these", value(kind)),
        Kind::Named(kind) => format!("a map from names, each to {}", value(kind)),
        Kind::Fields => "a map from header fields to values".to_owned(),
        Kind::OrMap(kind, shape) => format!("{}, or {}", value(kind), value(&Kind::Map(shape))),
        Kind::Unbuilt => "nothing yet".to_owned(),
    }
}
