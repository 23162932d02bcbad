//! Opening a store from code: [`Store::memory`] and [`Store::redis`], and what may be said beside them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::settings::{KeySecret, RedisSettings, RedisTls, RedisUrl, SentinelSettings, StoreSettings};
use super::{Memory, OpenError, Store};
use crate::clock::{Clock, SystemClock};
use crate::metrics::Metrics;

/// A store in this process, before it is opened; made by [`Store::memory_builder`].
#[derive(Debug)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct MemoryBuilder {
    clock: Arc<dyn Clock>,
    key_secret: Option<KeySecret>,
    max_buckets: usize,
}

/// A store in Redis, before it is opened; made by [`Store::redis_builder`].
#[derive(Debug)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct RedisBuilder {
    url: RedisUrl,
    sentinel: Option<Box<SentinelSettings>>,
    cluster: Box<[RedisUrl]>,
    tls: RedisTls,
    password_file: Option<PathBuf>,
    timeout: Duration,
    prefix: String,
    pool_size: usize,
    key_secret: Option<KeySecret>,
    metrics: Option<Arc<Metrics>>,
}

// === impl Store ===

impl Store {
    /// An empty store in this process. Its clock is the system's, which `tokio::time::pause` stops and
    /// `tokio::time::advance` moves.
    pub fn memory() -> Self {
        Self::memory_builder().open()
    }

    /// [`memory`](Self::memory), with more to say.
    pub fn memory_builder() -> MemoryBuilder {
        MemoryBuilder { clock: Arc::new(SystemClock::new()), key_secret: None, max_buckets: Memory::MAX_BUCKETS }
    }

    /// The store in the Redis at this address: `redis://[user:password@]host[:port][/database]`, the same with `rediss://` for
    /// TLS, or `unix:///path`. It connects when it is first used.
    ///
    /// # Errors
    /// The address is none.
    pub fn redis(url: &str) -> Result<Self, OpenError> {
        Self::redis_builder(url).open()
    }

    /// [`redis`](Self::redis), with more to say.
    pub fn redis_builder(url: &str) -> RedisBuilder {
        let (timeout, pool_size) = (StoreSettings::DEFAULT_TIMEOUT, StoreSettings::DEFAULT_POOL_SIZE);
        let (sentinel, cluster, tls, password_file, prefix) = Default::default();
        let url = RedisUrl::new(url.to_owned());
        RedisBuilder {
            url,
            sentinel,
            cluster,
            tls,
            password_file,
            timeout,
            prefix,
            pool_size,
            key_secret: None,
            metrics: None,
        }
    }
}

// === impl MemoryBuilder ===

impl MemoryBuilder {
    /// What it takes for the present: a [`ManualClock`](crate::clock::ManualClock) stands still until a test moves it.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// The secret under which client values are hashed. Unless told one, the store makes one up.
    pub fn key_secret(self, secret: KeySecret) -> Self {
        Self { key_secret: Some(secret), ..self }
    }

    /// Buckets that all limits hold together at most; two million unless told otherwise.
    pub fn max_buckets(self, max_buckets: usize) -> Self {
        Self { max_buckets, ..self }
    }

    /// The store.
    pub fn open(self) -> Store {
        Store::Memory(Arc::new(Memory::bounded(self.clock, self.key_secret, self.max_buckets)))
    }
}

// === impl RedisBuilder ===

impl RedisBuilder {
    /// Asks these sentinels where the master is. The host of the store's URL is then the master's name, as in
    /// `redis://user@mymaster/2`. The URL of each sentinel needs a port.
    pub fn sentinel(self, sentinel: SentinelSettings) -> Self {
        Self { sentinel: Some(Box::new(sentinel)), ..self }
    }

