//! Draws the crates and modules of the workspace from their imports, into ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use super::imports::{imports, root, siblings};
use super::tree::{self, rust};
use super::{Source, is_test_file, without_tests};

const PAGE: &str = "ARCHITECTURE.md";
const START: &str = "<!-- the picture of the crates -->\n```\n";
const END: &str = "```\n<!-- the end of the picture -->";

/// The width of a row of modules, in characters.
const WIDTH: usize = 100;

/// A crate of the workspace.
struct Drawn {
    name: String,
    /// The crates that it imports.
    uses: BTreeSet<String>,
    /// The modules in rows. A module imports only modules of lower rows.
    rows: Vec<Vec<String>>,
}

#[test]
fn picture_of_the_crates_is_current() {
    let page = tree::read(PAGE).text;
    let (before, rest) = page.split_once(START).expect("the start of the picture");
    let (pinned, after) = rest.split_once(END).expect("the end of the picture");
    let drawn = draw(crates(&rust()));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(tree::root().join(PAGE), format!("{before}{START}{drawn}{END}{after}")).expect("written");
    } else {
        assert!(pinned == drawn, "{PAGE} is stale: UPDATE_DOCS=1 cargo test --test it -- picture\n{drawn}");
    }
}

/// Returns all crates, each above those that it imports.
fn crates(sources: &[Source]) -> Vec<Drawn> {
    let roots: BTreeSet<&str> = sources.iter().filter_map(|source| root(&source.path)).collect();
    let mut crates: Vec<Drawn> = roots.into_iter().map(|root| read(root, sources)).collect();
    let uses = crates.iter().map(|it| (it.name.clone(), it.uses.clone())).collect();
    let heights = heights(&uses);
    crates.sort_by_key(|it| std::cmp::Reverse(heights[&it.name]));
    crates
}

fn read(root: &str, sources: &[Source]) -> Drawn {
    let own: Vec<&Source> = sources.iter().filter(|it| it.path.starts_with(root) && !is_test_file(&it.path)).collect();
    let code = own.iter().flat_map(|source| without_tests(&source.text).lines());
    let starts = code.filter(|line| !line.trim().starts_with("//")).flat_map(|line| line.split("tidegate_").skip(1));
    let word = |text: &str| text.split_once("::").map(|(name, _)| name.to_owned());
    let is_crate = |name: &String| tree::root().join("crates").join(name).join("src").is_dir();
    let name = root.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/src"));
    let uses = starts.filter_map(word).filter(is_crate).filter(|other| Some(other.as_str()) != name);
    Drawn {
        name: name.map_or("tidegate".to_owned(), |name| format!("tidegate-{name}")),
        uses: uses.map(|name| format!("tidegate-{name}")).collect(),
        rows: rows(root, sources),
    }
}

fn rows(root: &str, sources: &[Source]) -> Vec<Vec<String>> {
    let imports = imports(root, sources);
    let modules = siblings(&imports, &[]);
    let uses =
        modules.iter().map(|(name, uses)| ((*name).to_owned(), uses.iter().map(|it| (*it).to_owned()).collect()));
    let heights = heights(&uses.collect());
    let mut rows: BTreeMap<_, Vec<String>> = BTreeMap::new();
    heights.into_iter().for_each(|(name, height)| rows.entry(std::cmp::Reverse(height)).or_default().push(name));
    rows.into_values().collect()
}

/// Returns the length of the longest chain of imports below each name. There are no cycles.
fn heights(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, usize> {
    let mut heights: BTreeMap<String, usize> = uses.keys().map(|name| (name.clone(), 0)).collect();
    for _ in uses {
        for (name, below) in uses {
            let height = below.iter().filter_map(|it| heights.get(it)).max().map_or(0, |highest| highest + 1);
            heights.insert(name.clone(), height);
        }
    }
    heights
}

fn draw(crates: Vec<Drawn>) -> String {
    let mut text = String::new();
    for Drawn { name, uses, rows } in crates {
        let uses: Vec<_> = uses.iter().map(|name| name.trim_start_matches("tidegate-")).collect();
        let uses = if uses.is_empty() { String::new() } else { format!(" ─► {}", uses.join(", ")) };
        let title = format!("{name}{uses} ");
        writeln!(text, "┌─ {title:─<WIDTH$}┐").expect("text");
        for row in rows.iter().flat_map(|row| wrapped(row)) {
            writeln!(text, "│  {row:WIDTH$}│").expect("text");
        }
        writeln!(text, "└──{:─<WIDTH$}┘", "").expect("text");
    }
    text
}

/// Returns the names in lines of at most [`WIDTH`] characters.
fn wrapped(names: &[String]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for name in names {
        let last = lines.last_mut().expect("a line");
        if !last.is_empty() && last.len() + name.len() > WIDTH - 4 {
            lines.push(name.clone());
        } else {
            last.push_str(if last.is_empty() { "" } else { "   " });
            last.push_str(name);
        }
    }
    lines
}
