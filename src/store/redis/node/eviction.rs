//! Whether a Redis may evict buckets for want of memory, which operators are told of once.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{RedisResult, cmd};

use crate::store::settings::RedisUrl;

/// Whether a Redis has been asked what it eviction_policy.
#[derive(Debug, Default)]
pub(super) struct EvictionCheck {
    is_known: AtomicBool,
}

impl EvictionCheck {
    /// Asks, unless it has answered before, and warns if permits in use may vanish. A Redis that may not tell is no error.
    pub(super) async fn warn_once(&self, url: &RedisUrl, redis: &mut MultiplexedConnection) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let answer: RedisResult<String> = cmd("INFO").arg("memory").query_async(redis).await;
        if answer.as_ref().is_err_and(|error| error.code().is_none()) || self.is_known.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(policy) = answer.as_deref().ok().and_then(eviction_policy) {
            tracing::warn!(%url, policy, "store may evict buckets with permits in use: its maxmemory-policy should be noeviction");
        }
    }
}

/// The policy by which it eviction_policy keys with a time to live; none if it does not.
fn eviction_policy(memory: &str) -> Option<&str> {
    let of = |name: &str| memory.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_bounded = of("maxmemory:").is_some_and(|bytes| bytes != "0");
    of("maxmemory_policy:").filter(|policy| is_bounded && *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_evicts_if_it_has_a_bound_and_a_policy_to_keep_it() {
        let told = |bytes, policy| format!("# Memory\r\nmaxmemory:{bytes}\r\nmaxmemory_policy:{policy}\r\n");
        assert_eq!(eviction_policy(&told("1000", "allkeys-lru")), Some("allkeys-lru"));
        assert_eq!(eviction_policy(&told("1000", "noeviction")), None);
        assert_eq!(eviction_policy(&told("0", "allkeys-lru")), None);
        assert_eq!(eviction_policy(""), None);
    }
}
