//! Opens stores in Redis from code: [`Store::redis`] and its builder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{Store, StoreOpenError};
use tidegate_metrics::Metrics;
use tidegate_rules::settings::store::{KeySecret, RedisSettings, RedisTls, RedisUrl, SentinelSettings, StoreSettings};
use tidegate_rules::settings::tls::TlsIdentity;

/// Builds a store in Redis; see [`Store::redis_builder`].
#[derive(Debug)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct RedisStoreBuilder {
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
    /// Opens the store in the Redis at this URL: `redis://[user:password@]host[:port][/database]`, `rediss://` for
    /// TLS, or `unix:///path`. It connects at its first use.
    ///
    /// # Errors
    /// The URL is not valid, or needs the feature `tls`.
    pub fn redis(url: &str) -> Result<Self, StoreOpenError> {
        Self::redis_builder(url).open()
    }

    /// Returns a builder for a store in the Redis at this URL.
    pub fn redis_builder(url: &str) -> RedisStoreBuilder {
        let (timeout, pool_size) = (StoreSettings::DEFAULT_TIMEOUT, StoreSettings::DEFAULT_POOL_SIZE);
        let (sentinel, cluster, tls, password_file, prefix) = Default::default();
        let url = RedisUrl::new(url.to_owned());
        RedisStoreBuilder {
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

// === impl RedisStoreBuilder ===

impl RedisStoreBuilder {
    /// Queries these sentinels for the master. The host of the store's URL is then the name of the master, as in
    /// `redis://user@mymaster/2`. The URL of each sentinel needs a port.
    pub fn sentinels<'u>(self, urls: impl IntoIterator<Item = &'u str>) -> Self {
        let urls = urls.into_iter().map(|url| RedisUrl::new(url.to_owned())).collect();
        self.with_sentinel(|sentinel| sentinel.urls = urls)
    }

    /// Sets the file with the password of the sentinels, if their URLs have none. The file is read for each connection.
    pub fn sentinel_password_file(self, path: impl Into<PathBuf>) -> Self {
        self.with_sentinel(|sentinel| sentinel.password_file = Some(path.into()))
    }

    /// Sets the file with the trust anchors for sentinels with `rediss://`. By default the system's trust anchors.
    pub fn sentinel_ca_file(self, path: impl Into<PathBuf>) -> Self {
        self.with_sentinel(|sentinel| sentinel.tls.ca = Some(path.into()))
    }

    /// Sets the files with the client certificate for sentinels with `rediss://`, and with its private key.
    pub fn sentinel_client_certificate(self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let identity = TlsIdentity { cert: cert.into(), key: key.into() };
        self.with_sentinel(|sentinel| sentinel.tls.identity = Some(identity))
    }

    fn with_sentinel(mut self, change: impl FnOnce(&mut SentinelSettings)) -> Self {
        change(self.sentinel.get_or_insert_default());
        self
    }

    /// Connects to a Redis Cluster. The store's URL names one node; `others` are further nodes to query when that node
    /// is unreachable. Any node knows all others.
    pub fn cluster<'u>(self, others: impl IntoIterator<Item = &'u str>) -> Self {
        let others = others.into_iter().map(|url| RedisUrl::new(url.to_owned()));
        Self { cluster: std::iter::once(self.url.clone()).chain(others).collect(), ..self }
    }

    /// Sets the file with the trust anchors for `rediss://`. By default the system's trust anchors.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls.ca = Some(path.into());
        self
    }

    /// Sets the files with the client certificate for `rediss://`, and with its private key.
    pub fn client_certificate(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.identity = Some(TlsIdentity { cert: cert.into(), key: key.into() });
        self
    }

    /// Sets the file with the password, if the URL has none. The file is read for each connection, without the end of
    /// its last line.
    pub fn password_file(self, path: impl Into<PathBuf>) -> Self {
        Self { password_file: Some(path.into()), ..self }
    }

    /// Sets the longest time for a decision, including queueing, connecting and the reply. By default 50 ms.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the prefix of every key, inside its hash tag: letters, digits, `.`, `_`, `-` and `:`.
    pub fn prefix(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Sets the number of connections for decisions that each worker keeps open, at least one. By default one.
    pub fn pool_size(self, pool_size: usize) -> Self {
        Self { pool_size, ..self }
    }

    /// Sets the secret of the client hashes: the same text as `key_secret` in a rule file. By default the secret is
    /// generated once and stored in Redis.
    pub fn key_secret(self, secret: impl AsRef<[u8]>) -> Self {
        Self { key_secret: Some(KeySecret::derive(secret.as_ref())), ..self }
    }

    /// Sets the metrics that the store counts in.
    pub fn metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Opens the store. It connects at its first use, and opens even if Redis is unreachable.
    ///
    /// # Errors
    /// The URL is not valid, or the prefix would move keys to other hash slots of a cluster.
    pub fn open(self) -> Result<Store, StoreOpenError> {
        let bad = |why: String| StoreOpenError(self.url.clone(), why);
        let url = RedisUrl::parse(self.url.expose()).map_err(|fault| bad(format!("its URL {fault}")))?;
        if !self.prefix.bytes().all(is_prefix_byte) {
            return Err(bad(format!("prefix `{}` may contain only letters, digits and `._-:`", self.prefix)));
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
    use deadpool_redis::redis::IntoConnectionInfo;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_url_is_an_error_without_its_password() {
        for (url, message) in [
            (
                "db:6379",
                "store `db:6379` cannot be opened: its URL does not start with `redis://`, `rediss://` or `unix://`",
            ),
            ("redis://:hush@", "store `redis://***@` cannot be opened: its URL has no host"),
            (
                ":hush@db",
                "store `***@db` cannot be opened: its URL does not start with `redis://`, `rediss://` or `unix://`",
            ),
        ] {
            assert_eq!(Store::redis(url).expect_err(url).to_string(), message);
        }
    }

    #[test]
    fn url_of_a_master_encodes_user_and_password() {
        let url = RedisUrl::for_master("my_master.1", Some("ga/te"), Some("h@u:s?h%"), Some(2), false);
        let url = RedisUrl::parse(url.expose()).expect("an address");
        let info = url.expose().into_connection_info().expect("one that clients understand");
        let redis = info.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("ga/te"), Some("h@u:s?h%"), 2));
        assert_eq!(info.addr().to_string(), "my_master.1:6379");
        assert_eq!(RedisUrl::for_master("m", None, None, None, true).expose(), "rediss://m");
    }

    proptest! {
        /// The client of Redis accepts all URLs that the rule file accepts.
        #[test]
        fn valid_url_is_valid_for_the_client(
            login in "((a|%41|%ff|:|\\PC){0,3}@)?",
            host in "(db|0\\.0\\.0\\.0|0|1\\.2\\.3\\.4|999\\.1\\.1|\\[::\\]|\\[::1\\]|[-a-z_.\\[\\]]{0,3})",
            rest in "(:(0|6379|65536|\\+1))?(/(|7|\\+7|-7|65536|x))?(\\?.{0,2})?",
            socket in "/?[a-z%/0-9 ]{0,4}(\\?(user=[%a]{0,3}|db=(1|x|\\+2))?)?",
        ) {
            for url in [format!("redis://{login}{host}{rest}"), format!("unix://{socket}")] {
                if RedisUrl::parse(&url).is_ok() {
                    prop_assert!(url.as_str().into_connection_info().is_ok(), "{}", url);
                }
            }
        }
    }

    #[test]
    fn invalid_sentinel_settings_are_an_error() {
        let open = |master, urls: &[&str]| Store::redis_builder(master).sentinels(urls.iter().copied()).open();
        assert!(open("redis://:hush@limits/2", &["redis://:hush@s1:26379", "redis://s2:26379"]).is_ok());
        for (master, urls, fault) in [
            ("redis://limits", &["redis://:hush@s1"][..], "the URL of a sentinel has no port"),
            ("redis://limits", &[], "at least one sentinel"),
            ("unix:///redis.sock", &["redis://s1:26379"], "name of a master"),
        ] {
            let message = open(master, urls).expect_err(fault).to_string();
            assert!(message.contains(fault) && !message.contains("hush"), "{message}");
        }
    }

    #[test]
    fn prefix_with_braces_is_an_error() {
        let error = Store::redis_builder("redis://db").prefix("{a}").open().expect_err("a prefix with braces");
        assert!(error.to_string().contains("prefix `{a}`"), "{error}");
        assert!(Store::redis_builder("redis://db").prefix("billing:").open().is_ok());
    }
}
