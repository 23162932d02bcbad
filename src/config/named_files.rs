//! The files that a rule file names: where their relative paths start, and whether `check` reads them.

use std::path::{Path, PathBuf};

/// How the paths in a rule file are resolved and checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedFiles<'p> {
    folder: &'p Path,
    are_checked: bool,
}

impl<'p> NamedFiles<'p> {
    /// Relative paths start at the current folder: the rule file has no path.
    pub(super) fn of_text() -> Self {
        Self { folder: Path::new(""), are_checked: true }
    }

    /// Relative paths start at the folder of `rule_file`.
    pub(super) fn next_to(rule_file: &'p Path) -> Self {
        Self { folder: rule_file.parent().unwrap_or(Path::new("")), are_checked: true }
    }

    /// Accepts every path without opening it.
    pub(super) fn unchecked(self) -> Self {
        Self { are_checked: false, ..self }
    }

    /// Resolves a path of the rule file.
    pub(super) fn path(self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// Returns `true` if the files must exist and be usable.
    pub(super) fn are_checked(self) -> bool {
        self.are_checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_start_at_the_rule_files_folder() {
        for (rule_file, text, path) in [
            ("/etc/tidegate/rules.yaml", "tls/api.pem", "/etc/tidegate/tls/api.pem"),
            ("/etc/tidegate/rules.yaml", "/run/api.pem", "/run/api.pem"),
            ("config/rules.yaml", "../api.pem", "config/../api.pem"),
            ("rules.yaml", "api.pem", "api.pem"),
        ] {
            assert_eq!(NamedFiles::next_to(Path::new(rule_file)).path(text), Path::new(path), "{rule_file}");
        }
        assert_eq!(NamedFiles::of_text().path("api.pem"), Path::new("api.pem"));
    }
}
