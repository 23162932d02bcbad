//! `tidegate check`: reports all errors of a rule file.

use std::io::{self, Write};

use clap::Args;

use super::{ConfigArg, FileArg};
use crate::gateway::GATEWAY_FILES;
use tidegate_config::ConfigLoadError;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    file: FileArg,
    #[command(flatten)]
    config: ConfigArg,
    /// Do not open the certificates, keys and password files that the rule file names
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
    let config = if args.no_files {
        file.load_without_referenced_files(GATEWAY_FILES)
    } else {
        file.load_for_gateway(GATEWAY_FILES)
    };
    match config {
        Ok(config) => {
            for warning in config.warnings.iter() {
                writeln!(out, "{}", warning.in_file(&file))?;
            }
            writeln!(out, "{file}: no errors")?;
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
