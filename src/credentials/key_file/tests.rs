//! Tests of files of API keys.

use super::*;
use crate::credentials::ApiKeys;

fn keys(text: &str) -> Result<ApiKeys, String> {
    parse(text).map(|table| ApiKeys::new("keys.yaml".into(), table)).map_err(|error| error.to_string())
}

#[test]
fn keys_are_found_by_their_text_and_their_digest() {
    let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let text = format!(
        "# comment\nk-1: {{ id: one, tier: pro, attributes: {{ rate: 5, plan: gold }} }}\n{abc}:\n  id: two\n\
         \"k 3\\t\": {{ id: x }}\n"
    );
    assert!(keys(&text).unwrap_err().contains("line 5: a key has"), "{:?}", keys(&text));
    let keys = keys(text.rsplit_once("\"k 3").unwrap().0).unwrap();
    let one = keys.find(b"k-1").unwrap();
    assert_eq!((one.id(), one.tier()), ("one", Some("pro")));
    assert_eq!(one.attributes().collect::<Vec<_>>(), [("rate", "5"), ("plan", "gold")]);
    assert_eq!(keys.find(b"abc").unwrap().id(), "two");
    assert!(keys.find(b"k-2").is_none() && keys.find(b"").is_none() && keys.find(abc.as_bytes()).is_none());
    assert_eq!(keys.len(), 2);
}

#[test]
fn errors_have_lines_and_no_text_of_the_file() {
    let text = "secret-1: { id: a }\nsecret-1: { id: b }\nsecret-2: {}\nsecret-3: text\n\
                secret-4: { id: c, teir: d }\nsha256:12: { id: e }\nsecret-5: { id: f, attributes: { a: 1, a: 2 } }\n\
                secret-6: { id: g, id: h }\nsecret-7: { id: ~ }\nsecret-8: { id: i, tier: }\n\
                SHA256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad: { id: j }\n";
    let errors = keys(text).unwrap_err();
    for (line, fault) in [
        (2, "the key occurs twice"),
        (3, "an entry needs `id`"),
        (4, "a key needs a map"),
        (5, "unknown name `teir`: did you mean `tier`?"),
        (6, "a key has 1 to 1024"),
        (7, "the attribute occurs twice"),
        (8, "the name occurs twice in the entry"),
        (9, "an entry needs `id`"),
        (10, "`tier` has no value"),
        (11, "a key has 1 to 1024"),
    ] {
        assert!(errors.contains(&format!("line {line}: {fault}")), "{errors}");
    }
    assert!(!errors.contains("secret"), "{errors}");
    let errors = keys("secret: { id: \"a\\0\" }").unwrap_err();
    assert!(errors.contains("line 1: a text has no NUL character"), "{errors}");
}

#[test]
fn unknown_names_are_quoted_unless_they_may_be_keys() {
    let errors = keys("k-1: { id: a, plan: gold }").unwrap_err();
    assert!(
        errors.ends_with(
            "line 1: unknown name `plan`: an entry has `id`, `tier`, `attributes`; put other values into `attributes`"
        ),
        "{errors}"
    );
    for text in [
        "k-1:\n  id: a\n  secret: { id: b }",
        "k-1: { id: a, secret }",
        "k-1: { id: a, secret-1: b }",
        "k-1: { id: a, secretsecretsecretsecret: b }",
        "k-1: { id: a, Secret: b }",
    ] {
        let errors = keys(text).unwrap_err();
        assert!(errors.contains("unknown name: an entry has") && !errors.to_lowercase().contains("secret"), "{errors}");
    }
}

#[test]
fn tiers_have_the_line_of_their_first_use() {
    let table = parse("a: { id: a, tier: pro }\nb: { id: b, tier: free }\nc: { id: c, tier: pro }\n").unwrap();
    let mut tiers: Vec<_> = table.tiers.iter().map(|(tier, line)| (&**tier, *line)).collect();
    tiers.sort_unstable();
    assert_eq!(tiers, [("free", 2), ("pro", 1)]);
}

#[test]
fn shown_errors_are_bounded() {
    let text: String = (0..50).map(|number| format!("k{number}: x\n")).collect();
    assert!(keys(&text).unwrap_err().ends_with("line 10: a key needs a map, such as `{ id: NAME }`; and 40 more"));
}

#[test]
fn other_documents_are_errors_and_an_empty_file_has_no_keys() {
    for text in [
        "[1]",
        "a: &x { id: b }\nb: *x",
        "a: { id: { b: c } }",
        "a: {id: b}\n---\nc: {id: d}",
        "---\n---\nc: {id: d}",
        "{",
        "a: [b]",
    ] {
        assert!(keys(text).is_err(), "{text}");
    }
    for text in ["", "# no keys\n", "{}", "~"] {
        assert_eq!(keys(text).map(|keys| keys.len()), Ok(0), "{text:?}");
    }
}
