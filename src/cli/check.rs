//! `tidegate check`: every mistake of a rule file at once.

use std::io::{self, Write};
use std::path::Path;

use crate::config::{Config, LoadError};

/// Writes what is wrong with `file` as the rule file of a gateway, or that nothing is. The exit code is 0 if it has no
/// mistakes, 1 if it has, and 2 if it cannot be read.
///
/// # Errors
/// `out` cannot be written to.
pub fn check(file: &Path, out: &mut impl Write) -> io::Result<u8> {
    match Config::load_for_gateway(file) {
        Ok(_) => {
            writeln!(out, "{}: no mistakes", file.display())?;
            Ok(0)
        }
        Err(error) => {
            writeln!(out, "{error}")?;
            Ok(match error {
                LoadError::Mistakes { .. } => 1,
                LoadError::Unreadable { .. } => 2,
            })
        }
    }
}
