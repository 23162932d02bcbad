//! Times, sizes and variables.

use std::collections::HashMap;
use std::time::Duration;

use super::template::{Part, parts};
use super::units::{shown_size, size, time};
use super::variables::Variables;

#[test]
fn times_and_sizes_are_parsed() {
    for (text, millis) in [("60", 60_000), ("1m 30s", 90_000), ("500ms", 500), ("1h30m", 5_400_000), ("1d", 86_400_000)]
    {
        assert_eq!(time(text), Some(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "s", "1x", "1 2", "-1", "99999999999999999999", "9999999999999999y"] {
        assert_eq!(time(text), None, "{text}");
    }
    assert_eq!([size("1m"), size("16K"), size("1024"), size("1g")], [1 << 20, 16 << 10, 1024, 1 << 30].map(Some));
    assert_eq!([size(""), size("m"), size("1x")], [None; 3]);
    assert_eq!([shown_size(10 << 20), shown_size(1_000), shown_size(0)], ["10MiB", "1000B", "0B"]);
}

#[test]
fn variables_are_separated_from_text() {
    let variable = |name: &str| Part::Variable(name.to_owned());
    let text = |text: &str| Part::Text(text.to_owned());
    assert_eq!(parts("$a${b}c$1x$"), [variable("a"), variable("b"), text("c"), variable("1"), text("x$")]);
    assert_eq!(parts("${"), [text("${")]);
    assert!(parts("").is_empty());
}

#[test]
fn endless_variables_are_errors() {
    let variables = Variables::default();
    let assigned = HashMap::from([("a".to_owned(), Some("$b".to_owned())), ("b".to_owned(), Some("$a".to_owned()))]);
    assert!(variables.values("$a", &assigned).is_err());
}
