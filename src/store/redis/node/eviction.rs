//! Whether a Redis may evict buckets for want of memory, which operators are told of once.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{RedisResult, cmd};

use crate::store::settings::RedisUrl;

/// Whether a Redis has been asked what it evicts.
#[derive(Debug, Default)]
pub(super) struct Eviction {
    is_known: AtomicBool,
}

impl Eviction {
    /// Asks, unless it has answered before, and warns if permits in use may vanish. A Redis that may not tell is no error.
    pub(super) async fn look(&self, url: &RedisUrl, redis: &mut MultiplexedConnection) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let answer: RedisResult<String> = cmd("INFO").arg("memory").query_async(redis).await;
        if answer.as_ref().is_err_and(|error| error.code().is_none()) || self.is_known.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(policy) = answer.as_deref().ok().and_then(evicts) {
            tracing::warn!(%url, policy, "store may evict buckets with permits in use: its maxmemory-policy should be noeviction");
        }
    }
}

/// The policy by which it evicts keys with a time to live; none if it does not.
fn evicts(memory: &str) -> Option<&str> {
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
        assert_eq!(evicts(&told("1000", "allkeys-lru")), Some("allkeys-lru"));
        assert_eq!(evicts(&told("1000", "noeviction")), None);
        assert_eq!(evicts(&told("0", "allkeys-lru")), None);
        assert_eq!(evicts(""), None);
    }
}
