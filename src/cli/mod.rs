//! The commands, one file each, and their shared arguments. Only this module prints to the terminal.

mod check;
mod convert;
mod demo;
mod diff;
mod explain;
mod generate;
mod handover_session;
mod logging;
mod notify;
mod operate;
mod progress;
mod ratelimit;
mod reload;
mod replay;
mod run;
mod serve;
mod signals;
mod suggest;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand};

use self::logging::{LogFilter, LogFormat};
use crate::admin::GatewayName;
use tidegate_config::RuleFile;

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
    /// Serve Envoy's rate limit service with the environment variables and files of envoyproxy/ratelimit. Also the program
    /// name `ratelimit` does so
    Ratelimit(ratelimit::RatelimitArgs),
    /// Run with an embedded store and a built-in upstream, to try things out
    Demo(CommonArgs),
    /// Report all errors of a rule file
    Check(check::CheckArgs),
    /// Write a rule file from the configuration of nginx, ingress-nginx, Kong, envoyproxy/ratelimit, Traefik, Spring Cloud
    /// Gateway or Sentinel, and report every difference; exits with 1 if a setting is lost
    Convert(convert::ConvertArgs),
    /// Show what a reload would change, and what happens to the permits in use
    Diff(diff::DiffArgs),
    /// Reload the rule file of a running gateway
    Reload(reload::ReloadArgs),
    /// Show which route and limits apply to a request, and why
    Explain(explain::ExplainArgs),
    /// Show which requests of access logs the rules would have rejected
    Replay(replay::ReplayArgs),
    /// Write the requests of a running gateway for `replay` and `suggest`, with hashes instead of client values. Paths,
    /// hosts and methods stay readable
    Record(operate::RecordArgs),
    /// Propose the rate of a limit from access logs
    Suggest(suggest::SuggestArgs),
    /// Show whether a running gateway is ready, its store, and what is wrong; exits with 1 if something is
    Status(operate::StatusArgs),
    /// List all gateways that share the store, with version, rule hash and health; exits with 1 if they differ
    Fleet(operate::FleetArgs),
    /// List the targets of the upstreams of a running gateway
    Upstreams(operate::UpstreamsArgs),
    /// List the limits of a running gateway
    Limits(operate::LimitsArgs),
    /// Show the permits of one client of a limit
    Client(operate::ClientArgs),
    /// List the clients that limits reject most, since when, and by which line of the rule file
    Top(operate::TopArgs),
    /// Reset one client of a limit, or all of them
    Reset(operate::ResetArgs),
    /// Send no new requests to a target of an upstream for a time
    Drain(operate::DrainArgs),
    /// Reject the requests of a client or network for a time
    Ban(operate::BanArgs),
    /// Do not count the requests of a client or network for a time
    Exempt(operate::OverrideArgs),
    /// Change the rate of limits for a client or network for a time
    Adjust(operate::AdjustArgs),
    /// List the overrides that `ban`, `exempt` and `adjust` made, or remove one
    Overrides(operate::OverridesArgs),
    /// Print the JSON Schema of the rule file, for editors
    Schema,
    /// Print a script that completes arguments in a shell
    Completions(generate::CompletionsArgs),
    /// Print a manual page
    Man(generate::ManArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    rules: ConfigArg,
    #[command(flatten)]
    serve: ServeArgs,
    /// Exit if the rule file is invalid, instead of using the rules that `--state` has stored
    #[arg(long, env = "TIDEGATE_STRICT", value_parser = clap::builder::FalseyValueParser::new())]
    strict: bool,
}

/// The options of a process that serves, with any rules.
#[derive(Debug, Args)]
struct ServeArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Seconds that running requests have to finish after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "30", env = "TIDEGATE_DRAIN_TIMEOUT", value_parser = seconds)]
    drain_timeout: Duration,
    /// Seconds to keep accepting connections after SIGTERM while the readiness check fails, so that load balancers
    /// notice
    #[arg(long, value_name = "SECONDS", default_value = "0", env = "TIDEGATE_DRAIN_DELAY", value_parser = seconds)]
    drain_delay: Duration,
    /// Do not reload the rule file when it changes
    #[arg(long, env = "TIDEGATE_NO_WATCH", value_parser = clap::builder::FalseyValueParser::new())]
    no_watch: bool,
    /// Unix socket for restarts: take over from the gateway that uses it, and hand over to the next one
    #[arg(long, value_name = "SOCKET", env = "TIDEGATE_HANDOVER")]
    handover: Option<PathBuf>,
    /// File that stores the number of gateways for the next start. FILE.rules stores the rules in use, for a start
    /// with an invalid rule file
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STATE")]
    state: Option<PathBuf>,
    /// Name of this gateway in `tidegate fleet`; the host name by default
    #[arg(long, value_name = "NAME", env = "TIDEGATE_NAME")]
    name: Option<GatewayName>,
}

