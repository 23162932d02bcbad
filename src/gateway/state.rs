//! The state of the store for a successor, and for the next start.

use super::Gateway;
use super::state_file::StateFile;
use crate::store::Store;
use crate::store::transfer::StoreState;

impl Gateway {
    /// Assumes the number of gateways of a state file until Redis has counted them, and keeps that file up to date.
    pub(crate) fn remember(&self, file: Option<StateFile>) {
        let store = self.layer.store();
        store.assume_gateways(file.as_ref().and_then(StateFile::gateways));
        if let (Some(file), Some(counted)) = (file, store.counted_gateways()) {
            self.control.spawn(file.follow(counted));
        }
    }

    /// Takes over the limits in use from the gateway before this one.
    pub(crate) fn take_over(&self, state: &StoreState) {
        self.layer.take_over(state);
    }

    /// Where its buckets are.
    pub(crate) fn store(&self) -> Store {
        self.layer.store().clone()
    }
}
