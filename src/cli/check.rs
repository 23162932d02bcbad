//! `tidegate check`: lists all mistakes of a rule file.

use std::io::{self, Write};
use std::path::Path;

use crate::config::{Config, LoadError};

/// Writes all mistakes of a rule file, or that there are none. The exit code is 0 without mistakes, 1 with mistakes, and 2 if
/// the file cannot be read.
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
