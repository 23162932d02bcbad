//! Signals that end the gateway or make it reopen files.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::yield_now;

/// Handlers of SIGTERM, SIGINT and SIGHUP. Before they are installed, each of these signals ends the process at once.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
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
            Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hangup: signal(SignalKind::hangup())?,
            }
        };
        Ok((runtime, signals))
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Received {
        tokio::select! {
            _ = self.terminate.recv() => Received::End,
            _ = self.interrupt.recv() => Received::End,
            _ = self.hangup.recv() => Received::HangUp,
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
