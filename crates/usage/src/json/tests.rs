//! The scanner against serde_json, with texts in pieces of any size.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value as Json;

use super::{Field, MAX_DEPTH, MAX_KEY, Pointers, Scanner, Sink, Value};

const USAGE: Field = Field(0);
const CHOICE: Field = Field(1);
const DELTA: Field = Field(2);

/// The reports of a scanner, as text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    values: Vec<(u8, String)>,
    text: usize,
}

impl Sink for Found {
    fn value(&mut self, field: Field, value: Value<'_>, _: u64) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let value = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(value) => text(value),
            Value::String(value) => format!("{:?}", text(value)),
            Value::Long => "long".to_owned(),
            Value::Array => "[".to_owned(),
            Value::Object => "{".to_owned(),
        };
        self.values.push((field.0, value));
    }

    fn text(&mut self, _: Field, bytes: usize) {
        self.text += bytes;
    }
}

fn pointers() -> Arc<Pointers> {
    let pointers = Pointers::default().value("/usage/n", USAGE).and_then(|all| all.value("/c/*/i", CHOICE));
    Arc::new(pointers.and_then(|all| all.text("/c/*/delta", DELTA)).expect("valid"))
}

/// Scans a text in pieces. Returns `None` if it is malformed.
fn scan<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Found> {
    let (mut scanner, mut found) = (Scanner::new(pointers()), Found::default());
    for piece in pieces {
        scanner.push(piece, &mut found).ok()?;
    }
    scanner.end(&mut found).ok()?;
    Some(found)
}

fn values(text: &str) -> Vec<(u8, String)> {
    scan([text.as_bytes()]).expect("JSON").values
}

/// Finds the same values in a tree.
fn reference(text: &Json) -> Found {
    let mut found = Found::default();
    let show = |value: &Json| match value {
        Json::Array(_) => "[".to_owned(),
        Json::Object(_) => "{".to_owned(),
        Json::String(text) if text.len() > MAX_KEY => "long".to_owned(),
        Json::String(text) => format!("{text:?}"),
        other => other.to_string(),
    };
    for (key, value) in text.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("usage", Json::Object(members)) => found.values.extend(members.get("n").map(|n| (0, show(n)))),
            ("c", Json::Array(elements)) => {
                for (key, value) in elements.iter().filter_map(Json::as_object).flatten() {
                    match key.as_str() {
                        "i" => found.values.push((1, show(value))),
                        "delta" => found.text += text_bytes(value),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    found
}

fn text_bytes(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len(),
        Json::Array(elements) => elements.iter().map(text_bytes).sum(),
        Json::Object(members) => members.values().map(text_bytes).sum(),
        _ => 0,
    }
}

fn any_json() -> impl Strategy<Value = Json> {
    let key = prop_oneof![
        Just("usage".to_owned()),
        Just("n".to_owned()),
        Just("c".to_owned()),
        Just("i".to_owned()),
        Just("delta".to_owned()),
        ".{0,3}",
        "[a-z]{60,70}"
    ];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        ".{0,8}".prop_map(Json::from),
        "[\\\\\"\u{1}é]{0,70}".prop_map(Json::from)
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn scanner_finds_what_a_parser_finds(json in any_json(), is_pretty: bool) {
        let text = if is_pretty { serde_json::to_string_pretty(&json) } else { serde_json::to_string(&json) }.expect("JSON");
        let expected = Some(reference(&json));
        prop_assert_eq!(&scan([text.as_bytes()]), &expected);
        prop_assert_eq!(&scan(text.as_bytes().chunks(1)), &expected);
        for end in 0..text.len() {
            let (head, tail) = text.as_bytes().split_at(end);
            prop_assert_eq!(&scan([head, tail]), &expected);
        }
    }

    #[test]
    fn no_bytes_make_the_scanner_panic(text in prop::collection::vec(prop::sample::select(&b"{}[]\",:\\unl0-e tA\xff"[..]), 0..60)) {
        let whole = scan([&text[..]]);
        prop_assert_eq!(&scan(text.chunks(1)), &whole);
        if serde_json::from_slice::<Json>(&text).is_ok() {
            prop_assert!(whole.is_some());
        }
    }
}

#[test]
fn escaped_keys_equal_plain_ones() {
    assert_eq!(values(r#"{"us\u0061ge":{"\u006e":7}}"#), [(0, "7".to_owned())]);
    assert_eq!(values(r#"{"usage\u0000":{"n":7}, "usage":{"n ":1}}"#), []);
}

#[test]
fn surrogates_count_as_their_character() {
    let bytes = |text: &str| scan([format!(r#"{{"c":[{{"delta":"{text}"}}]}}"#).as_bytes()]).expect("JSON").text;
    assert_eq!(bytes(r"\ud83d\ude00"), 4);
    assert_eq!(bytes(r"\ud83d"), 3, "half of a pair is the replacement character");
    assert_eq!(bytes(r"\ud83dx"), 4);
    assert_eq!(bytes(r"\ud83d\nx"), 5);
    assert_eq!(bytes(r"\ude00"), 3);
}

#[test]
fn repeated_members_are_each_reported() {
    let text = r#"{"usage":{"n":1,"n":2},"usage":{"n":null}}"#;
    assert_eq!(values(text), [(0, "1".to_owned()), (0, "2".to_owned()), (0, "null".to_owned())]);
}

#[test]
fn texts_of_wrong_length_are_malformed() {
    for text in [
        "",
        " ",
        "{",
        "[1",
        "[1,",
        "[1,]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "nul",
        "nulL",
        "1 2",
        "\"",
        "\"\\x\"",
        "\"\\u00g0\"",
        "}",
        "]",
        "{]",
        "[}",
        "[1}",
        "{\"a\":1]",
    ] {
        assert_eq!(scan([text.as_bytes()]), None, "{text}");
    }
}

#[test]
fn deep_nesting_is_malformed() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(scan([nested(MAX_DEPTH).as_bytes()]).is_some());
    assert!(scan([nested(MAX_DEPTH + 1).as_bytes()]).is_none());
}

#[test]
fn scanner_reads_another_text_after_an_error() {
    let (mut scanner, mut found) = (Scanner::new(pointers()), Found::default());
    assert!(scanner.push(b"[DONE]", &mut found).is_err());
    assert!(scanner.push(b"{}", &mut found).is_err());
    scanner.reset();
    assert!(scanner.push(br#"{"usage":{"n":3}}"#, &mut found).is_ok());
    assert_eq!(found.values, [(0, "3".to_owned())]);
}
