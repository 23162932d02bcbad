//! Tests a store before a reload uses it: a typo in its address must not end the limits that all gateways share.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::{GatewayStartError, ReloadError};
use tidegate_metrics::Metrics;
use tidegate_rules::settings::store::StoreSettings;
use tidegate_store::Store;

/// The longest time until the store replies. A first connection can need longer than a decision.
const MAX_PROBE: Duration = Duration::from_secs(3);

/// The time between attempts.
const INTERVAL: Duration = Duration::from_millis(50);

/// Whether a reload accepts a store at another address that does not reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreachableStore {
    /// The reload fails.
    Reject,
    /// The gateway decides locally until the store replies.
    Accept,
}

/// Waits until all nodes of a store reply, at most [`MAX_PROBE`]. Uses its own connections and metrics, so that the store
/// in use keeps its state.
///
/// # Errors
/// A node does not reply.
pub(super) async fn probe(settings: &StoreSettings) -> Result<(), ReloadError> {
    let store = Store::open(settings, Metrics::of_gateway(&[]).into()).map_err(GatewayStartError::from)?;
    let deadline = Instant::now() + MAX_PROBE;
    while !store.is_up().await {
        if Instant::now() >= deadline {
            let cause = store.outage().unwrap_or_else(|| "no reply".to_owned());
            return Err(ReloadError::StoreUnreachable(cause));
        }
        sleep(INTERVAL).await;
    }
    Ok(())
}
