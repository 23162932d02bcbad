//! The commands, one file each, and their shared arguments. Only this module prints for people.

mod check;
mod demo;
mod explain;
mod logging;
mod notify;
mod run;
mod serve;
mod signals;
mod succession;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use self::logging::{LogFilter, LogFormat};
use crate::config::RuleFile;

/// An HTTP reverse-proxy gateway with exact distributed rate limiting.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    Run(run::RunCommand),
    /// Run on an embedded store with a built-in upstream, to try things out
    Demo(CommonArgs),
    /// Report all errors of a rule file
    Check(check::CheckArgs),
    /// Tell which route and which limits a request meets, and why
    Explain(explain::ExplainArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    rules: ConfigArg,
    #[command(flatten)]
    common: CommonArgs,
    /// Seconds for requests to finish after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "30", env = "TIDEGATE_DRAIN_TIMEOUT", value_parser = seconds)]
    drain_timeout: Duration,
    /// Seconds between failing the readiness check and accepting no more, for load balancers to notice
    #[arg(long, value_name = "SECONDS", default_value = "0", env = "TIDEGATE_DRAIN_DELAY", value_parser = seconds)]
    drain_delay: Duration,
    /// Take over from the gateway that was started with the same socket, and hand over to the next one
    #[arg(long, value_name = "SOCKET", env = "TIDEGATE_HANDOVER")]
    handover: Option<PathBuf>,
    /// A file that keeps the number of gateways for the next start
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STATE")]
    state: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ConfigArg {
    /// The rule file; `-` is standard input
    #[arg(short, long, value_name = "FILE", default_value = run::DEFAULT_FILE, value_parser = rule_file())]
    config: RuleFile,
}

/// A rule file as an argument or by `-c`.
#[derive(Debug, Args)]
struct FileArg {
    /// The rule file; `-` is standard input
    #[arg(value_name = "FILE", conflicts_with = "config", value_parser = rule_file())]
    file: Option<RuleFile>,
}

#[derive(Clone, Debug, Args)]
struct CommonArgs {
    /// Worker threads; as many as there are cores unless given
    #[arg(long, value_name = "N", env = "TIDEGATE_WORKERS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "human", env = "TIDEGATE_LOG_FORMAT")]
    log_format: LogFormat,
    /// What is logged: off, error, warn, info, debug, trace; or TARGET=LEVEL, such as tidegate=debug; or several with commas
    #[arg(long, value_name = "FILTER", default_value = LogFilter::DEFAULT, env = "TIDEGATE_LOG", value_parser = LogFilter::parse)]
    log: LogFilter,
}

/// Runs the command that the arguments ask for. 0 is yes, 1 no, 2 could not answer.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let code = match cli.command {
        None => run::run(&cli.run),
        Some(Command::Run(command)) => run::run(&command.into_args()),
        Some(Command::Demo(args)) => demo::demo(&args),
        Some(Command::Explain(args)) => {
            explain::explain(&args, &mut io::stdout().lock(), &mut io::stderr().lock()).unwrap_or(2)
        }
        Some(Command::Check(args)) => check::check(args, &mut io::stdout().lock()).unwrap_or(2),
    };
    ExitCode::from(code)
}

fn rule_file() -> impl TypedValueParser<Value = RuleFile> {
    OsStringValueParser::new().map(RuleFile::from)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: u32 = text.parse().map_err(|_| format!("`{text}` is not a whole number of seconds"))?;
    Ok(Duration::from_secs(seconds.into()))
}

impl FileArg {
    /// Returns the rule file: the argument, or else that of `-c`.
    fn or(self, config: ConfigArg) -> RuleFile {
        self.file.unwrap_or(config.config)
    }
}

impl CommonArgs {
    fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.workers.map_or_else(cores, usize::from)
    }
}
