//! Announces this gateway to the others: its name, version, rule file and health. Never a secret or a client value.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::admin::Admin;
use crate::admin::gateway_name::GatewayName;
use crate::admin::health::readiness;
use tidegate_store::MAX_FLEET_TEXT;

/// The time between announcements.
const ANNOUNCE_EVERY: Duration = Duration::from_millis(2_500);

/// The text of a gateway, as JSON. All members have bounds, and together at most [`MAX_FLEET_TEXT`] bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct GatewayText {
    pub(super) name: GatewayName,
    /// The version of the program.
    pub(super) version: String,
    /// The hash of the rule file.
    pub(super) hash: Option<String>,
    /// When the rules were applied (RFC 3339).
    pub(super) applied_at: String,
    pub(super) ready: bool,
    pub(super) draining: bool,
    /// The number of problems.
    pub(super) problems: usize,
}

impl Admin {
    /// Announces this gateway at intervals and after a change.
    pub(crate) async fn run_announcements(self) {
        loop {
            self.announce().await;
            tokio::select! {
                () = sleep(ANNOUNCE_EVERY) => {}
                () = self.fleet.changed.notified() => {}
            }
        }
    }

    /// Announces this gateway once. Without a reply, the next call does.
    async fn announce(&self) {
        let store = self.active.load_full().store.clone();
        let own = self.describe_self();
        let text = serde_json::to_string(&own).unwrap_or_default();
        if text.len() > MAX_FLEET_TEXT {
            return;
        }
        if let Ok(hashes) = store.announce_to_fleet(&text, own.hash.as_deref()).await {
            self.metrics.set_fleet_rule_hashes(hashes.unwrap_or(0));
        }
    }

    /// Returns what this gateway announces.
    pub(super) fn describe_self(&self) -> GatewayText {
        let active = self.active.load();
        let readiness = readiness(self, &active, active.store.outage().is_none());
        let config = self.status.summary(0);
        GatewayText {
            name: self.gateway_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hash: config.hash,
            applied_at: config.applied_at,
            ready: readiness.ready,
            draining: readiness.reason.is_some(),
            problems: self.find_problems().len(),
        }
    }
}
