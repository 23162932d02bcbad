//! `tidegate convert`: writes a rule file from the configuration of another gateway, and reports every difference.

mod files;
mod output;

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use self::files::LocalFiles;
use super::operate::table::printable;
use crate::gateway::GATEWAY_FILES;
use tidegate_config::{ConfigLoadError, RuleFile, WrittenRules};
use tidegate_convert::{Conversion, Format, Options};

/// The most processes that enforce limits separately.
const MAX_REPLICAS: u32 = 10_000;

#[derive(Debug, Args)]
pub(super) struct ConvertArgs {
    /// The configuration files; `-` is standard input. Files that they include are read as well
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Format of the files, instead of recognizing it
    #[arg(long, value_name = "FORMAT", value_parser = format())]
    from: Option<Format>,
    /// Number of processes that enforce the limits separately. The rule file gets the sum of their rates
    #[arg(long, value_name = "N", default_value = "1", value_parser = replicas)]
    replicas: NonZeroU32,
    /// Write the rules to this file instead of standard output, and files that they name next to it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long, requires = "output")]
    force: bool,
    /// Exit with 0 even if settings are lost
    #[arg(long)]
    allow_lost: bool,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
}

/// Writes the rules to `out` or a file, and the report to `errors`. Returns the exit code: 0, 1 if a setting is lost, or 2 if
/// the files cannot be converted.
///
/// # Errors
/// `out` or `errors` cannot be written to.
pub(super) fn convert(args: &ConvertArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let options = Options { format: args.from, replicas: args.replicas, folder: args.folder()? };
    let conversion = match tidegate_convert::convert(&args.files, &LocalFiles::default(), &options) {
        Ok(conversion) => conversion,
        Err(error) => return writeln!(errors, "tidegate: {}", printable(&error.to_string())).map(|()| 2),
    };
    if let Err(error) = check(&conversion) {
        // The rules are written in spite of the error: most of them are valid.
        out.write_all(conversion.rules.as_bytes())?;
        let help = "help: correct the rules above by hand, and report this as a bug of `tidegate convert`";
        return writeln!(errors, "tidegate: the written rules have errors\n{error}\n{help}").map(|()| 2);
    }
    match &args.output {
        Some(file) => {
            if let Err(error) = output::write(file, &conversion, args.force) {
                return writeln!(errors, "tidegate: {error}").map(|()| 2);
            }
        }
        None => out.write_all(conversion.rules.as_bytes())?,
    }
    write_report(args, &conversion, errors)?;
    Ok(u8::from(conversion.report.has_lost() && !args.allow_lost))
}

/// Checks the rules as `tidegate check --no-files` does.
fn check(conversion: &Conversion) -> Result<(), ConfigLoadError> {
    let rules = WrittenRules { name: "<rules>".into(), text: conversion.rules.clone(), variables: Vec::new() };
    RuleFile::Written(Arc::new(rules)).check_without_referenced_files(GATEWAY_FILES).map(drop)
}

fn write_report(args: &ConvertArgs, conversion: &Conversion, errors: &mut impl Write) -> io::Result<()> {
    if args.json {
        serde_json::to_writer_pretty(&mut *errors, &conversion.json())?;
        return writeln!(errors);
    }
    for line in conversion.report.to_string().lines() {
        writeln!(errors, "{}", printable(line))?;
    }
    if args.output.is_none() && !conversion.more_files.is_empty() {
        let names: Vec<_> = conversion.more_files.iter().map(|file| file.name.as_str()).collect();
        writeln!(errors, "the rules need {}, which `--output` writes", printable(&names.join(", ")))?;
    }
    Ok(())
}

impl ConvertArgs {
    /// Returns the folder of the source files' paths, if the rule file is in another one.
    fn folder(&self) -> io::Result<Option<PathBuf>> {
        let parent = self.output.as_deref().and_then(Path::parent);
        match parent {
            None => Ok(None),
            Some(parent) if parent.as_os_str().is_empty() => Ok(None),
            Some(_) => std::env::current_dir().map(Some),
        }
    }
}

fn replicas(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU32| number.get() <= MAX_REPLICAS);
    number.ok_or_else(|| format!("`{text}` is not a whole number from 1 to {MAX_REPLICAS}"))
}

fn format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::word)).try_map(|word| word.parse::<Format>())
}
