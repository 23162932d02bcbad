//! Takes over from a predecessor, and hands over to a successor.

use std::io;
use std::path::Path;

use tokio::sync::oneshot;

use crate::gateway::handover::{DrainingPredecessor, Handover, HandoverOutcome, Predecessor, TakeOverReply};
use crate::gateway::{CurrentSockets, Gateway, InheritedSockets};
use tidegate_store::Store;

/// The predecessor and the handover socket, if `--handover` is set.
#[derive(Debug, Default)]
pub(super) struct HandoverSession {
    predecessor: Option<Predecessor>,
    handover: Option<Handover>,
}

/// When the predecessor has ended, uses the full share of each limit and charges the permits that the predecessor owes.
async fn wait_for_end(predecessor: DrainingPredecessor, store: Store) {
    let last = predecessor.wait_for_end().await;
    store.predecessor_ended(last.as_ref());
}

impl HandoverSession {
    /// Requests the sockets of the gateway that listens on the Unix socket `path`. If no process listens there, listens
    /// for a successor.
    ///
    /// # Errors
    /// The other process does not hand over, or the path is not a socket.
    pub(super) async fn start(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let predecessor = Predecessor::connect(path).await?;
        let handover = if predecessor.is_none() { Some(Handover::listen(path)?) } else { None };
        Ok(Self { predecessor, handover })
    }

    /// Adds the predecessor's sockets to the inherited ones.
    pub(super) fn inherit(&mut self, inherited: InheritedSockets) -> InheritedSockets {
        match &mut self.predecessor {
            Some(predecessor) => inherited.with_predecessor(predecessor.take_sockets()),
            None => inherited,
        }
    }

    /// Abandons the handover: the predecessor continues to serve.
    pub(super) fn give_up(&mut self) {
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.give_up();
        }
    }

    /// Takes over from the predecessor, when this gateway is ready to serve. Must not be cancelled.
    ///
    /// # Errors
    /// The predecessor continues to serve, so this gateway must not serve.
    pub(super) async fn take_over(&mut self, gateway: &Gateway) -> io::Result<()> {
        let Some(predecessor) = self.predecessor.take() else { return Ok(()) };
        let (reply, handover, draining) = predecessor.take_over().await?;
        match reply {
            TakeOverReply::Released(state) => {
                state.iter().for_each(|state| gateway.restore_state(state));
                tracing::info!("took over from the previous gateway, which drains");
            }
            TakeOverReply::Ended => tracing::warn!("took over from the previous gateway, which exited without a drain"),
            TakeOverReply::Failed(error) => {
                tracing::warn!(%error, "took over from the previous gateway, but it does not drain: terminate it");
            }
        }
        tokio::spawn(wait_for_end(draining, gateway.store()));
        match handover {
            Ok(handover) => self.handover = Some(handover),
            Err(error) => tracing::warn!(%error, "cannot listen for a successor"),
        }
        Ok(())
    }

    /// Waits until a successor takes over the sockets, or until `stop`. Must not be cancelled.
    pub(super) async fn run(&mut self, sockets: &CurrentSockets, stop: oneshot::Receiver<()>) -> HandoverOutcome {
        if let Some(handover) = &mut self.handover {
            return handover.run(sockets, stop).await;
        }
        _ = stop.await;
        HandoverOutcome::Stopped(None)
    }
}
