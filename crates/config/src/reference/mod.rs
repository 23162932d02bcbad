//! Generates `docs/rules.md`, the reference of the rule file, from the descriptions of the keys.

pub(crate) mod schema;

use std::fmt::Write;

use crate::file::SHAPES;
use crate::file::keys::{Key, Kind, Presence, Shape};
use crate::problem::quote;
use crate::values::units::{Bytes, Millis};
use tidegate_limit::calendar::Unit;

const OPENING: &str = "# The rule file

This page lists every key of the rule file. It is generated from the program's own validation rules by
`UPDATE_DOCS=1 cargo test --test it -- generated`. `tidegate check FILE` lists all errors of a file, each with its line and a suggestion.

A duration is `250ms`, `10s`, `1m30s`, `2h`, `1d`; a size is `512B`, `16KiB`, `10MiB`, `1GiB`. A name is 1 to 64
letters, digits and `._-`. An unknown key is an error.

A value may contain placeholders:

| placeholder | value |
|---|---|
| `${NAME}` | the environment variable `NAME`, which must be set |
| `${NAME:-default}` | the same, or `default` if the variable is not set or empty |
| `${file:PATH}` | the text of a file of at most 1 MiB without its last newline; a relative path starts at the folder of the rule file |
| `$$` | a dollar sign |

Any other `$` is an error. A value is inserted after the YAML is parsed, so it is never more than one value. It has the
type that its key needs, with or without quotes; inside `{...}` and `[...]` a placeholder needs quotes. A changed file is
reloaded like the rule file. The text of a file is shown as `***`: in errors, logs, `/api/v1/config` and the output of
commands. If a file contains a number, duration, size, flag or fixed word, the gateway shows this value in use. A name
must not come from a file. The addresses of targets and listeners are an exception: they are shown in the access log, in
log lines about targets and listeners (`listening on`), and in the labels of `/metrics`.
";

/// Returns the text of `docs/rules.md`.
pub fn reference() -> String {
    let mut page = OPENING.to_owned();
    for shape in SHAPES {
        section(shape, &mut page);
    }
    page
}

fn section(shape: &Shape, page: &mut String) {
    _ = write!(page, "\n## {}\n\n{}\n\n", heading(shape), shape.description.trim());
    page.push_str("| key | value | required | default | description |\n|---|---|---|---|---|\n");
    for Key { name, kind, presence, description, .. } in
        shape.keys().filter(|key| !matches!(key.kind, Kind::Unsupported))
    {
        let (required, default) = match presence {
            Presence::Required(example) => (format!("yes: `{example}`"), String::new()),
            Presence::Default(value) => (String::new(), format!("`{value}`")),
            Presence::Optional => (String::new(), String::new()),
        };
        _ = writeln!(page, "| `{name}` | {} | {required} | {default} | {} |", value(kind), description.trim());
    }
    let unsupported: Vec<_> =
        shape.keys().filter(|key| matches!(key.kind, Kind::Unsupported)).map(|key| key.name).collect();
    if !unsupported.is_empty() {
        let names: Vec<_> = unsupported.iter().map(|name| quote(name)).collect();
        _ = writeln!(page, "\nNot supported yet: {}.", names.join(", "));
    }
}

/// Returns the title of a shape with a capital letter.
fn heading(shape: &Shape) -> String {
    let mut letters = shape.title.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn link(shape: &Shape) -> String {
    let anchor: String = shape.title.to_lowercase().chars().filter(|letter| *letter != '`').collect();
    format!("[{}](#{})", shape.title, anchor.replace(' ', "-"))
}

/// Returns a sentence as a clause: without its period and its capital letter.
fn clause(sentence: &str) -> String {
    let sentence = sentence.trim().trim_end_matches('.');
    if sentence.chars().nth(1).is_some_and(char::is_uppercase) {
        return sentence.to_owned(); // HTTP, TLS
    }
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

fn value(kind: &Kind) -> String {
    match kind {
        Kind::Text | Kind::Form(_) | Kind::Address | Kind::Secret | Kind::Label => "text".to_owned(),
        Kind::Scalar => "text, a number or a boolean".to_owned(),
        Kind::Statuses => "a status code, or a range such as `200-399`".to_owned(),
        Kind::Name => "a name".to_owned(),
        Kind::Prefix => "a name, which may have `:`".to_owned(),
        Kind::Word(words) => {
            let words = words.iter().map(|word| format!("{}: {}", quote(word.name), clause(word.description)));
            words.collect::<Vec<_>>().join("; ")
        }
        Kind::Flag => "`true`, `false`".to_owned(),
        Kind::Integer(min, max) => format!("a whole number, {min} to {max}"),
        Kind::Decimal(max) => format!("a number, 0 to {max}"),
        Kind::Duration(min, max) => format!("a duration, {} to {}", Millis::show(*min), Millis::show(*max)),
        Kind::Size(min, max) => format!("a size, {} to {}", Bytes::show(*min), Bytes::show(*max)),
        Kind::Interval(min, max) => {
            let units: Vec<_> = Unit::WORDS.iter().map(|unit| quote(unit.name)).collect();
            format!("{}, or {}", value(&Kind::Duration(*min, *max)), units.join(", "))
        }
        Kind::Map(shape) => format!("a map: {}", link(shape)),
        Kind::Short(key, shape) => format!("{}, or only its {}", value(&Kind::Map(shape)), quote(key)),
        Kind::List(words @ Kind::Word(_)) => format!("a list of words, {}", value(words)),
        Kind::List(kind) => format!("a list, each {}", value(kind)),
        Kind::Many(kind) => format!("a list with at least one item, each {}", value(kind)),
        Kind::OneOrMany(kind) => format!("{}; or a list of these", value(kind)),
        Kind::Named(kind) => format!("a map from names to {}", value(kind)),
        Kind::Fields => "a map from header fields to values".to_owned(),
        Kind::Entries(kind) => format!("a map from texts to values, each {}", value(kind)),
        Kind::Conditions(single, _) => {
            format!("a map from names to `present`, `absent`, {}; or a list of these", value(single))
        }
        Kind::OrMap(kind, shape) => format!("{}, or {}", value(kind), value(&Kind::Map(shape))),
        Kind::OrNone(kind) => format!("{}, or `none`", value(kind)),
        Kind::Unsupported => String::new(),
    }
}
