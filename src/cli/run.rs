//! `tidegate run`: starts a gateway from a rule file, and runs it until SIGTERM, SIGINT or a handover.

use std::io::{self, Write};
use std::path::Path;

use clap::Args;
use tokio::runtime::Runtime;

use super::handover_session::HandoverSession;
use super::logging;
use super::notify::notify;
use super::serve::{OnHangUp, serve};
use super::signals::Signals;
use super::{ConfigArg, FileArg, RunArgs, ServeArgs};
use crate::gateway::{FileReloader, GATEWAY_FILES, Gateway, InheritedSockets, SavedRules, StartRules, StateFile};
use tidegate_config::{Config, ConfigLoadError, ListenAddress, Loaded, RuleFile};

/// The default rule file.
pub(super) const DEFAULT_FILE: &str = "config/tidegate.yaml";

/// Arguments of `tidegate run`. The rule file is an argument or the value of `-c`.
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

/// Runs a gateway. Returns the exit code.
pub(super) fn run(args: &RunArgs) -> u8 {
    run_with(&args.serve, &args.rules.config, || load(args), || {})
}

/// Runs a gateway with the rules of a file, as `load` returns them. Calls `log_start` when the log is open. Returns the exit
/// code.
pub(super) fn run_with(
    args: &ServeArgs,
    file: &RuleFile,
    load: impl FnOnce() -> LoadedRules,
    log_start: impl FnOnce(),
) -> u8 {
    let inherited = match InheritedSockets::from_systemd() {
        Ok(inherited) => inherited,
        Err(error) => return report_failure(&format_args!("cannot use the sockets that systemd passes: {error}")),
    };
    let LoadedRules { config, start: start_rules, fault } = load();
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            fault.iter().for_each(|fault| print_error(fault));
            print_error(&error);
            return if matches!(error, ConfigLoadError::Invalid { .. }) { 1 } else { 2 };
        }
    };
    let secrets = config.secrets.clone();
    let report_failure = |error: &dyn std::fmt::Display| report_failure(&secrets.mask(&error.to_string()));
    let logs = match logging::start(&args.common, &config.access_log) {
        Ok(logs) => logs,
        Err(error) => return report_failure(&error),
    };
    log_start();
    fault.iter().for_each(|fault| tracing::warn!("{fault}"));
    for warning in &config.warnings {
        tracing::warn!("{}", warning.in_file(file));
    }
    let (runtime, mut signals) = match Signals::install() {
        Ok(installed) => installed,
        Err(error) => return report_failure(&error),
    };
    let prepare_reloads = |gateway: &Gateway| {
        gateway.set_access_log_switch(logs.access_log_switch());
        gateway.file_reloader(file.clone(), start_rules, !args.no_watch)
    };
    let result = match start(args, config, inherited, &runtime, &mut signals, prepare_reloads) {
        Ok(Some((gateway, session, rules))) => runtime
            .block_on(serve(gateway, args, signals, session, OnHangUp { logs: &logs, rules }))
            .map_err(Into::into),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    // After a second signal, threads may still be draining: does not wait for them.
    runtime.shutdown_background();
    result.map_or_else(|error: Failure| report_failure(&error), |()| 0)
}

/// The rules of a start.
pub(super) struct LoadedRules {
    pub(super) config: Result<Config, ConfigLoadError>,
    pub(super) start: StartRules,
    /// Why the saved rules cannot be used.
    pub(super) fault: Option<String>,
}

