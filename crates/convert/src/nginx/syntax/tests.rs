//! Well-formed and malformed files.

use std::path::Path;

use super::*;
use crate::options::Options;
use crate::sources::texts::Texts;

fn parsed(files: &[(&str, &str)]) -> Result<Parsed, ConvertError> {
    let texts: Texts = files.iter().copied().collect();
    parse(&mut Input::new(&[], &texts, &Options::default()), Path::new(files[0].0))
}

/// Writes directives on one line: `a b { c d; }`.
fn shown(directives: &[Directive]) -> String {
    let show = |directive: &Directive| {
        let words = [directive.name()].into_iter().chain(directive.texts()).collect::<Vec<_>>().join("|");
        match &directive.block {
            None => format!("{words};"),
            Some(block) => format!("{words}{{{}}}", shown(block)),
        }
    };
    directives.iter().map(show).collect()
}

fn one(text: &str) -> String {
    match parsed(&[("nginx.conf", text)]) {
        Ok(parsed) => shown(&parsed.directives),
        Err(error) => error.to_string(),
    }
}

#[test]
fn directives_have_words_blocks_and_comments() {
    assert_eq!(one("user www; # a ; comment\nhttp { server{listen 80;} }"), "user|www;http{server{listen|80;}}");
    assert_eq!(one("a b#c;"), "a|b#c;");
    assert_eq!(one("\u{feff}a;"), "a;");
}

#[test]
fn quotes_and_escapes_are_resolved() {
    assert_eq!(one(r#"a "b c" 'd"e' "f\"g" h\ i;"#), r#"a|b c|d"e|f"g|h\ i;"#);
    assert_eq!(one(r#"a "{ ; }" "";"#), "a|{ ; }|;");
    assert_eq!(one(r"location ~ \.php$ { }"), r"location|~|\.php${}");
    assert_eq!(one("a ${b}c;"), "a|${b}c;");
}

#[test]
fn lua_blocks_are_skipped() {
    let lua = "content_by_lua_block { -- it's }\n local a = { \"}\" } --[[ } ]] local b = [[ } ]] }";
    assert_eq!(one(&format!("{lua} a;")), "content_by_lua_block{}a;");
}

#[test]
fn malformed_files_are_errors_with_lines() {
    for (text, error) in [
        ("a\n{ b;", "nginx.conf:1: the block is not closed"),
        ("a;\n}", "nginx.conf:2: `}` is not expected here"),
        ("a;\n;", "nginx.conf:2: `;` is not expected here"),
        ("\na b", "nginx.conf:2: the directive `a` has no `;`"),
        ("a 'b;", "nginx.conf:1: a quote is not closed"),
        ("a 'b'c;", "nginx.conf:1: a quoted text must end with whitespace, `;` or `{`"),
        ("a_by_lua_block { '", "nginx.conf:1: a block of Lua is not closed"),
    ] {
        assert_eq!(one(text), error);
    }
}

#[test]
fn deep_nesting_is_an_error() {
    assert_eq!(one(&"a {".repeat(100_000)), "nginx.conf:1: blocks are nested more than 32 levels deep");
}

#[test]
fn included_files_replace_the_include() {
    let files = [
        ("etc/nginx.conf", "http { include conf.d/*.conf; include /etc/nginx/extra; include missing; c; }"),
        ("etc/conf.d/a.conf", "a;"),
        ("etc/conf.d/b.conf", "b;"),
        ("etc/extra", "extra;"),
    ];
    let parsed = parsed(&files).unwrap();
    assert_eq!(shown(&parsed.directives), "http{a;b;extra;c;}");
    assert_eq!(shown(&parsed.missing), "include|missing;");
    let Directive { block: Some(block), .. } = &parsed.directives[0] else { panic!("a block") };
    assert_eq!(block[1].place.to_string(), "etc/conf.d/b.conf:1");
}

#[test]
fn cycle_of_includes_is_an_error() {
    let error = parsed(&[("nginx.conf", "a;\ninclude b;"), ("b", "\n\ninclude nginx.conf;")]).unwrap_err();
    assert!(error.to_string().starts_with("b:3: the file nginx.conf includes itself"), "{error}");
}
