//! `tidegate run`: from a rule file to a gateway, until SIGTERM, SIGINT or a successor.

use std::io::{self, Write};
use std::path::Path;

use clap::Args;
use tokio::runtime::Runtime;

use super::logging;
use super::notify::notify;
use super::serve::serve;
use super::signals::Signals;
use super::succession::Succession;
use super::{ConfigArg, FileArg, RunArgs};
use crate::config::{Config, ConfigLoadError, ListenAddress};
use crate::gateway::{Gateway, Inherited, StateFile};

/// The default rule file.
pub(super) const DEFAULT_FILE: &str = "config/tidegate.yaml";

/// `tidegate run`: the rule file is an argument or that of `-c`.
#[derive(Debug, Args)]
pub(super) struct RunCommand {
    #[command(flatten)]
    file: FileArg,
    #[command(flatten)]
    args: RunArgs,
}

impl RunCommand {
    pub(super) fn into_args(self) -> RunArgs {
        let rules = ConfigArg { config: self.file.or(self.args.rules) };
        RunArgs { rules, ..self.args }
    }
}

/// Runs a gateway; returns the exit code.
pub(super) fn run(args: &RunArgs) -> u8 {
    let inherited = match Inherited::from_systemd() {
        Ok(inherited) => inherited,
        Err(error) => return could_not(&format_args!("cannot use what systemd passes: {error}")),
    };
    let config = match args.rules.config.load_for_gateway() {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return if matches!(error, ConfigLoadError::Invalid { .. }) { 1 } else { 2 };
        }
    };
    let logs = match logging::start(&args.common, &config.access_log) {
        Ok(logs) => logs,
        Err(error) => return could_not(&error),
    };
    for warning in &config.warnings {
        tracing::warn!("{}:{warning}", args.rules.config);
    }
    let (runtime, mut signals) = match Signals::install() {
        Ok(installed) => installed,
        Err(error) => return could_not(&error),
    };
    let result = match start(args, config, inherited, &runtime, &mut signals) {
        Ok(Some((gateway, succession))) => {
            runtime.block_on(serve(gateway, args, signals, succession, &logs)).map_err(Into::into)
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    // After a second signal, does not wait for threads that still drain.
    runtime.shutdown_background();
    result.map_or_else(|error: Failure| could_not(&error), |()| 0)
}

type Failure = Box<dyn std::error::Error>;

/// Starts a gateway, and takes over from its predecessor. Returns `None` if a signal has ended it before that.
fn start(
    args: &RunArgs,
    config: Config,
    inherited: Inherited,
    runtime: &Runtime,
    signals: &mut Signals,
) -> Result<Option<(Gateway, Succession)>, Failure> {
    let begun = runtime.block_on(async {
        tokio::select! {
            biased;
            () = signals.end() => None,
            begun = Succession::begin(args.handover.as_deref()) => Some(begun),
        }
    });
    let Some(begun) = begun else { return Ok(ended_early()) };
    let mut succession = begun.map_err(|error| cannot_use(args.handover.as_deref(), &error))?;
    let schemes: Vec<_> =
        config.listen.iter().map(|listen| if listen.tls.is_some() { "https" } else { "http" }).collect();
    let inherited = succession.inherit(inherited);
    let started = Gateway::start_on(config, args.common.workers(), inherited);
    let gateway = started.inspect_err(|_| succession.give_up())?;
    if runtime.block_on(signals.is_asked_to_end()) {
        drop(gateway);
        succession.give_up();
        return Ok(ended_early());
    }
    gateway.remember(args.state.as_deref().map(StateFile::read));
    let taken = runtime.block_on(succession.take_over(&gateway));
    taken.map_err(|error| cannot_use(args.handover.as_deref(), &error))?;
    gateway.serve();
    for (address, scheme) in gateway.addresses().iter().zip(schemes) {
        tracing::info!("listening on {}", url(scheme, address));
    }
    if let Some(address) = gateway.admin_address() {
        tracing::info!("admin on {}", url("http", address));
    }
    notify("READY=1");
    Ok(Some((gateway, succession)))
}

fn ended_early<T>() -> Option<T> {
    tracing::info!("ended by a signal before it served");
    None
}

fn cannot_use(path: Option<&Path>, error: &io::Error) -> Failure {
    let path = path.unwrap_or(Path::new("")).display();
    format!("cannot use the socket of `--handover`, {path}: {error}").into()
}

fn url(scheme: &str, address: &ListenAddress) -> String {
    address.tcp().map_or_else(|| address.to_string(), |address| format!("{scheme}://{address}"))
}

fn could_not(error: &dyn std::fmt::Display) -> u8 {
    complain(error);
    2
}

fn complain(error: &dyn std::fmt::Display) {
    // If standard error is closed, there is nowhere to report it.
    _ = writeln!(io::stderr(), "tidegate: {error}");
}
