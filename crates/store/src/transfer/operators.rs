//! The data of operators in a state: overrides and the audit list.

use serde::{Deserialize, Serialize};

use super::{Line, MAX_STATE, SentState, StoreState};
use crate::{MAX_OVERRIDES, StoredOverride};

/// The data of operators that a gateway holds. Gateways restore it after the store has lost it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorData {
    /// The overrides and the records of removed ones.
    pub overrides: Vec<StoredOverride>,
    /// The entries of the audit list, as JSON, the oldest first.
    pub audit: Vec<String>,
}

impl StoreState {
    /// Returns the data of operators of a state.
    pub fn operators(&self) -> OperatorData {
        let mut data = OperatorData::default();
        for line in self.lines().flatten() {
            match line {
                Line::Override(entry) if data.overrides.len() < 2 * MAX_OVERRIDES => data.overrides.push(entry),
                Line::Audit(entry) => data.audit.push(entry),
                _ => {}
            }
        }
        data
    }
}

impl SentState {
    /// Adds the data of operators.
    pub(super) fn add_operators(&mut self, data: &OperatorData) {
        let overrides = data.overrides.iter().cloned().map(Line::Override);
        let lines = overrides.chain(data.audit.iter().cloned().map(Line::Audit));
        let left_out = lines.filter(|line| !line.write(&mut self.bytes, MAX_STATE)).count();
        if left_out > 0 {
            tracing::warn!(entries = left_out, "some overrides or audit entries are not handed over");
        }
    }
}
