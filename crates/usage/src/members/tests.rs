//! Bodies with one meaning, and bodies that parsers read in two ways.

use std::sync::Arc;

use proptest::prelude::*;

use super::{MAX_CALLS, MemberPointers, MemberValue, Members, MembersError, Pointer};

const NAMES: [&str; 3] = ["/model", "/params/name", "/n"];

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text).expect(text)
}

fn read(body: &[u8]) -> Result<Members, MembersError> {
    let pointers = NAMES.map(pointer);
    Members::read(&Arc::new(MemberPointers::new(&pointers).expect("few")), body)
}

fn value(body: &str, name: &str) -> Option<MemberValue> {
    read(body.as_bytes()).expect(body).value(0, &pointer(name)).cloned()
}

fn text(text: &str) -> Option<MemberValue> {
    Some(MemberValue::Text(text.into()))
}

fn number(text: &str) -> Option<MemberValue> {
    Some(MemberValue::Number(text.into()))
}

#[test]
fn values_have_one_form() {
    assert_eq!(value(r#"{"model":"gpt"}"#, "/model"), text("gpt"));
    assert_eq!(value(r#"{"\u006dodel":"\u0067pt \ud83d\ude00"}"#, "/model"), text("gpt 😀"));
    assert_eq!(value(r#"{"params":{"name":"a","other":{"name":"b"}}}"#, "/params/name"), text("a"));
    for seven in ["7", "7.0", "70e-1", "0.7E+1"] {
        assert_eq!(value(&format!("{{\"n\":{seven}}}"), "/n"), number("7"), "{seven}");
    }
    assert_eq!(value(r#"{"n":-0}"#, "/n"), number("0"));
    assert_eq!(value(r#"{"n":0.25}"#, "/n"), number("0.25"));
    assert_eq!(value(r#"{"n":9007199254740991}"#, "/n"), number("9007199254740991"));
    assert_eq!(value(r#"{"n":[7]}"#, "/n"), Some(MemberValue::Container));
    assert_eq!(value(r#"{"n":null}"#, "/n"), Some(MemberValue::Null));
    assert_eq!(value(r#"{"n":true}"#, "/n"), Some(MemberValue::Bool(true)));
    assert_eq!(value(r#"{"params":"name"}"#, "/params/name"), None);
    assert_eq!(value(" ", "/n"), None);
}

#[test]
fn long_texts_are_not_kept() {
    let body = |length: usize| format!("{{\"model\":\"{}\"}}", "m".repeat(length));
    assert_eq!(value(&body(MemberValue::MAX_TEXT), "/model"), text(&"m".repeat(MemberValue::MAX_TEXT)));
    assert_eq!(value(&body(MemberValue::MAX_TEXT + 1), "/model"), Some(MemberValue::Long));
}

#[test]
fn bodies_with_two_readings_are_errors() {
    let repeated = |name: &str| MembersError::Repeated(name.into());
    let number = || MembersError::Number("/n".into());
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(128), "]".repeat(128));
    let cases = [
        (r#"{"n":1,"n":99999}"#, repeated("/n")),
        (r#"{"n":1,"\u006e":99999}"#, repeated("/n")),
        (r#"{"params":{"name":"a"},"params":{}}"#, repeated("/params")),
        (r#"{"params":{"name":"a","name":"a"}}"#, repeated("/params/name")),
        (r#"{"N":1}"#, MembersError::Lookalike),
        (r#"{"Params":{"name":"a"}}"#, MembersError::Lookalike),
        (r#"{"n":1e999}"#, number()),
        (r#"{"n":9007199254740993}"#, number()),
        (r#"{"n":0.1000000000000000000000000000000000000000000000000000000000000000001}"#, number()),
        (r#"{"model":"\ud800"}"#, MembersError::Text("/model".into())),
        (r#"{"n":01}"#, MembersError::NotJson),
        (r#"{"n":1"#, MembersError::NotJson),
        (r#"{"n":1} {"n":2}"#, MembersError::NotJson),
        ("\u{feff}{\"n\":1}", MembersError::NotJson),
        ("n=1", MembersError::NotJson),
        (&deep, MembersError::NotJson),
    ];
    for (body, expected) in cases {
        assert_eq!(read(body.as_bytes()).map(drop), Err(expected), "{body}");
    }
    assert_eq!(read(b"{\"model\":\"\xff\"}").map(drop), Err(MembersError::NotJson));
}

#[test]
fn repeated_members_that_no_rule_reads_are_ignored() {
    assert_eq!(value(r#"{"a":1,"a":2,"A":{"n":3},"n":4,"x":1e999}"#, "/n"), number("4"));
}

#[test]
fn batch_has_the_values_of_each_call() {
    let calls = read(b" [ {\"model\":\"a\"} ,{\"n\":[1,2]},[[]], \"x,]\" ,7 ]\n").expect("a batch");
    assert!(calls.is_batch());
    let model = pointer("/model");
    let models = (0..calls.calls()).map(|call| calls.value(call, &model).cloned()).collect::<Vec<_>>();
    assert_eq!(models, [text("a"), None, None, None, None]);
    assert_eq!(calls.value(1, &pointer("/n")), Some(&MemberValue::Container));
    assert!(!read(b"[]").expect("empty").is_batch());
    let batch = |length: usize| format!("[{}]", vec!["{}"; length].join(","));
    assert_eq!(read(batch(MAX_CALLS).as_bytes()).expect("a batch").calls(), MAX_CALLS);
    assert_eq!(read(batch(MAX_CALLS + 1).as_bytes()).map(drop), Err(MembersError::TooManyCalls));
    let repeated = read(br#"[{"n":1},{"n":1,"n":2}]"#).map(drop);
    assert_eq!(repeated, Err(MembersError::Repeated("/n".into())));
}

#[test]
fn pointers_name_one_value() {
    for text in ["", "model", "/*", "/a/*/b", "/a~", &format!("/{}", "k".repeat(65))] {
        assert!(Pointer::parse(text).is_err(), "{text}");
    }
    let many: Vec<_> = (0..300).map(|number| pointer(&format!("/{number}"))).collect();
    assert!(MemberPointers::new(&many).is_err());
    assert!(MemberPointers::new(&many[..200]).is_ok());
}

#[test]
fn given_texts_are_found_by_their_pointers() {
    let members = Members::with_texts(&[(pointer("/params/name"), "a".to_owned())]);
    assert_eq!(members.value(0, &pointer("/params/name")).cloned(), text("a"));
    assert_eq!(members.value(0, &pointer("/n")), None);
}

proptest! {
    #[test]
    fn read_values_equal_parsed_values(
        model in ".{0,20}", n in prop::num::i64::ANY.prop_map(|n| n >> 11), name in ".{0,20}", is_pretty: bool,
    ) {
        let json = serde_json::json!({ "n": n, "x": { "model": 1 }, "params": { "name": name }, "model": model });
        let body = if is_pretty { serde_json::to_string_pretty(&json) } else { serde_json::to_string(&json) };
        let members = read(body.expect("JSON").as_bytes()).expect("one reading");
        prop_assert_eq!(members.value(0, &pointer("/model")).cloned(), text(&model));
        prop_assert_eq!(members.value(0, &pointer("/params/name")).cloned(), text(&name));
        prop_assert_eq!(members.value(0, &pointer("/n")).cloned(), number(&n.to_string()));
    }

    #[test]
    fn any_bytes_are_read_or_rejected(body in prop::collection::vec(prop::sample::select(&b"[]{},:\"\\n1e mode"[..]), 0..40)) {
        _ = read(&body);
    }
}
