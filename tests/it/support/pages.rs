//! The Markdown pages of the repository.

use std::fs;
use std::path::{Path, PathBuf};

pub struct Page {
    pub path: PathBuf,
    pub text: String,
}

/// A fenced block of code.
pub struct Block {
    /// The word after the fence, such as `yaml`. Empty if the fence has no word.
    pub language: String,
    /// The number of its first line.
    pub line: usize,
    pub code: String,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all pages, except those in folders of build results and in hidden ones.
pub fn all() -> Vec<Page> {
    let mut pages = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !matches!(name, "target" | "node_modules" | ".git") {
                folders.push(path);
            } else if name.ends_with(".md") {
                pages.push(Page::read(path));
            }
        }
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    pages
}

impl Page {
    pub fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    /// Returns the path from the root of the repository.
    pub fn name(&self) -> String {
        self.path.strip_prefix(root()).unwrap_or(&self.path).display().to_string()
    }

    /// Returns the text without its fenced blocks.
    pub fn prose(&self) -> String {
        let mut is_code = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if !is_code {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        prose
    }

    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (number, line) in self.text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(language), None) => {
                    open = Some(Block { language: language.trim().to_owned(), line: number + 2, code: String::new() });
                }
                (None, Some(block)) => {
                    block.code.push_str(line);
                    block.code.push('\n');
                }
                (None, None) => {}
            }
        }
        blocks
    }
}
