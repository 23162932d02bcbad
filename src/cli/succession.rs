//! Takes the place of another gateway, and hands over to a successor.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::gateway::handover::{Answer, Draining, Handover, Outcome, Predecessor};
use crate::gateway::{Gateway, Inherited, Listening};
use crate::store::Store;

/// The predecessor and the socket for successors, if `--handover` names a socket.
#[derive(Debug, Default)]
pub(super) struct Succession {
    predecessor: Option<Predecessor>,
    handover: Option<Handover>,
}

/// Has the whole share of each limit when the predecessor has ended, and takes over what it still owes.
async fn wait_for_end(predecessor: Draining, store: Store) {
    let last = predecessor.end().await;
    store.predecessor_ended(last.as_ref());
}

impl Succession {
    /// Asks the gateway that listens at `path` for its sockets. If no process listens there, this one does.
    ///
    /// # Errors
    /// The process there does not hand over, or the file there is not a socket.
    pub(super) async fn begin(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let predecessor = Predecessor::ask(path).await?;
        let handover = if predecessor.is_none() { Some(Handover::listen(path)?) } else { None };
        Ok(Self { predecessor, handover })
    }

    /// Takes the predecessor's sockets.
    pub(super) fn inherit(&mut self, inherited: Inherited) -> Inherited {
        match &mut self.predecessor {
            Some(predecessor) => inherited.and_of_predecessor(predecessor.take_sockets()),
            None => inherited,
        }
    }

    /// Does not take over: the predecessor serves on.
    pub(super) fn give_up(&mut self) {
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.give_up();
        }
    }

    /// Takes over from the predecessor, since this gateway can serve. Must not be cancelled.
    ///
    /// # Errors
    /// The predecessor serves on, so this gateway must not.
    pub(super) async fn take_over(&mut self, gateway: &Gateway) -> io::Result<()> {
        let Some(predecessor) = self.predecessor.take() else { return Ok(()) };
        let (answer, handover, draining) = predecessor.take_over().await?;
        match answer {
            Answer::Releases(state) => {
                state.iter().for_each(|state| gateway.take_over(state));
                tracing::info!("took over from a gateway, which drains");
            }
            Answer::HasEnded => tracing::warn!("took over from a gateway that has ended without a drain"),
            Answer::Fails(error) => tracing::warn!(%error, "took over from a gateway that does not drain: end it"),
        }
        tokio::spawn(wait_for_end(draining, gateway.store()));
        match handover {
            Ok(handover) => self.handover = Some(handover),
            Err(error) => tracing::warn!(%error, "cannot hand over to a successor"),
        }
        Ok(())
    }

    /// Hands these sockets over to a successor; returns when one takes over, or at `stop`. Must not be cancelled.
    pub(super) async fn run(&mut self, sockets: &Arc<[Listening]>, stop: oneshot::Receiver<()>) -> Outcome {
        if let Some(handover) = &mut self.handover {
            return handover.run(sockets, stop).await;
        }
        _ = stop.await;
        Outcome::Stopped(None)
    }
}
