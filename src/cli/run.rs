//! `tidegate run`: from a rule file to a gateway, until SIGTERM, SIGINT or a successor.

use std::io::{self, Write};
use std::path::Path;

use clap::Args;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;

use super::logging::{self, Logs};
use super::notify::notify;
use super::succession::Succession;
use super::{ConfigArg, FileArg, RunArgs};
use crate::config::{ListenAddress, LoadError};
use crate::gateway::{Gateway, Inherited};

/// The default rule file.
pub(super) const DEFAULT_FILE: &str = "config/tidegate.yaml";

/// Handlers for SIGTERM, SIGINT and SIGHUP. Before it is made, each of them ends the process at once.
#[derive(Debug)]
pub(super) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

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
            return if matches!(error, LoadError::Mistakes { .. }) { 1 } else { 2 };
        }
    };
    let logs = match logging::start(&args.common, &config.access_log) {
        Ok(logs) => logs,
        Err(error) => return could_not(&error),
    };
    for warning in &config.warnings {
        tracing::warn!("{}:{warning}", args.rules.config);
    }
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return could_not(&error),
    };
    let mut succession = match signals.runtime.block_on(Succession::begin(args.handover.as_deref())) {
        Ok(succession) => succession,
        Err(error) => {
            let path = args.handover.as_deref().unwrap_or(Path::new("")).display();
            return could_not(&format_args!("cannot use the socket of `--handover`, {path}: {error}"));
        }
    };
    let schemes: Vec<_> =
        config.listen.iter().map(|listen| if listen.tls.is_some() { "https" } else { "http" }).collect();
    let mut gateway = match Gateway::start_on(config, args.common.workers(), succession.inherit(inherited)) {
        Ok(gateway) => gateway,
        Err(error) => return could_not(&error),
    };
    for (address, scheme) in gateway.addresses().iter().zip(schemes) {
        tracing::info!("listening on {}", url(scheme, address));
    }
    if let Some(address) = gateway.admin_address() {
        tracing::info!("admin on {}", url("http", address));
    }
    notify("READY=1");
    signals.runtime.block_on(succession.serves(&mut gateway));
    until_ended(gateway, args, signals, succession, &logs)
}

fn url(scheme: &str, address: &ListenAddress) -> String {
    address.tcp().map_or_else(|| address.to_string(), |address| format!("{scheme}://{address}"))
}

/// Waits for a signal or a successor, and drains. A signal during the drain ends the process at once. SIGHUP reopens the
/// access log and has certificates looked at: log rotation sends it, who renews certificates, and a closing terminal, which must
/// not end the gateway.
pub(super) fn until_ended(
    gateway: Gateway,
    args: &RunArgs,
    signals: Signals,
    mut succession: Succession,
    logs: &Logs,
) -> u8 {
    let Signals { runtime, mut terminate, mut interrupt, mut hangup } = signals;
    let drained = runtime.block_on(async {
        let mut has_successor = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                () = succession.is_over(&gateway) => {
                    has_successor = true;
                    break;
                }
                _ = hangup.recv() => {
                    let does = "the access log's file is opened anew, and certificates are looked at; the rules stay as they are";
                    tracing::info!("SIGHUP: {does}");
                    logs.reopen();
                    gateway.look_at_certificates();
                }
            }
        }
        drop(succession);
        notify("STOPPING=1");
        let (delay, timeout) = (args.drain_delay, args.drain_timeout);
        let drain = async {
            if has_successor {
                tracing::info!("a successor serves: draining");
                return spawn_blocking(move || gateway.leave(timeout)).await.map_err(io::Error::other)?;
            }
            tracing::info!("draining");
            gateway.fail_readiness();
            tokio::time::sleep(delay).await;
            spawn_blocking(move || gateway.drain(timeout)).await.map_err(io::Error::other)?
        };
        tokio::select! {
            drained = drain => drained,
            _ = terminate.recv() => Err(io::Error::other("ended by a second signal")),
            _ = interrupt.recv() => Err(io::Error::other("ended by a second signal")),
        }
    });
    // After a second signal, does not wait for threads that still drain.
    runtime.shutdown_background();
    match drained {
        Ok(()) => 0,
        Err(error) => could_not(&error),
    }
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The runtime or a handler cannot be created.
    pub(super) fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let context = runtime.enter();
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let hangup = signal(SignalKind::hangup())?;
        drop(context);
        Ok(Self { runtime, terminate, interrupt, hangup })
    }
}

fn could_not(error: &dyn std::fmt::Display) -> u8 {
    complain(error);
    2
}

fn complain(error: &dyn std::fmt::Display) {
    // If standard error is closed, there is nowhere to report it.
    _ = writeln!(io::stderr(), "tidegate: {error}");
}
