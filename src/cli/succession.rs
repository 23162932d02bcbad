//! Which gateway this one takes the place of, and which one takes its own.

use std::future::pending;
use std::io;
use std::path::Path;

use crate::gateway::handover::{Handover, Predecessor};
use crate::gateway::{Gateway, Inherited};

/// Both, where `--handover` names a socket.
#[derive(Debug, Default)]
pub(super) struct Succession {
    predecessor: Option<Predecessor>,
    handover: Option<Handover>,
}

impl Succession {
    /// Asks who listens at `path` for its sockets; where nobody does, listens there.
    ///
    /// # Errors
    /// What is there does not hand over, or is no socket.
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

    /// The gateway serves: its predecessor may go.
    pub(super) async fn serves(&mut self, gateway: &mut Gateway) {
        let Some(predecessor) = self.predecessor.take() else { return };
        let (told, handover) = predecessor.release().await;
        gateway.claim_files();
        match told {
            Ok(()) => tracing::info!("took over from a gateway, which drains"),
            Err(error) => tracing::warn!(%error, "took over from a gateway that does not drain: end it"),
        }
        match handover {
            Ok(handover) => self.handover = Some(handover),
            Err(error) => tracing::warn!(%error, "cannot hand over to a successor"),
        }
    }

    /// Returns once a successor serves.
    pub(super) async fn is_over(&mut self, gateway: &Gateway) {
        match &mut self.handover {
            Some(handover) => handover.taken_over(gateway.sockets()).await,
            None => pending().await,
        }
    }
}
