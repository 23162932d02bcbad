//! Tests of trees.

use super::*;

fn message(text: &str) -> String {
    read("a.yaml", text).unwrap_err().to_string()
}

#[test]
fn documents_keep_lines_and_merge_maps() {
    let text = "a: &a\n  b: 1\n  c: x\nd:\n  <<: *a\n  c: 'y'\n---\n- 2.0\n---\n";
    let documents = read("a.yaml", text).unwrap();
    assert_eq!(documents.len(), 2);
    let merged = documents[0].get("d").unwrap();
    assert_eq!(merged.get("b").and_then(Node::number), Some(1));
    assert_eq!(merged.get("c").map(|node| (node.line, node.text())), Some((6, Some("y"))));
    assert_eq!(documents[1].items()[0].number(), Some(2));
}

#[test]
fn json_is_read_with_lines() {
    let documents = read("a.json", "[\n\t{\"count\": 1.5,\n\t \"on\": true, \"none\": null}\n]").unwrap();
    let item = &documents[0].items()[0];
    assert_eq!(item.get("count").and_then(Node::float), Some(1.5));
    assert_eq!(item.get("on").map(|node| (node.line, node.flag())), Some((3, Some(true))));
    assert!(item.get("none").unwrap().is_null());
}

#[test]
fn nested_aliases_end_with_an_error() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let last = level - 1;
        text += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{last}"); 10].join(", "));
    }
    assert!(message(&text).ends_with("more than 500000 values, with aliases expanded"), "{}", message(&text));
}

#[test]
fn deep_nesting_ends_with_an_error() {
    assert!(message(&"[".repeat(1_000_000)).starts_with("a.yaml:1: "));
    let lines: String = (0..70).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(message(&lines).ends_with("nested more than 64 levels deep"));
}

#[test]
fn marks_are_bounded_before_the_text_is_parsed() {
    assert_eq!(message(&format!("[{}]", "a,".repeat(500_001))), "a.yaml:1: more than 500000 commas and brackets");
}

#[test]
fn syntax_errors_have_their_place() {
    assert!(message("a: b\nc: [").starts_with("a.yaml:"));
    assert!(message("? [a]\n: b").contains("a key must be a text"));
}
