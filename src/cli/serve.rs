//! Serves until a signal arrives or a successor takes over, and then drains.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::ServeArgs;
use super::handover_session::HandoverSession;
use super::logging::Logs;
use super::notify::{notify, notify_reloading};
use super::signals::{Received, Signals};
use crate::gateway::handover::{HandoverOutcome, ReleasedSuccessor, Successor};
use crate::gateway::{FileReloader, Gateway, Operators, ReloadTrigger};
use tidegate_store::Store;

/// The files that SIGHUP reopens and reloads.
#[derive(Debug)]
pub(super) struct OnHangUp<'l> {
    pub(super) logs: &'l Logs,
    /// `None` if there is no rule file.
    pub(super) rules: Option<FileReloader>,
}

/// The durations of a drain.
#[derive(Clone, Copy, Debug)]
struct Drain {
    delay: Duration,
    timeout: Duration,
}

/// Serves until a signal arrives or a successor takes over, and then drains. A second signal ends the gateway at once.
/// SIGHUP reopens the access log, checks certificate files, and reloads the rules.
///
/// # Errors
/// A thread of the gateway failed, or a second signal was received.
pub(super) async fn serve(
    gateway: Gateway,
    args: &ServeArgs,
    mut signals: Signals,
    mut session: HandoverSession,
    hangup: OnHangUp<'_>,
) -> io::Result<()> {
    let (sockets, failed) = (gateway.sockets(), gateway.failed());
    let (stop, stopped) = oneshot::channel();
    let (outcome, has_end_signal) =
        wait_for_end(&gateway, session.run(&sockets, stopped), stop, &mut signals, &hangup).await?;
    drop(session);
    notify("STOPPING=1");
    // Clients of a thread that has ended get no responses, so this drain does not delay.
    let delay = if *failed.borrow() { Duration::ZERO } else { args.drain_delay };
    let drained = Drain { delay, timeout: args.drain_timeout }.run(gateway, outcome);
    wait_for_drain(drained, has_end_signal, signals, hangup.logs).await
}

/// Waits until a successor takes over, or a signal or a failed thread ends the `handover`. Also returns `true` if one
/// of these has ended it.
///
/// # Errors
/// A second signal was received.
async fn wait_for_end(
    gateway: &Gateway,
    handover: impl Future<Output = HandoverOutcome>,
    stop: oneshot::Sender<()>,
    signals: &mut Signals,
    hangup: &OnHangUp<'_>,
) -> io::Result<(HandoverOutcome, bool)> {
    let (mut stop, mut failed) = (Some(stop), gateway.failed());
    // A signal does not cancel a handover, because the successor may already have the sockets.
    let mut handover = pin!(handover);
    loop {
        tokio::select! {
            outcome = &mut handover => return Ok((outcome, stop.is_none())),
            Ok(_) = failed.wait_for(|failed| *failed), if stop.is_some() => {
                stop.take().into_iter().for_each(|stop| _ = stop.send(()));
            }
            received = signals.next() => match (received, stop.take()) {
                (Received::HangUp, kept) => {
                    stop = kept;
                    hangup.run(gateway);
                }
                (Received::End, Some(stop)) => _ = stop.send(()),
                (Received::End, None) => return Err(second_signal()),
            }
        }
    }
}

/// Waits until the gateway has drained. `has_end_signal` is `true` if a signal has started the drain.
///
/// # Errors
/// A thread of the gateway failed, or a second signal was received.
async fn wait_for_drain(
    drained: impl Future<Output = io::Result<()>>,
    mut has_end_signal: bool,
    mut signals: Signals,
    logs: &Logs,
) -> io::Result<()> {
    let mut drained = pin!(drained);
    loop {
        tokio::select! {
            drained = &mut drained => return drained,
            received = signals.next() => match received {
                Received::HangUp => logs.reopen(),
                Received::End if has_end_signal => return Err(second_signal()),
                Received::End => {
                    has_end_signal = true;
                    tracing::info!("already draining because a successor serves, the next signal ends this process");
                }
            }
        }
    }
}

fn second_signal() -> io::Error {
    io::Error::other("ended by a second signal")
}

// === impl OnHangUp ===

