//! The pictures of `docs/algorithms.md` are what the algorithms decide today.

use std::fs;
use std::path::Path;

#[path = "../../examples/pictures/draw/mod.rs"]
mod draw;

#[test]
fn the_pictures_in_the_repository_are_what_is_drawn_now() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let pictures = draw::pictures().expect("pictures");
    for (name, picture) in &pictures {
        let kept = fs::read_to_string(folder.join(name)).expect("a picture that is kept");
        assert!(kept == *picture, "{name} is stale: `cargo run --example pictures` draws it anew");
    }
    let kept = fs::read_dir(folder).expect("docs/pictures").count();
    assert_eq!(kept, pictures.len(), "a picture that nothing draws");
}

#[test]
fn each_algorithm_of_rule_files_has_its_picture_on_its_page() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/algorithms.md")).expect("the page");
    for (name, _) in draw::pictures().expect("pictures") {
        assert!(page.contains(&format!("(pictures/{name})")), "{name} is not on the page");
    }
}

#[test]
fn the_rules_on_the_page_have_no_mistakes() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/algorithms.md")).expect("the page");
    let rules = page.lines().filter(|line| line.starts_with("- { name:"));
    let limits: Vec<_> = rules.map(|rule| format!("      {rule}\n")).collect();
    assert_eq!(limits.len(), 5, "a rule for each algorithm");
    let file = format!(
        "listen: 127.0.0.1:0\nroutes:\n  - name: r\n    match: {{ path: /** }}\n    limits:\n{}",
        limits.concat()
    );
    if let Err(problems) = tidegate::Config::parse(&file) {
        panic!("{problems}");
    }
}
