//! The data of operators that a gateway holds, and passes on to the next process: overrides and the audit list.

use std::sync::Arc;

use super::Gateway;
use crate::admin::Admin;
use tidegate_layer::layer::{KnownOverrides, RateLimitLayer};
use tidegate_store::transfer::OperatorData;

/// The data of operators of a running gateway. Clones have the same data.
#[derive(Clone, Debug)]
pub(crate) struct Operators {
    layer: RateLimitLayer,
    admin: Admin,
}

/// A version of the data.
#[derive(Clone, Debug)]
pub(super) struct OperatorsVersion {
    overrides: Arc<KnownOverrides>,
    audit: u64,
}

// === impl OperatorsVersion ===

impl PartialEq for OperatorsVersion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.overrides, &other.overrides) && self.audit == other.audit
    }
}

// === impl Operators ===

impl Operators {
    pub(super) fn new(layer: RateLimitLayer, admin: Admin) -> Self {
        Self { layer, admin }
    }

    /// Returns a copy of the data.
    pub(crate) fn data(&self) -> OperatorData {
        let overrides = self.layer.overrides().held().cloned().collect();
        OperatorData { overrides, audit: self.admin.audit_entries() }
    }

    /// Returns a value that differs after a change of the data.
    pub(super) fn version(&self) -> OperatorsVersion {
        OperatorsVersion { overrides: self.layer.overrides(), audit: self.admin.audit_version() }
    }

    /// Adds the data of another process. `source` names where the data is from, for the log.
    pub(super) fn hold(&self, data: &OperatorData, source: &str) {
        if data == &OperatorData::default() {
            return;
        }
        let overrides = self.layer.hold_overrides(&data.overrides);
        self.admin.hold_audit(&data.audit);
        tracing::info!(overrides, audit = data.audit.len(), source, "took over overrides and audit entries");
    }
}

// === impl Gateway ===

impl Gateway {
    /// Returns the data of operators.
    pub(crate) fn operators(&self) -> Operators {
        self.operators.clone()
    }
}
