//! The code in README and in the guide is code that is run.

use std::fs;
use std::path::Path;

use tidegate::Config;

/// The lines of each block of Rust, without their indentation.
fn blocks(page: &str) -> Vec<Vec<&str>> {
    let blocks = page.split("```rust\n").skip(1).filter_map(|rest| rest.split_once("```"));
    blocks.map(|(block, _)| lines(block)).collect()
}

fn lines(code: &str) -> Vec<&str> {
    code.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn all_code_in_readme_and_the_guide_is_taken_from_the_crate_outside() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = fs::read_dir(root.join("tests/outside/src")).expect("the crate");
    let sources: Vec<String> =
        folder.map(|file| fs::read_to_string(file.expect("a file").path()).expect("text")).collect();
    let page = |name: &str| fs::read_to_string(root.join(name)).expect("a page");
    let pages = page("README.md") + &page("docs/guide.md");
    let blocks = blocks(&pages);
    assert!(blocks.len() >= 4, "where is the code?");
    for block in blocks {
        let found = |source: &String| lines(source).windows(block.len()).any(|window| window == block);
        assert!(sources.iter().any(found), "not in tests/outside:\n{}", block.join("\n"));
    }
}

#[test]
fn shown_error_is_that_of_the_rule_file_on_the_page() {
    for name in ["README.md", "docs/guide.md"] {
        let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("the page");
        let (_, rest) = page.split_once("```yaml\n").expect("a rule file");
        let (file, rest) = rest.split_once("```").expect("its end");
        assert!(Config::parse_for_gateway(file).is_ok(), "{name}");
        let (_, rest) = rest.split_once("An error looks like this:\n\n```\n").expect("an error");
        let (shown, _) = rest.split_once("```").expect("its end");
        let slip = file.replacen("interval", "intervall", 1);
        let problems = Config::parse_for_gateway(&slip).expect_err("an error");
        assert_eq!(problems.in_file(Path::new("rules.yaml")).to_string(), format!("{shown}1 error"), "{name}");
    }
}
