//! Saves and restores the state of the store: in the file of `--state`, and during a handover.

use super::Gateway;
use super::state_file::StateFile;
use tidegate_store::Store;
use tidegate_store::transfer::StoreState;

impl Gateway {
    /// Assumes the number of gateways in the state file until Redis has counted them. Keeps the file up to date.
    pub(crate) fn use_state_file(&self, file: Option<StateFile>) {
        self.layer.store().assume_gateways(file.as_ref().and_then(StateFile::gateways));
        if let Some(running) = self.reloader.0.lock().as_mut() {
            running.state_file = file;
            running.follow_gateways();
        }
    }

    /// Restores the buckets that the predecessor sent.
    pub(crate) fn restore_state(&self, state: &StoreState) {
        self.layer.take_over(state);
    }

    /// Returns the store of the gateway.
    pub(crate) fn store(&self) -> Store {
        self.layer.store()
    }
}
