//! `tidegate ratelimit`, also by the program name `ratelimit`: a rate limit service with the environment variables and files of
//! envoyproxy/ratelimit.
//!
//! [`translate()`] writes a rule file for the variables, and [`run`](super::run) runs the gateway with it. `--print` shows the
//! rule file, for a migration.

mod descriptors;
mod environment;
mod listeners;
mod service;
mod store;
mod translate;
mod variables;
mod yaml;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use self::environment::Environment;
use self::translate::{Translation, translate};
use super::ServeArgs;
use super::logging::{LogFilter, LogFormat};
use super::run::{LoadedRules, run_with};
use crate::gateway::{GATEWAY_FILES, StartRules};
use tidegate_config::{Loaded, RuleFile, RuleTexts, WrittenRules};

/// The name of the rule file in messages.
const NAME: &str = "<environment>";

/// The program name of envoyproxy/ratelimit, and the name of the command.
const COMMAND: &str = "ratelimit";

/// Arguments of `tidegate ratelimit`.
#[derive(Debug, Args)]
pub(super) struct RatelimitArgs {
    /// Print the rule file for the environment variables, without secrets, and exit
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

/// Adds the command to the arguments of a program with its name.
pub(super) fn with_command(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.collect();
    let program = arguments.first().and_then(|program| Path::new(program).file_name());
    if program.is_some_and(|program| program == COMMAND) {
        arguments.insert(1, COMMAND.into());
    }
    arguments
}

/// Runs the command. Returns the exit code.
pub(super) fn ratelimit(mut args: RatelimitArgs) -> u8 {
    let translation = match translate(Environment::of_process()) {
        Ok(translation) => translation,
        Err(faults) => {
            return write_all(&mut io::stderr(), faults.iter().map(|fault| format!("ratelimit: {fault}")), 1);
        }
    };
    if args.print {
        return write_all(&mut io::stdout(), [translation.shown()], 0);
    }
    apply_log_settings(&mut args.serve, &translation);
    let Translation { text, secrets, starts_without_rules, .. } = translation.clone();
    let file = RuleFile::Written(Arc::new(WrittenRules { name: PathBuf::from(NAME), text, variables: secrets }));
    run_with(&args.serve, &file, || load(&file, &translation.text, starts_without_rules), || translation.log())
}

/// Loads the rules. If they are invalid and the gateway `starts_without_rules`, loads no descriptors.
fn load(file: &RuleFile, text: &str, starts_without_rules: bool) -> LoadedRules {
    let Loaded { config, sources, texts } = file.load_with_sources(GATEWAY_FILES);
    let (config, texts, rejected) = match config {
        Err(error) if starts_without_rules => {
            let without_files = RuleTexts::new(text.into(), Vec::new());
            match file.load_texts(GATEWAY_FILES, &without_files) {
                Ok(config) => (Ok(config), without_files, Some(error)),
                Err(_) => (Err(error), texts, None),
            }
        }
        config => (config, texts, None),
    };
    LoadedRules { config, start: StartRules { sources, texts, rejected, saved: None }, fault: None }
}

/// Applies `LOG_LEVEL` and `LOG_FORMAT`, unless options or variables of Tidegate set the log.
fn apply_log_settings(args: &mut ServeArgs, translation: &Translation) {
    if let Some(level) = translation.log_level.filter(|_| args.common.log.is_default()) {
        args.common.log = LogFilter::parse(level).unwrap_or_else(|_| args.common.log.clone());
    }
    if translation.is_log_json {
        args.common.log_format = LogFormat::Json;
    }
}

/// Writes lines. Returns the exit code, or 2 if they cannot be written.
fn write_all(output: &mut impl Write, lines: impl IntoIterator<Item = String>, code: u8) -> u8 {
    let written = lines.into_iter().try_for_each(|line| writeln!(output, "{line}"));
    written.map_or(2, |()| code)
}