/// Loads the rule file. If it is invalid, loads the saved rules, or only the saved files of teams.
fn load(args: &RunArgs) -> LoadedRules {
    let file = &args.rules.config;
    let saved = args.serve.state.as_deref().and_then(|state| SavedRules::of_state(state, file));
    let Some(saved) = saved else {
        let Loaded { config, sources, texts } = file.load_with_sources(GATEWAY_FILES);
        return LoadedRules { config, start: StartRules { sources, texts, rejected: None, saved: None }, fault: None };
    };
    let (last_valid, fault) = match saved.read() {
        Ok(texts) => (texts.filter(|_| !args.strict), None),
        Err(error) => (None, Some(format!("cannot use the saved rules {}: {error}", saved.path().display()))),
    };
    let Loaded { config, sources, texts } = file.load_with_texts(GATEWAY_FILES, last_valid.as_ref());
    let saved = Some(saved);
    let config = match (config, last_valid) {
        (Err(error), Some(texts)) => match file.load_texts(GATEWAY_FILES, &texts) {
            Ok(config) => {
                let start = StartRules { sources, texts, rejected: Some(error), saved };
                return LoadedRules { config: Ok(config), start, fault };
            }
            Err(_) => Err(error),
        },
        (config, _) => config,
    };
    LoadedRules { config, start: StartRules { sources, texts, rejected: None, saved }, fault }
}

type Failure = Box<dyn std::error::Error>;

/// Starts a gateway, and takes over from its predecessor. Returns `None` if a signal arrives first. Reloads are possible
/// before the gateway is announced as ready.
fn start(
    args: &ServeArgs,
    config: Config,
    inherited: InheritedSockets,
    runtime: &Runtime,
    signals: &mut Signals,
    prepare_reloads: impl FnOnce(&Gateway) -> Option<FileReloader>,
) -> Result<Option<(Gateway, HandoverSession, Option<FileReloader>)>, Failure> {
    let session = runtime.block_on(async {
        tokio::select! {
            biased;
            () = signals.end() => None,
            session = HandoverSession::start(args.handover.as_deref()) => Some(session),
        }
    });
    let Some(session) = session else { return Ok(log_early_end()) };
    let mut session = session.map_err(|error| handover_failure(args.handover.as_deref(), &error))?;
    let schemes: Vec<_> =
        config.listen.iter().map(|listen| if listen.tls.is_some() { "https" } else { "http" }).collect();
    let inherited = session.inherit(inherited);
    let started = Gateway::start_on(config, args.common.workers(), inherited);
    let gateway = started.inspect_err(|_| session.give_up())?;
    if runtime.block_on(signals.has_end_signal()) {
        drop(gateway);
        session.give_up();
        return Ok(log_early_end());
    }
    gateway.use_state_file(args.state.as_deref().map(StateFile::read));
    args.name.iter().for_each(|name| gateway.set_name(name.clone()));
    let taken = runtime.block_on(session.take_over(&gateway));
    taken.map_err(|error| handover_failure(args.handover.as_deref(), &error))?;
    let reloader = prepare_reloads(&gateway);
    gateway.serve();
    for (address, scheme) in gateway.addresses().iter().zip(schemes) {
        tracing::info!("listening on {}", url(scheme, address));
    }
    let of_service = [("grpc", gateway.service_grpc_address()), ("http", gateway.service_http_address())];
    for (scheme, address) in of_service.into_iter().filter_map(|(scheme, address)| Some((scheme, address?))) {
        tracing::info!("rate limit service on {}", url(scheme, &address));
    }
    if let Some(address) = gateway.admin_address() {
        tracing::info!("admin on {}", url("http", address));
    }
    notify("READY=1");
    Ok(Some((gateway, session, reloader)))
}

fn log_early_end<T>() -> Option<T> {
    tracing::info!("received a signal before serving, exiting");
    None
}

fn handover_failure(path: Option<&Path>, error: &io::Error) -> Failure {
    let path = path.unwrap_or(Path::new("")).display();
    format!("cannot use the `--handover` socket {path}: {error}").into()
}

fn url(scheme: &str, address: &ListenAddress) -> String {
    address.tcp().map_or_else(|| address.to_string(), |address| format!("{scheme}://{address}"))
}

fn report_failure(error: &dyn std::fmt::Display) -> u8 {
    print_error(error);
    2
}

fn print_error(error: &dyn std::fmt::Display) {
    // If standard error is closed, there is nowhere to report it.
    _ = writeln!(io::stderr(), "tidegate: {error}");
}
