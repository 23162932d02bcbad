//! Limiters, clients and late charges as they are written for another gateway.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::fallback::local_grants::{BucketGrants, LateCharge, LocalGrant};
use tidegate_limit::clock::Timestamp;
use tidegate_limit::redisson::Sharing;
use tidegate_limit::text::hex;
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_rules::charge::{ChargeKind, ClientId, Limiter};

/// The upper bounds of a limiter's name, a limiter's partitions, a late charge's buckets and a bucket's grants. No
/// gateway has more.
const MAX_NAME: usize = 1_024;
const MAX_PARTITIONS: u32 = 1_024;
const MAX_CHARGED_BUCKETS: usize = 1_024;
const MAX_GRANTS: usize = 1_024;

/// A late charge, with times in milliseconds relative to the sender's present.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SerializedLateCharge {
    id: u64,
    limiter: SerializedLimiter,
    #[serde(rename = "debts")]
    buckets: Vec<SerializedGrants>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SerializedGrants {
    client: Option<SerializedClient>,
    grants: Vec<(i64, u32)>,
    /// Whether the permits are charged in any case. Older gateways do not write it.
    #[serde(rename = "settled", default, skip_serializing_if = "std::ops::Not::not")]
    unconditional: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SerializedLimiter {
    name: String,
    mode: SerializedMode,
    rate: u32,
    interval: u64,
    algorithm: SerializedAlgorithm,
    partitions: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SerializedMode {
    #[serde(rename = "OVERALL")]
    Overall,
    #[serde(rename = "PER_CLIENT")]
    PerClient,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum SerializedAlgorithm {
    Own(Algorithm),
    Shared(SharedAlgorithm),
}

/// The algorithm of a limiter that Redisson clients use, and whose rate is in the rule file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SharedAlgorithm {
    Redisson,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SerializedClient {
    Address(String),
    Value(String),
    Hash(u128),
    Instance(String),
}

// === impl SerializedLateCharge ===

impl SerializedLateCharge {
    /// Returns `None` if there is nothing to charge, or if only Redis knows the rate of the limiter.
    pub(super) fn new(late_charge: &LateCharge, now: Timestamp) -> Option<Self> {
        let limiter = SerializedLimiter::new(&late_charge.buckets.first()?.limiter)?;
        let buckets = late_charge.buckets.iter().map(|bucket| SerializedGrants::new(bucket, now)).collect();
        Some(Self { id: late_charge.id, limiter, buckets })
    }

    /// Returns the late charge, with times by the clock that shows `now`, or `None` if it is invalid. The late charge
    /// keeps the sender's limiter, even if the rules of this gateway do not have it.
    pub(super) fn read(self, limiters: &HashMap<&str, &Arc<Limiter>>, now: Timestamp) -> Option<LateCharge> {
        let limiter = self.limiter.find(limiters)?;
        if self.buckets.len() > MAX_CHARGED_BUCKETS {
            return None;
        }
        let read = |bucket: SerializedGrants| bucket.read(&limiter, now);
        Some(LateCharge { id: self.id, buckets: self.buckets.into_iter().map(read).collect::<Option<_>>()? })
    }
}

// === impl SerializedGrants ===

impl SerializedGrants {
    fn new(bucket: &BucketGrants, now: Timestamp) -> Self {
        let ago = |at: Timestamp| at.signed_millis_since(now);
        let grants = bucket.grants.iter().map(|grant| (ago(grant.at), grant.permits)).collect();
        let unconditional = bucket.kind == ChargeKind::Unconditional;
        Self { client: bucket.client.as_ref().map(SerializedClient::new), grants, unconditional }
    }

    fn read(self, limiter: &Arc<Limiter>, now: Timestamp) -> Option<BucketGrants> {
        let client = self.client.map(SerializedClient::read);
        let has_client = matches!(client, Some(Some(_)));
        if has_client != (limiter.mode == Mode::PerClient) || self.grants.len() > MAX_GRANTS {
            return None;
        }
        let at = |ago: i64| Timestamp::from_millis(now.as_millis().saturating_add_signed(ago));
        let grants = self.grants.into_iter().map(|(ago, permits)| LocalGrant { at: at(ago), permits }).collect();
        let kind = if self.unconditional { ChargeKind::Unconditional } else { ChargeKind::Take };
        Some(BucketGrants { limiter: Arc::clone(limiter), client: client.flatten(), kind, grants })
    }
}

// === impl SerializedLimiter ===

impl SerializedLimiter {
    /// Returns `None` if only Redis knows the rate of the limiter.
    pub(super) fn new(limiter: &Limiter) -> Option<Self> {
        let quota = &limiter.quota;
        let algorithm = match quota.algorithm() {
            Algorithm::Redisson(Sharing::Configure) => SerializedAlgorithm::Shared(SharedAlgorithm::Redisson),
            Algorithm::Redisson(_) => return None,
            own => SerializedAlgorithm::Own(own),
        };
        Some(Self {
            name: limiter.name.clone(),
            mode: SerializedMode::new(limiter.mode),
            rate: quota.rate(),
            interval: quota.interval(),
            algorithm,
            partitions: limiter.partitions(),
        })
    }

    /// Returns the limiter of these that is the same, or else a new one. Returns `None` if it is invalid.
    pub(super) fn find(self, limiters: &HashMap<&str, &Arc<Limiter>>) -> Option<Arc<Limiter>> {
        let current = limiters.get(self.name.as_str());
        match current.filter(|current| Self::new(current).is_some_and(|current| current == self)) {
            Some(current) => Some(Arc::clone(current)),
            None => self.read().map(Arc::new),
        }
    }

    fn read(self) -> Option<Limiter> {
        let algorithm = match self.algorithm {
            SerializedAlgorithm::Own(own) => own,
            SerializedAlgorithm::Shared(SharedAlgorithm::Redisson) => Algorithm::Redisson(Sharing::Configure),
        };
        let quota = Quota::new(self.rate.into(), self.interval, algorithm).ok()?;
        if self.name.len() > MAX_NAME || self.partitions.is_some_and(|partitions| partitions > MAX_PARTITIONS) {
            return None;
        }
        let limiter = Limiter::new(self.name, self.mode.read(), quota);
        Some(limiter.partitioned(self.partitions.unwrap_or(1)))
    }
}

// === impl SerializedMode ===

impl SerializedMode {
    pub(super) fn new(mode: Mode) -> Self {
        match mode {
            Mode::Overall => Self::Overall,
            Mode::PerClient => Self::PerClient,
        }
    }

    pub(super) fn read(self) -> Mode {
        match self {
            Self::Overall => Mode::Overall,
            Self::PerClient => Mode::PerClient,
        }
    }
}

// === impl SerializedClient ===

impl SerializedClient {
    pub(super) fn new(client: &ClientId) -> Self {
        match client {
            ClientId::Address(network) => Self::Address(network.to_string()),
            ClientId::Value(value) => Self::Value(hex::encode(value)),
            ClientId::Hash(hash) => Self::Hash(*hash),
            ClientId::Instance(id) => Self::Instance(id.to_string()),
        }
    }

    /// Returns `None` if it is invalid.
    pub(super) fn read(self) -> Option<ClientId> {
        Some(match self {
            Self::Address(network) => ClientId::Address(network.parse().ok()?),
            Self::Value(value) => ClientId::Value(hex::decode(&value)?.into()),
            Self::Hash(hash) => ClientId::Hash(hash),
            Self::Instance(id) => ClientId::Instance(id.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gateways of other versions write and read this text.
    #[test]
    fn written_limiters_keep_their_format() {
        let algorithms = [
            r#"{"gcra":{"burst":12}}"#,
            r#""token_bucket""#,
            r#""redisson""#,
            r#"{"leaky_bucket":{"length":12,"max_wait":600000}}"#,
            r#"{"sliding_window":{"segments":6}}"#,
            r#"{"fixed_window":{"unit":"day","zone":"Europe/Rome"}}"#,
        ];
        for algorithm in algorithms {
            let start = r#"{"name":"{a}:l","mode":"OVERALL","rate":5,"interval":86400000,"algorithm":"#;
            let text = format!(r#"{start}{algorithm},"partitions":null}}"#);
            let raw: SerializedLimiter = serde_json::from_str(&text).expect("a written limiter");
            let limiter = raw.read().unwrap_or_else(|| panic!("not a limiter: {text}"));
            let raw = SerializedLimiter::new(&limiter).expect("a limiter with a rate");
            assert_eq!(serde_json::to_string(&raw).expect("a text"), text);
        }
    }
}
