//! `tidegate check`: reports all errors of a rule file.

use std::io::{self, Write};

use clap::Args;

use super::{ConfigArg, FileArg};
use crate::gateway::GATEWAY_FILES;
use tidegate_config::{ConfigLoadError, PartlyChecked};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    file: FileArg,
    #[command(flatten)]
    config: ConfigArg,
    /// Do not open the certificates, keys and password files that the rule file names; values of `${file:PATH}` and of
    /// variables that are not set pass every check
    #[arg(long)]
    no_files: bool,
}

/// Writes all errors and warnings of a rule file. Returns the exit code: 0 without errors, 1 with errors, and 2 if the
/// file cannot be read.
///
/// # Errors
/// `out` cannot be written to.
pub(super) fn check(args: CheckArgs, out: &mut impl Write) -> io::Result<u8> {
    let file = args.file.or(args.config);
    let checked = if args.no_files {
        file.check_without_referenced_files(GATEWAY_FILES)
    } else {
        let config = file.load_for_gateway(GATEWAY_FILES);
        config.map(|config| PartlyChecked { warnings: config.warnings, unknown_values: 0 })
    };
    match checked {
        Ok(PartlyChecked { warnings, unknown_values }) => {
            for warning in &warnings {
                writeln!(out, "{}", warning.in_file(&file))?;
            }
            match unknown_values {
                0 => writeln!(out, "{file}: no errors")?,
                1 => writeln!(out, "{file}: no errors, 1 unknown value")?,
                count => writeln!(out, "{file}: no errors, {count} unknown values")?,
            }
            Ok(0)
        }
        Err(error) => {
            writeln!(out, "{error}")?;
            Ok(match error {
                ConfigLoadError::Invalid { .. } => 1,
                ConfigLoadError::Unreadable { .. } => 2,
            })
        }
    }
}
