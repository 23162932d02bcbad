//! Saves and restores the state of the store: in the file of `--state`, and during a handover.

use super::Gateway;
use super::saved_domains::SavedDomains;
use super::saved_operators::SavedOperators;
use super::state_file::StateFile;
use tidegate_store::Store;
use tidegate_store::transfer::StoreState;

impl Gateway {
    /// Assumes the number of gateways in the state file until Redis has counted them, and applies the saved overrides and the
    /// saved domains of a control plane. Keeps all files up to date.
    pub(crate) fn use_state_file(&self, file: Option<StateFile>) {
        self.layer.store().assume_gateways(file.as_ref().and_then(StateFile::gateways));
        if let Some(file) = &file {
            let saved = SavedOperators::of_state(file.path());
            self.operators.hold(&saved.read(), "the file of `--state`");
            self.control.tasks().spawn(saved.follow(self.operators.clone()));
        }
        if let Some(running) = self.reloader.0.lock().as_mut() {
            if let Some(file) = &file {
                running.use_saved_domains(SavedDomains::of_state(file.path()));
            }
            running.state_file = file;
            running.follow_gateways();
        }
    }

    /// Restores the buckets, the overrides and the audit list that the predecessor sent.
    pub(crate) fn restore_state(&self, state: &StoreState) {
        self.layer.take_over(state);
        self.operators.hold(&state.operators(), "the previous gateway");
    }

    /// Returns the store of the gateway.
    pub(crate) fn store(&self) -> Store {
        self.layer.store()
    }
}