impl OnHangUp<'_> {
    /// Reopens the access log, checks certificate files, and reloads the rules. Notifies systemd of the start and the
    /// end of the reload.
    fn run(&self, gateway: &Gateway) {
        tracing::info!("received SIGHUP: reopening the access log, checking certificate files and reloading rules");
        notify_reloading();
        self.logs.reopen();
        gateway.check_certificates();
        let Some(rules) = self.rules.clone() else { return notify("READY=1") };
        drop(spawn_blocking(move || {
            _ = rules.reload(ReloadTrigger::Signal); // logs the result
            notify("READY=1");
        }));
    }
}

// === impl Drain ===

impl Drain {
    async fn run(self, gateway: Gateway, outcome: HandoverOutcome) -> io::Result<()> {
        let successor = match outcome {
            HandoverOutcome::TakenOver(successor) => return self.drain_after_handover(gateway, successor).await,
            HandoverOutcome::Stopped(successor) => successor,
        };
        tracing::info!("draining");
        gateway.fail_readiness();
        let end_of_delay = Instant::now() + self.delay;
        let starting = match successor {
            None => None,
            Some(successor) => match timeout_at(end_of_delay, successor.wait_until_ready()).await {
                Ok(Ok(())) => return self.drain_after_handover(gateway, successor).await,
                Ok(Err(error)) => {
                    log_failure(successor, &error);
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

    /// Drains after the successor is ready to take over.
    async fn drain_after_handover(self, gateway: Gateway, successor: Successor) -> io::Result<()> {
        tracing::info!("successor serves, draining");
        let (store, operators) = (gateway.store(), gateway.operators());
        release(&successor, &store, operators).await;
        let successor = successor.into_released();
        let drained = spawn_blocking(move || gateway.drain_after_handover(self.timeout)).await;
        send_last_grants(&successor, &store).await;
        drained.map_err(io::Error::other)?
    }

    /// Drains while the successor is still starting. At the end, the successor owns the sockets.
    async fn drain_during_start(self, gateway: Gateway, successor: Successor) -> io::Result<()> {
        let (store, operators) = (gateway.store(), gateway.operators());
        let mut drained = spawn_blocking(move || gateway.drain_after_handover(self.timeout));
        let ready = tokio::select! {
            drained = &mut drained => {
                // The successor reads the state and its release when it has started.
                release(&successor, &store, operators).await;
                return drained.map_err(io::Error::other)?;
            }
            ready = successor.wait_until_ready() => ready,
        };
        if let Err(error) = ready {
            log_failure(successor, &error);
            return drained.await.map_err(io::Error::other)?;
        }
        release(&successor, &store, operators).await;
        let (successor, drained) = (successor.into_released(), drained.await);
        send_last_grants(&successor, &store).await;
        drained.map_err(io::Error::other)?
    }
}

/// Sends the state of the store to the successor, and then the message that lets it serve.
async fn release(successor: &Successor, store: &Store, operators: Operators) {
    let exporting = store.clone();
    let state = spawn_blocking(move || exporting.begin_handover(&operators.data())).await;
    let sent = match &state {
        Ok(state) => successor.send_state(&state.bytes).await,
        Err(_) => Err(io::Error::other("cannot export the state")),
    };
    match (successor.release().await, sent, state) {
        (Ok(()), Ok(()), Ok(state)) => store.finish_handover(&state),
        (Ok(()), Err(error), _) => tracing::warn!(%error, "successor did not receive the state and starts without it"),
        (Err(error), ..) => tracing::warn!(%error, "successor did not receive its release"),
        (Ok(()), Ok(()), Err(_)) => {}
    }
}

/// Sends the permits that this gateway granted locally during its drain, so that the successor charges them.
async fn send_last_grants(successor: &ReleasedSuccessor, store: &Store) {
    let Some(grants) = store.last_grants() else { return };
    if let Err(error) = successor.send_last_state(&grants.bytes).await {
        tracing::warn!(%error, owed = store.owed_permits(), "successor did not receive the debts of this gateway");
    }
}

fn log_failure(successor: Successor, error: &io::Error) {
    tracing::warn!(%error, "successor failed before it took over, draining without a successor");
    successor.fail();
}
