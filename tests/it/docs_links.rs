//! Every relative link in a Markdown page leads to an existing file, and every anchor to an existing heading.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::support::pages::{self, Page};

#[test]
fn links_lead_to_files_and_headings() {
    let pages = pages::all();
    assert!(pages.len() > 20, "only {} pages", pages.len());
    let broken: Vec<String> = pages.iter().flat_map(broken_links).collect();
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_page_in_docs_is_in_the_index() {
    let root = pages::root().join("docs");
    let index = fs::read_to_string(root.join("README.md")).expect("the index");
    for page in pages::all() {
        let Ok(name) = page.path.strip_prefix(&root) else { continue };
        let link = format!("]({})", name.display());
        assert!(
            name == Path::new("README.md") || index.contains(&link),
            "docs/README.md does not list {}",
            name.display()
        );
    }
}

#[test]
fn broken_links_are_found() {
    let text = "# A b\n[a](src/lib.rs#L1) [b](https://example.com) [c](#a-b) [d](#none) ![e](docs/none.png)";
    let page = Page { path: pages::root().join("README.md"), text: text.to_owned() };
    assert_eq!(broken_links(&page), ["README.md: #none", "README.md: docs/none.png"]);
}

fn broken_links(page: &Page) -> Vec<String> {
    let folder = page.path.parent().expect("a folder");
    let mut broken = Vec::new();
    for target in link_targets(&page.prose()) {
        let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let path = if file.is_empty() { page.path.clone() } else { folder.join(file) };
        let is_markdown = path.extension().is_some_and(|extension| extension == "md");
        let anchors = || if file.is_empty() { anchors(page) } else { anchors(&Page::read(path.clone())) };
        if !path.exists() || (is_markdown && !anchor.is_empty() && !anchors().contains(anchor)) {
            broken.push(format!("{}: {target}", page.name()));
        }
    }
    broken
}

/// Returns the targets of all links to files, without those to other sites.
fn link_targets(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace));
    local.map(str::to_owned).collect()
}

/// Returns the anchors of a page's headings, as GitHub makes them.
fn anchors(page: &Page) -> HashSet<String> {
    let headings = page.text.lines().filter(|line| line.starts_with('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    // A link in a heading counts with its text only.
    let heading: String = heading.split("](").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect();
    let lower = heading.to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The pages that are written from the code.
const GENERATED: [&str; 3] = ["docs/cli.md", "docs/metrics.md", "docs/rules.md"];

/// The most words in a page that is written by hand, as CONTRIBUTING.md says.
const MAX_WORDS: usize = 3_500;

/// Readers do not find a fact in pages that are too long. They look up the generated pages by key, command or metric.
#[test]
fn pages_have_a_bounded_number_of_words() {
    let docs = pages::root().join("docs");
    let counts = pages::all().into_iter().filter(|page| page.path.starts_with(&docs));
    let counts: Vec<(String, usize)> = counts.map(|page| (page.name(), words(&page.text))).collect();
    let (generated, written): (Vec<_>, Vec<_>) =
        counts.iter().partition(|(name, _)| GENERATED.contains(&name.as_str()));
    assert_eq!(generated.len(), GENERATED.len(), "{counts:?}");
    let long: Vec<_> = written.iter().filter(|(_, count)| *count > MAX_WORDS).collect();
    assert!(long.is_empty(), "more than {MAX_WORDS} words: shorten the page, or state a fact once: {long:?}");
}

/// Counts the words with a letter or a digit, which leaves out the marks of Markdown.
fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}
