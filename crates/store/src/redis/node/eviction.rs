//! Warns once if Redis may evict buckets when it runs out of memory.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{RedisResult, cmd};

use tidegate_rules::settings::store::RedisUrl;

/// Checks the eviction policy of a Redis, once.
#[derive(Debug, Default)]
pub(super) struct EvictionCheck {
    is_known: AtomicBool,
}

impl EvictionCheck {
    /// Reads the policy until Redis has returned it, and warns if Redis may evict permits in use. Ignores a missing
    /// permission.
    pub(super) async fn warn_once(&self, url: &RedisUrl, redis: &mut MultiplexedConnection) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let answer: RedisResult<String> = cmd("INFO").arg("memory").query_async(redis).await;
        if answer.as_ref().is_err_and(|error| error.code().is_none()) || self.is_known.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(policy) = answer.as_deref().ok().and_then(eviction_policy) {
            tracing::warn!(
                %url,
                policy,
                "store may evict buckets with permits in use: set maxmemory-policy to noeviction"
            );
        }
    }
}

/// Returns the policy by which Redis evicts keys with a time to live, if it does.
fn eviction_policy(memory: &str) -> Option<&str> {
    let field = |name: &str| memory.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_bounded = field("maxmemory:").is_some_and(|bytes| bytes != "0");
    field("maxmemory_policy:").filter(|policy| is_bounded && *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_evicts_with_maxmemory_and_a_policy() {
        let info = |bytes, policy| format!("# Memory\r\nmaxmemory:{bytes}\r\nmaxmemory_policy:{policy}\r\n");
        assert_eq!(eviction_policy(&info("1000", "allkeys-lru")), Some("allkeys-lru"));
        assert_eq!(eviction_policy(&info("1000", "noeviction")), None);
        assert_eq!(eviction_policy(&info("0", "allkeys-lru")), None);
        assert_eq!(eviction_policy(""), None);
    }
}