#[derive(Debug, Args)]
struct ConfigArg {
    /// The rule file; `-` is standard input
    #[arg(short, long, value_name = "FILE", default_value = run::DEFAULT_FILE, value_parser = rule_file())]
    config: RuleFile,
}

/// The rule file, as an argument or with `-c`.
#[derive(Debug, Args)]
struct FileArg {
    /// The rule file; `-` is standard input
    #[arg(value_name = "FILE", conflicts_with = "config", value_parser = rule_file())]
    file: Option<RuleFile>,
}

#[derive(Clone, Debug, Args)]
struct CommonArgs {
    /// Number of worker threads; one per core by default
    #[arg(long, value_name = "N", env = "TIDEGATE_WORKERS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", default_value = "human", env = "TIDEGATE_LOG_FORMAT")]
    log_format: LogFormat,
    /// Log filter: off, error, warn, info, debug or trace; TARGET=LEVEL, such as tidegate=debug; or a comma-separated
    /// list
    #[arg(long, value_name = "FILTER", default_value = LogFilter::DEFAULT, env = "TIDEGATE_LOG")]
    #[arg(value_parser = LogFilter::parse)]
    log: LogFilter,
}

/// Runs the command. Exit codes: 0 means yes or success, 1 means no, 2 means that an error prevented an answer.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(ratelimit::with_command(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => {
            _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let code = match cli.command {
        None => run::run(&cli.run),
        Some(Command::Run(command)) => run::run(&command.into_args()),
        Some(Command::Ratelimit(args)) => ratelimit::ratelimit(args),
        Some(Command::Demo(args)) => demo::demo(&args),
        Some(Command::Explain(args)) => with_output(|out, errors| explain::explain(&args, out, errors)),
        Some(Command::Replay(args)) => with_output(|out, errors| replay::replay_logs(&args, out, errors)),
        Some(Command::Record(args)) => with_output(|out, errors| operate::record(&args, out, errors)),
        Some(Command::Suggest(args)) => with_output(|out, errors| suggest::suggest_rate(&args, out, errors)),
        Some(Command::Status(args)) => with_output(|out, errors| operate::status(&args, out, errors)),
        Some(Command::Fleet(args)) => with_output(|out, errors| operate::fleet(&args, out, errors)),
        Some(Command::Upstreams(args)) => with_output(|out, errors| operate::upstreams(&args, out, errors)),
        Some(Command::Drain(args)) => with_output(|out, errors| operate::drain(&args, out, errors)),
        Some(Command::Limits(args)) => with_output(|out, errors| operate::limits(&args, out, errors)),
        Some(Command::Client(args)) => with_output(|out, errors| operate::client(&args, out, errors)),
        Some(Command::Top(args)) => with_output(|out, errors| operate::top(&args, out, errors)),
        Some(Command::Reset(args)) => with_output(|out, errors| operate::reset(&args, out, errors)),
        Some(Command::Ban(args)) => with_output(|out, errors| operate::ban(&args, out, errors)),
        Some(Command::Exempt(args)) => with_output(|out, errors| operate::exempt(&args, out, errors)),
        Some(Command::Adjust(args)) => with_output(|out, errors| operate::adjust(&args, out, errors)),
        Some(Command::Overrides(args)) => with_output(|out, errors| operate::overrides(&args, out, errors)),
        Some(Command::Convert(args)) => with_output(|out, errors| convert::convert(&args, out, errors)),
        Some(Command::Diff(args)) => with_output(|out, errors| diff::diff(&args, out, errors)),
        Some(Command::Reload(args)) => with_output(|out, errors| reload::reload(&args, out, errors)),
        Some(Command::Schema) => with_output(|out, _| generate::schema(out)),
        Some(Command::Completions(args)) => with_output(|out, _| generate::completions(&args, Cli::command(), out)),
        Some(Command::Man(args)) => with_output(|out, errors| generate::man(&args, Cli::command(), out, errors)),
        Some(Command::Check(args)) => check::check(args, &mut io::stdout().lock()).unwrap_or(2),
    };
    ExitCode::from(code)
}

/// Runs a command that writes to the terminal. Returns 2 if it cannot write.
fn with_output(run: impl FnOnce(&mut io::StdoutLock<'_>, &mut io::StderrLock<'_>) -> io::Result<u8>) -> u8 {
    run(&mut io::stdout().lock(), &mut io::stderr().lock()).unwrap_or(2)
}

fn rule_file() -> impl TypedValueParser<Value = RuleFile> {
    OsStringValueParser::new().map(RuleFile::from)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: u32 = text.parse().map_err(|_| format!("`{text}` is not a whole number of seconds"))?;
    Ok(Duration::from_secs(seconds.into()))
}

impl FileArg {
    /// Returns the rule file: the argument, or else the value of `-c`.
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