    /// It is a Redis Cluster: the store's URL is that of one of its nodes, and these are those of others, in case that one is
    /// away. Any of them tells of all nodes.
    pub fn cluster<'u>(self, others: impl IntoIterator<Item = &'u str>) -> Self {
        let others = others.into_iter().map(|url| RedisUrl::new(url.to_owned()));
        Self { cluster: std::iter::once(self.url.clone()).chain(others).collect(), ..self }
    }

    /// Whom `rediss://` trusts, and what it shows of itself; what the system trusts, and nothing, unless told otherwise.
    pub fn tls(self, tls: RedisTls) -> Self {
        Self { tls, ..self }
    }

    /// The file with the password, where the URL has none. It is read for each connection, without the end of its last line.
    pub fn password_file(self, path: impl Into<PathBuf>) -> Self {
        Self { password_file: Some(path.into()), ..self }
    }

    /// The longest a decision may take, over queueing, connecting and the reply together; 50 ms unless told otherwise.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Put before every key, inside its hash tag: letters, digits, `.`, `_`, `-` and `:`.
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Connections for decisions that each worker keeps open; one unless told otherwise.
    pub fn pool_size(self, pool_size: usize) -> Self {
        Self { pool_size, ..self }
    }

    /// The secret under which client values are hashed. Unless told one, it is made once and kept in Redis.
    pub fn key_secret(self, secret: KeySecret) -> Self {
        Self { key_secret: Some(secret), ..self }
    }

    /// Where the store counts.
    pub fn metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// The store, which connects when it is first used, and starts without Redis too.
    ///
    /// # Errors
    /// The address is none, or the prefix would move keys to other slots of a cluster.
    pub fn open(self) -> Result<Store, OpenError> {
        let bad = |why: String| OpenError(self.url.clone(), why);
        let url = RedisUrl::parse(self.url.expose()).map_err(|fault| bad(format!("its URL {fault}")))?;
        if !self.prefix.bytes().all(is_prefix_byte) {
            return Err(bad(format!("prefix `{}` has other characters than letters, digits and `._-:`", self.prefix)));
        }
        let urls = self.sentinel.iter().flat_map(|sentinel| &sentinel.urls);
        if let Some(fault) = urls.filter_map(|url| RedisUrl::parse_sentinel(url.expose()).err()).next() {
            return Err(bad(format!("the URL of a sentinel {fault}")));
        }
        let mut nodes = self.cluster.iter();
        if let Some(fault) = nodes.find_map(|url| RedisUrl::parse_node(url.expose()).err()) {
            return Err(bad(format!("the URL of a node {fault}")));
        }
        let Self { sentinel, cluster, tls, password_file, timeout, prefix, key_secret, .. } = self;
        let pool_size = self.pool_size.max(1);
        let given = RedisSettings { sentinel, cluster, tls, password_file, timeout, prefix, ..RedisSettings::new(url) };
        let settings = RedisSettings { pool_size, key_secret, ..given };
        Store::open(&StoreSettings::Redis(settings), self.metrics.unwrap_or_default())
    }
}

fn is_prefix_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_an_error_without_its_password() {
        for (url, said) in [
            ("db:6379", "store `db:6379` cannot be opened: its URL is none of `redis://`, `rediss://` and `unix://`"),
            ("redis://:hush@", "store `redis://***@` cannot be opened: its URL has no host"),
            (":hush@db", "store `***@db` cannot be opened: its URL is none of `redis://`, `rediss://` and `unix://`"),
        ] {
            assert_eq!(Store::redis(url).expect_err(url).to_string(), said);
        }
    }

    #[test]
    fn sentinels_without_an_address_or_a_master_without_a_name_are_an_error() {
        let open = |master, urls: &[&str]| {
            let urls = urls.iter().map(|url| RedisUrl::new((*url).to_owned())).collect();
            Store::redis_builder(master).sentinel(SentinelSettings { urls, ..SentinelSettings::default() }).open()
        };
        assert!(open("redis://:hush@limits/2", &["redis://:hush@s1:26379", "redis://s2:26379"]).is_ok());
        for (master, urls, fault) in [
            ("redis://limits", &["redis://:hush@s1"][..], "the URL of a sentinel has no port"),
            ("redis://limits", &[], "there must be a sentinel"),
            ("unix:///redis.sock", &["redis://s1:26379"], "a name of a master"),
        ] {
            let said = open(master, urls).expect_err(fault).to_string();
            assert!(said.contains(fault) && !said.contains("hush"), "{said}");
        }
    }

    #[test]
    fn a_prefix_that_would_move_keys_is_an_error() {
        let error = Store::redis_builder("redis://db").prefix("{a}").open().expect_err("a prefix with braces");
        assert!(error.to_string().contains("prefix `{a}`"), "{error}");
        assert!(Store::redis_builder("redis://db").prefix("billing:").open().is_ok());
    }
}
