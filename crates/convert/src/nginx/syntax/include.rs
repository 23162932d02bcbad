//! `include`: the directives of other files.

use std::path::{Path, PathBuf};

use super::{Directive, Parser};
use crate::error::ConvertError;

/// The folder in which most packages install the configuration.
const INSTALLED: &str = "/etc/nginx";

impl Parser<'_, '_> {
    /// Adds a directive that ends with a semicolon. Replaces an `include` by the directives of its files.
    pub(super) fn end(
        &mut self,
        directive: Directive,
        depth: usize,
        into: &mut Vec<Directive>,
    ) -> Result<(), ConvertError> {
        let pattern = match (directive.name(), directive.arg(0)) {
            ("include", Some(pattern)) => pattern,
            _ => {
                into.push(directive);
                return Ok(());
            }
        };
        let files = self.files(pattern)?;
        let is_pattern = pattern.contains(['*', '?', '[']);
        if files.is_empty() && !is_pattern {
            self.missing.push(directive);
            return Ok(());
        }
        for path in files {
            let text = self.input.enter(&path, &directive.place)?;
            self.file(&text, depth + 1, into)?;
            self.input.leave();
        }
        Ok(())
    }

    /// Returns the files of a pattern. If a copy of an installed configuration is converted, its absolute paths start at
    /// the folder of the copy.
    fn files(&self, pattern: &str) -> Result<Vec<PathBuf>, ConvertError> {
        let files = self.input.list(&self.folder.join(pattern))?;
        match Path::new(pattern).strip_prefix(INSTALLED) {
            Ok(rest) if files.is_empty() => self.input.list(&self.folder.join(rest)),
            _ => Ok(files),
        }
    }
}
