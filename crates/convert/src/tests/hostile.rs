//! Files of all formats that try to use much time or memory: each ends with an error.

use std::fmt::Write;
use std::path::PathBuf;

use crate::sources::texts::Texts;
use crate::{Format, Options, convert};

/// Returns the error about a file, also if the format is recognized by its content.
fn error(format: Format, name: &str, text: &str) -> String {
    let (files, paths) = (Texts::from([(name, text)]), [PathBuf::from(name)]);
    let options = Options { format: Some(format), ..Options::default() };
    let detected = convert(&paths, &files, &Options::default());
    assert!(detected.is_err(), "{format}");
    convert(&paths, &files, &options).map(|found| found.rules).unwrap_err().to_string()
}

/// Returns a list of lists, each with ten aliases of the list before.
fn aliases() -> String {
    let mut text = "http: &a0 [x, x]\n".to_owned();
    for level in 1..30 {
        let last = level - 1;
        writeln!(text, "a{level}: &a{level} [{}]", vec![format!("*a{last}"); 10].join(", ")).unwrap();
    }
    text
}

#[test]
fn yaml_of_any_format_is_bounded() {
    let maps = format!("routers: {}", "{http: ".repeat(10_000));
    let nested: String = (0..200).map(|depth| format!("{}spring:\n", " ".repeat(depth))).collect();
    for format in Format::ALL.into_iter().filter(|format| *format != Format::Nginx) {
        for text in ["[".repeat(1 << 14), aliases(), maps.clone(), nested.clone()] {
            let message = error(format, "a.yaml", &text);
            assert!(message.starts_with("a.yaml:"), "{format}: {message}");
        }
    }
}

#[test]
fn other_languages_are_bounded() {
    let deep = "location / {\n".repeat(10_000);
    assert!(error(Format::Nginx, "nginx.conf", &deep).starts_with("nginx.conf:"));
    let lists = format!("[http.routers]\na = {}", "[".repeat(1 << 16));
    assert!(error(Format::Traefik, "a.toml", &lists).starts_with("a.toml:2: not TOML: nested"));
    let keys = format!("spring.cloud.gateway.x={}\n{}=1", "x".repeat(1 << 20), "a.".repeat(1 << 16));
    assert!(error(Format::Spring, "a.properties", &keys).starts_with("a.properties:2: nested"));
}
