//! Signals that end the gateway or make it reopen files.

use std::future::pending;
use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::yield_now;

/// Handlers of SIGTERM, SIGINT and SIGHUP. Before they are installed, each of these signals ends the process at once.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if SIGHUP stays ignored.
    hangup: Option<Signal>,
}

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// SIGTERM or SIGINT: end the gateway.
    End,
    /// SIGHUP: sent by log rotation, by programs that renew certificates, and when a terminal closes.
    HangUp,
}

impl Signals {
    /// Installs the handlers. Returns them with the runtime that they need.
    ///
    /// # Errors
    /// The runtime or a handler cannot be created.
    pub(super) fn install() -> io::Result<(Runtime, Self)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _context = runtime.enter();
            Self::of_runtime(false)?
        };
        Ok((runtime, signals))
    }

    /// Installs the handlers of a command, which `nohup` protects from SIGHUP. Needs the context of a runtime.
    ///
    /// # Errors
    /// A handler cannot be created.
    pub(super) fn of_command() -> io::Result<Self> {
        Self::of_runtime(ignores(SignalKind::hangup()))
    }

    fn of_runtime(ignores_hangup: bool) -> io::Result<Self> {
        let hangup = (!ignores_hangup).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, hangup })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Received {
        let Self { terminate, interrupt, hangup } = self;
        let hang_up = async {
            match hangup {
                Some(hangup) => _ = hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => Received::End,
            _ = interrupt.recv() => Received::End,
            () = hang_up => Received::HangUp,
        }
    }

    /// Waits for a signal that ends the gateway. Other signals stay pending.
    pub(super) async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Returns `true` if a signal that ends the gateway has been received.
    pub(super) async fn has_end_signal(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.end() => true,
            // The runtime only reads signals while the task yields.
            () = yield_now() => false,
        }
    }
}

/// Returns `true` if the process ignores a signal. Returns `false` where the system does not show it.
fn ignores(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|ignored| (ignored >> (kind.as_raw_value() - 1)) & 1 == 1)
}
