//! `tidegate diff`: shows what a reload would change. Uses only the two rule files.

use std::io::{self, Write};

use clap::Args;

use super::rule_file;
use crate::gateway::GATEWAY_FILES;
use tidegate_config::diff::ConfigDiff;
use tidegate_config::{Config, RuleFile};

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// The rule file in use; `-` is standard input
    #[arg(value_name = "OLD", value_parser = rule_file())]
    old: RuleFile,
    /// The changed rule file
    #[arg(value_name = "NEW", value_parser = rule_file())]
    new: RuleFile,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Writes the differences between two rule files. Returns the exit code: 0 if nothing changes, 1 if something does, and
/// 2 if a file is invalid.
///
/// # Errors
/// `out` or `errors` cannot be written to.
pub(super) fn diff(args: &DiffArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let mut load = |file: &RuleFile| -> io::Result<Option<Config>> {
        let config = file.load_to_compare(GATEWAY_FILES);
        config.map_or_else(|error| writeln!(errors, "{error}").map(|()| None), |config| Ok(Some(config)))
    };
    let (Some(old), Some(new)) = (load(&args.old)?, load(&args.new)?) else { return Ok(2) };
    let diff = ConfigDiff::new(&old, &new);
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &diff)?;
        writeln!(out)?;
    } else if diff.is_empty() {
        writeln!(out, "no changes")?;
    }
    if !args.json {
        diff.lines().iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(u8::from(!diff.is_empty()))
}
