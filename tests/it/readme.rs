//! Checks that the code and the errors in README, the guide and the page about the library are real.

use std::fs;
use std::path::Path;

use tidegate::Gateway;

/// Returns the lines of each Rust block, without indentation.
fn blocks(page: &str) -> Vec<Vec<&str>> {
    let blocks = page.split("```rust\n").skip(1).filter_map(|rest| rest.split_once("```"));
    blocks.map(|(block, _)| lines(block)).collect()
}

fn lines(code: &str) -> Vec<&str> {
    code.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn code_in_pages_is_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = fs::read_dir(root.join("tests/outside/src")).expect("tests/outside");
    let sources: Vec<String> =
        folder.map(|file| fs::read_to_string(file.expect("a file").path()).expect("text")).collect();
    let page = |name: &str| fs::read_to_string(root.join(name)).expect("a page");
    let pages = page("README.md") + &page("docs/guide.md") + &page("docs/library.md");
    let blocks = blocks(&pages);
    assert!(blocks.len() >= 4, "expected at least four Rust blocks in these pages");
    for block in blocks {
        let found = |source: &String| lines(source).windows(block.len()).any(|window| window == block);
        assert!(
            sources.iter().any(found),
            "copy this block of a page to tests/outside/src, where it is compiled:\n{}",
            block.join("\n")
        );
    }
}

#[test]
fn shown_error_matches_the_shown_rule_file() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).expect("the page");
    let (_, rest) = page.split_once("```yaml\n").expect("a rule file");
    let (file, rest) = rest.split_once("```").expect("its end");
    assert!(Gateway::parse_config(file).is_ok());
    let (_, rest) = rest.split_once("`tidegate check` reports errors like this:\n\n```\n").expect("an error");
    let (shown, _) = rest.split_once("```").expect("its end");
    let with_typo = file.replacen("interval", "intervall", 1);
    let errors = Gateway::parse_config(&with_typo).expect_err("an error");
    assert_eq!(errors.in_file(Path::new("rules.yaml")).to_string(), format!("{shown}1 error"));
}
