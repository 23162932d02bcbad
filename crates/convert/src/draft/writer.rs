//! Writes values as YAML. Every text of a source passes `text` or `key`, which quote it.

use std::fmt::Write;

use super::value::{Map, Value};

/// The longest line that a flow value may fill, in bytes.
const MAX_WIDTH: usize = 118;

/// The deepest nesting of maps and lists in a flow value.
const MAX_FLOW_DEPTH: usize = 2;

/// Words that YAML, or older versions of it, do not read as texts.
const RESERVED: [&str; 10] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan"];

/// Returns the YAML text of a rule file.
pub(super) fn write(map: &Map) -> String {
    let mut text = String::new();
    for (name, value) in &map.entries {
        let lines = match is_block(value) {
            true => opened(&key(name), value),
            false => entry(name, value, 0),
        };
        for line in lines {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

/// Returns `true` for a list or map of maps: at the top of a file, each item starts a line.
fn is_block(value: &Value) -> bool {
    match value {
        Value::List(items) => items.iter().any(|item| matches!(item, Value::Map(_))),
        Value::Map(map) => map.entries.iter().any(|(_, value)| matches!(value, Value::Map(_))),
        _ => false,
    }
}

/// Returns the lines of an entry of a map.
fn entry(name: &str, value: &Value, indent: usize) -> Vec<String> {
    if let Value::Disabled(value) = value {
        return entry(name, value, indent + 2).into_iter().map(|line| format!("# {line}")).collect();
    }
    let key = key(name);
    match flow_line(value, MAX_WIDTH.saturating_sub(indent + key.len() + 2)) {
        Some(line) => vec![format!("{key}: {line}")],
        None => opened(&key, value),
    }
}

/// Returns the lines of an entry whose value starts on the next line.
fn opened(key: &str, value: &Value) -> Vec<String> {
    let comment = match value {
        Value::Map(map) => comment(map),
        _ => String::new(),
    };
    let mut lines = vec![format!("{key}:{comment}")];
    lines.extend(block(value).into_iter().map(|line| format!("  {line}")));
    lines
}

/// Returns the lines of a value, without the comment of a map.
fn block(value: &Value) -> Vec<String> {
    match value {
        Value::Map(map) => map.entries.iter().flat_map(|(name, value)| entry(name, value, 2)).collect(),
        Value::List(items) => items.iter().flat_map(item).collect(),
        scalar => vec![flow(scalar)],
    }
}

/// Returns the lines of an item of a list.
fn item(value: &Value) -> Vec<String> {
    if let Some(line) = flow_line(value, MAX_WIDTH - 4) {
        return vec![format!("- {line}")];
    }
    let mut lines = block(value);
    for (number, line) in lines.iter_mut().enumerate() {
        *line = format!("{}{line}", if number == 0 { "- " } else { "  " });
    }
    if let (Value::Map(map), Some(first)) = (value, lines.first_mut()) {
        first.push_str(&comment(map));
    }
    lines
}

/// Returns the value with its comment in one line, if it is short enough.
fn flow_line(value: &Value, width: usize) -> Option<String> {
    let (items, comment) = match value {
        Value::Map(map) => (map.entries.len(), comment(map)),
        Value::List(items) => (items.len(), String::new()),
        scalar => return Some(flow(scalar)),
    };
    // An item takes at least three bytes: large values are not written twice.
    if items > width / 3 || depth(value) > MAX_FLOW_DEPTH || has_inner_comment(value) {
        return (items == 0).then(|| flow(value));
    }
    let line = flow(value);
    (line.len() <= width).then(|| line + &comment)
}

/// Returns the depth of maps and lists, at most one more than a flow value may have.
fn depth(value: &Value) -> usize {
    fn within(value: &Value, left: usize) -> usize {
        let deepest = match value {
            _ if left == 0 => return 0,
            Value::List(items) => items.iter().map(|item| within(item, left - 1)).max(),
            Value::Map(map) => map.entries.iter().map(|(_, value)| within(value, left - 1)).max(),
            _ => return 0,
        };
        1 + deepest.unwrap_or_default()
    }
    within(value, MAX_FLOW_DEPTH + 1)
}

fn has_inner_comment(value: &Value) -> bool {
    let commented = |value: &Value| matches!(value, Value::Map(Map { comment: Some(_), .. }) | Value::Disabled(_));
    match value {
        Value::List(items) => items.iter().any(commented),
        Value::Map(map) => map.entries.iter().any(|(_, value)| commented(value)),
        _ => false,
    }
}

/// Returns the comment of a map with the space before it.
fn comment(map: &Map) -> String {
    map.comment.as_ref().map_or_else(String::new, |comment| format!(" # {}", one_line(comment)))
}

/// Returns a text in which control characters are spaces, for a comment.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Returns the value in one line.
fn flow(value: &Value) -> String {
    let list = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Text(text) => self::text(text),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::List(items) => format!("[{}]", list(items.iter().map(flow).collect())),
        Value::Disabled(value) => flow(value),
        Value::Map(map) if map.is_empty() => "{}".to_owned(),
        Value::Map(map) => {
            let pairs = map.entries.iter().map(|(name, value)| format!("{}: {}", key(name), flow(value)));
            format!("{{ {} }}", list(pairs.collect()))
        }
    }
}

/// Returns a text as a scalar. A dollar sign is doubled: otherwise it starts a placeholder.
fn text(text: &str) -> String {
    match is_plain(text) {
        true => text.to_owned(),
        false => quoted(&text.replace('$', "$$")),
    }
}

/// Returns a key. Keys have no placeholders.
fn key(name: &str) -> String {
    if is_plain(name) { name.to_owned() } else { quoted(name) }
}

/// Returns `true` if YAML reads the text as this text without quotes, also within `{...}` and `[...]`.
fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/*:@".contains(c);
    if !text.chars().all(allowed) || text.ends_with(':') {
        return false;
    }
    match first {
        'a'..='z' | 'A'..='Z' | '/' => !RESERVED.contains(&text.to_ascii_lowercase().as_str()),
        '0'..='9' => is_address(text) || is_duration(text),
        _ => false,
    }
}

/// Returns `true` for addresses and networks such as `10.0.0.0/8` and `0.0.0.0:8080`.
fn is_address(text: &str) -> bool {
    text.matches('.').count() == 3 && text.chars().all(|c| c.is_ascii_digit() || "./:".contains(c))
}

/// Returns `true` for durations such as `250ms`.
fn is_duration(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < text.len() && ["ms", "s", "m", "h", "d"].contains(&unit)
}

/// Returns a text in quotes, with all characters escaped that could end it or that YAML does not allow.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            ' '..='~' => quoted.push(character),
            character if character.is_alphanumeric() => quoted.push(character),
            character => _ = write!(quoted, "\\U{:08X}", u32::from(character)),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{self, Tree};
    use proptest::prelude::*;

    fn map<const N: usize>(entries: [(&str, Value); N]) -> Map {
        Map::of(entries)
    }

    #[test]
    fn short_values_are_in_one_line_with_their_place() {
        let mut limit = map([("name", "per-ip".into()), ("rate", 5_u64.into()), ("interval", "1m".into())]);
        limit.comment = Some("nginx.conf:7".to_owned());
        let route = map([
            ("name", "all".into()),
            ("match", map([("path", "/**".into())]).into()),
            ("limits", vec![limit.into()].into()),
        ]);
        let file = map([("listen", "0.0.0.0:8080".into()), ("routes", vec![route.into()].into())]);
        let lines = [
            "listen: 0.0.0.0:8080",
            "routes:",
            "  - name: all",
            "    match: { path: /** }",
            "    limits:",
            "      - { name: per-ip, rate: 5, interval: 1m } # nginx.conf:7",
            "",
        ];
        assert_eq!(write(&file), lines.join("\n"));
    }

    #[test]
    fn disabled_entries_are_comments() {
        let open = map([("a", map([("b", "x\ny".into())]).into())]);
        let route = map([("name", "all".into()), ("rewrite", Value::Disabled(Box::new(open.into())))]);
        let file = map([("routes", vec![route.into()].into())]);
        let lines = ["routes:", "  - name: all", "    # rewrite: { a: { b: \"x\\ny\" } }", ""];
        assert_eq!(write(&file), lines.join("\n"));
    }

    #[test]
    fn texts_stay_one_value() {
        let texts = ["a: b", "\"\n- x: $HOME", "no", "1.5", "\u{2028}", "{", "# c", "*", " a ", "", "a:", "é", "1e3"];
        let file = map([("list", texts.map(Value::from).to_vec().into())]);
        let read = tree::read("rules", &write(&file)).unwrap();
        let Tree::List(items) = &read[0].get("list").unwrap().value else { panic!("no list") };
        let read: Vec<String> = items.iter().map(|item| item.text().unwrap().replace("$$", "$")).collect();
        assert_eq!(read, texts);
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_it_was(text in any::<String>(), name in any::<String>(), note in any::<String>()) {
            let mut inner = map([(&name, text.as_str().into())]);
            inner.comment = Some(note);
            let file = map([("a", inner.into())]);
            let read = tree::read("rules", &write(&file)).unwrap();
            let value = read[0].get("a").unwrap().get(&name).unwrap();
            prop_assert_eq!(value.text().unwrap(), text.replace('$', "$$"));
        }
    }
}
