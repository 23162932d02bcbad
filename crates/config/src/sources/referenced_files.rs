//! Files that a rule file refers to: their paths, and whether and how to check them.

use std::path::{Path, PathBuf};

use super::file_checks::{FileChecks, LibraryFiles};

/// Resolves the paths in a rule file and decides whether the files are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReferencedFiles<'p> {
    folder: &'p Path,
    are_checked: bool,
    /// Whether placeholders without a value are accepted.
    accepts_unknown: bool,
    /// Whether paths stay as they are written.
    keeps_paths: bool,
    /// The values of placeholders that precede environment variables.
    variables: &'p [(String, String)],
    checks: &'static dyn FileChecks,
}

impl<'p> ReferencedFiles<'p> {
    /// Resolves relative paths against the current folder, for rule files without a path.
    pub(crate) fn in_current_folder() -> Self {
        let (are_checked, accepts_unknown, keeps_paths) = (true, false, false);
        let folder = Path::new("");
        Self { folder, are_checked, accepts_unknown, keeps_paths, variables: &[], checks: &LibraryFiles }
    }

    /// Resolves relative paths against the folder of `rule_file`.
    pub(crate) fn relative_to(rule_file: &'p Path) -> Self {
        Self { folder: rule_file.parent().unwrap_or(Path::new("")), ..Self::in_current_folder() }
    }

    /// Uses these values for placeholders.
    pub(crate) fn with_variables(self, variables: &'p [(String, String)]) -> Self {
        Self { variables, ..self }
    }

    /// Returns the value of a placeholder, unless it is an environment variable.
    pub(crate) fn variable(self, name: &str) -> Option<&'p str> {
        self.variables.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Checks the files with these checks.
    pub(crate) fn with_checks(self, checks: &'static dyn FileChecks) -> Self {
        Self { checks, ..self }
    }

    /// Returns the checks of the files.
    pub(crate) fn checks(self) -> &'static dyn FileChecks {
        self.checks
    }

    /// Accepts every path without opening it.
    pub(crate) fn unchecked(self) -> Self {
        Self { are_checked: false, ..self }
    }

    /// Accepts placeholders without a value, and does not read the files that placeholders name.
    pub(crate) fn accepting_unknown(self) -> Self {
        Self { accepts_unknown: true, ..self }
    }

    /// Keeps paths as they are written, to compare rule files in different folders. Included files are found nevertheless.
    pub(crate) fn keeping_paths(self) -> Self {
        Self { keeps_paths: true, ..self }
    }

    /// Resolves a path of the rule file, unless paths stay as they are written.
    pub(crate) fn path(self, text: impl AsRef<Path>) -> PathBuf {
        if self.keeps_paths { self.relative(text.as_ref()).to_owned() } else { self.folder.join(text) }
    }

    /// Resolves the path of a file that is a part of the rules.
    pub(crate) fn part_path(self, text: impl AsRef<Path>) -> PathBuf {
        self.folder.join(text)
    }

    /// Returns a path as the rule file can contain it: relative to the folder, if the file is there.
    pub(crate) fn relative(self, path: &Path) -> &Path {
        path.strip_prefix(self.folder).unwrap_or(path)
    }

    /// Returns `true` if a placeholder may have no value.
    pub(crate) fn accepts_unknown(self) -> bool {
        self.accepts_unknown
    }

    /// Returns `true` if the files must exist and be usable.
    pub(crate) fn are_checked(self) -> bool {
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
            assert_eq!(ReferencedFiles::relative_to(Path::new(rule_file)).path(text), Path::new(path), "{rule_file}");
        }
        assert_eq!(ReferencedFiles::in_current_folder().path("api.pem"), Path::new("api.pem"));
    }

    #[test]
    fn kept_paths_do_not_contain_the_folder() {
        let files = ReferencedFiles::relative_to(Path::new("/etc/blue/rules.yaml")).keeping_paths();
        assert_eq!(files.path("tls/api.pem"), Path::new("tls/api.pem"));
        assert_eq!(files.path("/etc/blue/tls/api.pem"), Path::new("tls/api.pem"));
        assert_eq!(files.path("/etc/green/api.pem"), Path::new("/etc/green/api.pem"));
        assert_eq!(files.part_path("a.yaml"), Path::new("/etc/blue/a.yaml"));
    }
}
