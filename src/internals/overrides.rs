//! Overrides for benchmarks.

use std::net::Ipv4Addr;

use tidegate_layer::layer::RateLimitLayer;
use tidegate_layer::overrides::{Action, Adjustment, Override, Scope, Target};
use tidegate_store::StoreError;

/// Bans this many addresses from 10.0.0.0 on, and as many clients, for an hour.
///
/// # Errors
/// The store of the layer did not reply; see [`StoreError`].
pub async fn ban_many(layer: &RateLimitLayer, count: u32) -> Result<(), StoreError> {
    let (store, scope) = (layer.store(), Scope::All);
    for number in 0..count {
        let address = Ipv4Addr::from_bits(0x0a00_0000 + number);
        for target in [Target::Network(std::net::IpAddr::V4(address).into()), Target::Hash(number.into())] {
            let one = Override {
                id: Override::id_of(Action::Ban, &scope, &target),
                action: Action::Ban,
                scope: scope.clone(),
                target,
                adjustment: Adjustment::default(),
                disconnect: false,
                until: store.now().plus_millis(3_600_000),
                reason: "a benchmark".to_owned(),
                by: "a benchmark".to_owned(),
            };
            let text = serde_json::to_string(&one).unwrap_or_default();
            _ = store.put_override(&one.id, &text, one.until, false).await?;
        }
    }
    layer.refresh_overrides().await
}
