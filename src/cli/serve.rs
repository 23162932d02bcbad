//! A gateway that serves, until it drains because of a signal or a successor.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::RunArgs;
use super::logging::Logs;
use super::notify::notify;
use super::signals::{Received, Signals};
use super::succession::Succession;
use crate::gateway::Gateway;
use crate::gateway::handover::{Outcome, Released, Successor};
use crate::store::Store;

/// How a gateway drains.
#[derive(Clone, Copy, Debug)]
struct Drain {
    delay: Duration,
    timeout: Duration,
}

/// Serves until a signal or a successor ends it, and drains. A second signal ends it at once. SIGHUP reopens the access log
/// and re-reads certificates.
///
/// # Errors
/// The drain failed, or a second signal was received.
pub(super) async fn serve(
    gateway: Gateway,
    args: &RunArgs,
    mut signals: Signals,
    mut succession: Succession,
    logs: &Logs,
) -> io::Result<()> {
    let (stop, stopped) = oneshot::channel();
    let mut stop = Some(stop);
    let sockets = gateway.sockets();
    let outcome = {
        // A signal does not cancel a handover: the successor may have the sockets already.
        let mut handover = pin!(succession.run(&sockets, stopped));
        loop {
            tokio::select! {
                outcome = &mut handover => break outcome,
                received = signals.next() => match (received, stop.take()) {
                    (Received::HangUp, kept) => {
                        stop = kept;
                        reopen(&gateway, logs);
                    }
                    (Received::End, Some(stop)) => _ = stop.send(()),
                    (Received::End, None) => return Err(second_signal()),
                }
            }
        }
    };
    drop((sockets, succession));
    notify("STOPPING=1");
    let mut is_asked = stop.is_none();
    let mut drained = pin!(Drain { delay: args.drain_delay, timeout: args.drain_timeout }.run(gateway, outcome));
    loop {
        tokio::select! {
            drained = &mut drained => return drained,
            received = signals.next() => match received {
                Received::HangUp => logs.reopen(),
                Received::End if is_asked => return Err(second_signal()),
                Received::End => {
                    is_asked = true;
                    tracing::info!("a successor serves and this gateway drains already: a second signal ends it at once");
                }
            }
        }
    }
}

fn reopen(gateway: &Gateway, logs: &Logs) {
    let does = "the access log is reopened, and certificates are re-read; the rules stay as they are";
    tracing::info!("SIGHUP: {does}");
    logs.reopen();
    gateway.look_at_certificates();
}

fn second_signal() -> io::Error {
    io::Error::other("ended by a second signal")
}

// === impl Drain ===

impl Drain {
    async fn run(self, gateway: Gateway, outcome: Outcome) -> io::Result<()> {
        let successor = match outcome {
            Outcome::TakenOver(successor) => return self.leave(gateway, successor).await,
            Outcome::Stopped(successor) => successor,
        };
        tracing::info!("draining");
        gateway.fail_readiness();
        let end_of_delay = Instant::now() + self.delay;
        let starting = match successor {
            None => None,
            Some(successor) => match timeout_at(end_of_delay, successor.takes_over()).await {
                Ok(Ok(())) => return self.leave(gateway, successor).await,
                Ok(Err(error)) => {
                    has_failed(successor, &error);
                    None
                }
                Err(_) => Some(successor),
            },
        };
        sleep_until(end_of_delay).await;
        match starting {
            None => spawn_blocking(move || gateway.drain(self.timeout)).await.map_err(io::Error::other)?,
            Some(successor) => self.drain_during_start(gateway, successor).await,
        }
    }

    /// Drains when the successor has taken over.
    async fn leave(self, gateway: Gateway, successor: Successor) -> io::Result<()> {
        tracing::info!("a successor serves: draining");
        let store = gateway.store();
        release(&successor, &store).await;
        let successor = successor.released();
        let drained = spawn_blocking(move || gateway.leave(self.timeout)).await;
        send_last_debts(&successor, &store).await;
        drained.map_err(io::Error::other)?
    }

    /// Drains while the successor starts. At the end, the sockets are the successor's.
    async fn drain_during_start(self, gateway: Gateway, successor: Successor) -> io::Result<()> {
        let store = gateway.store();
        let mut drained = spawn_blocking(move || gateway.leave(self.timeout));
        let taken = tokio::select! {
            drained = &mut drained => {
                // The successor serves when it has started, with the state that is there to read then.
                release(&successor, &store).await;
                return drained.map_err(io::Error::other)?;
            }
            taken = successor.takes_over() => taken,
        };
        if let Err(error) = taken {
            has_failed(successor, &error);
            return drained.await.map_err(io::Error::other)?;
        }
        release(&successor, &store).await;
        let (successor, drained) = (successor.released(), drained.await);
        send_last_debts(&successor, &store).await;
        drained.map_err(io::Error::other)?
    }
}

/// Sends the state of the store, and lets the successor serve.
async fn release(successor: &Successor, store: &Store) {
    let exporting = store.clone();
    let state = spawn_blocking(move || exporting.begin_handover()).await;
    let sent = match &state {
        Ok(state) => successor.send_state(&state.bytes).await,
        Err(_) => Err(io::Error::other("the state cannot be read")),
    };
    match (successor.release().await, sent, state) {
        (Ok(()), Ok(()), Ok(state)) => store.finish_handover(&state),
        (Ok(()), Err(error), _) => tracing::warn!(%error, "the successor did not read the state: it starts without it"),
        (Err(error), ..) => tracing::warn!(%error, "the successor did not read its release"),
        (Ok(()), Ok(()), Err(_)) => {}
    }
}

/// Sends what this gateway granted locally while it drained, for the successor to charge.
async fn send_last_debts(successor: &Released, store: &Store) {
    let Some(debts) = store.last_debts() else { return };
    if let Err(error) = successor.send_last_state(&debts.bytes).await {
        tracing::warn!(%error, owed = store.owed(), "the successor did not read what this gateway owes to the store");
    }
}

fn has_failed(successor: Successor, error: &io::Error) {
    tracing::warn!(%error, "a successor failed before it took over, and this gateway ends");
    successor.fail();
}
