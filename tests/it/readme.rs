//! The code in README and in the guide is code that is run.

use std::fs;
use std::path::Path;

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
