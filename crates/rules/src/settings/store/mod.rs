//! The settings of a store.

mod names;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::tls::TlsIdentity;
use crate::json;
use tidegate_limit::random::random;
use tidegate_limit::text::hex;

pub use self::names::BucketNames;
pub use self::url::BadRedisUrl;

/// The kind of a store, and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSettings {
    /// Buckets in this process.
    Memory {
        /// The secret of the client hashes. Generated at startup if `None`.
        key_secret: Option<KeySecret>,
    },
    /// Buckets in a Redis that several gateways share.
    Redis(RedisSettings),
}

/// The settings of a store in Redis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedisSettings {
    /// `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS, or `unix:///path`. With `sentinel`, the
    /// host is the name of the master.
    #[serde(serialize_with = "json::text")]
    pub url: RedisUrl,
    /// The sentinels that know the master. Without them, the server is at `url`.
    pub sentinel: Option<Box<SentinelSettings>>,
    /// Nodes of a cluster, the first of which is at `url`; empty without a cluster. Any node knows all others.
    #[serde(serialize_with = "json::texts")]
    pub cluster: Box<[RedisUrl]>,
    /// The certificates for `rediss://`.
    #[serde(skip)]
    pub tls: RedisTls,
    /// The file with the password, if the URL has none. It is read for each connection.
    pub password_file: Option<PathBuf>,
    /// The longest time for a decision, including queueing, connecting and the reply.
    #[serde(rename = "timeout_ms", serialize_with = "json::millis")]
    pub timeout: Duration,
    /// The prefix of every key, inside the hash tag.
    pub prefix: String,
    /// The number of connections that each worker keeps open. One connection carries all requests that arrive while
    /// Redis replies; more connections make the calls smaller.
    pub pool_size: usize,
    /// The secret of the client hashes. Generated once and stored in Redis if `None`.
    #[serde(serialize_with = "json::masked")]
    pub key_secret: Option<KeySecret>,
    /// Whether a gateway is not ready while the store is unreachable.
    pub fail_readiness: bool,
    /// The minimum number of gateways for local shares: while Redis does not decide, a gateway grants at most the rate
    /// divided by `min_gateways`.
    pub min_gateways: u32,
}

/// The sentinels of a master, and how to reach them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SentinelSettings {
    /// Their URLs; at least one.
    #[serde(serialize_with = "json::texts")]
    pub urls: Vec<RedisUrl>,
    /// The file with their password, if the URL has none. It is read for each connection.
    pub password_file: Option<PathBuf>,
    /// The certificates for `rediss://`.
    #[serde(skip)]
    pub tls: RedisTls,
}

/// The PEM files for a TLS connection to Redis, read for each connection. The certificate must be valid for the host
/// in the URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// The trusted certificate authorities. By default the authorities of the system.
    pub ca: Option<PathBuf>,
    /// The client certificate and its private key.
    pub identity: Option<TlsIdentity>,
}

/// The URL of a Redis. Its `Display` and `Debug` omit the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

/// The key of the hash that replaces client values in a store. Its `Debug` omits it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeySecret([u8; 32]);

impl StoreSettings {
    /// The default deadline of a decision.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);
    /// The default number of connections of each worker.
    pub const DEFAULT_POOL_SIZE: usize = 1;

    /// Returns `true` if a store with the settings `new` has the buckets of this one.
    pub fn keeps_buckets_in(&self, new: &Self) -> bool {
        match (self, new) {
            (Self::Memory { .. }, Self::Memory { .. }) => self == new,
            (Self::Redis(old), Self::Redis(new)) => {
                let (old_servers, servers) = (old.servers(), new.servers());
                old.sentinel.is_some() == new.sentinel.is_some()
                    && servers.iter().any(|server| old_servers.contains(server))
                    && old.prefix == new.prefix
                    && old.key_secret == new.key_secret
            }
            _ => false,
        }
    }

    /// Returns `true` if a store with the settings `new` is a Redis at another address: at another URL, node or sentinel.
    pub fn moves_to(&self, new: &Self) -> bool {
        let Self::Redis(new) = new else { return false };
        let Self::Redis(old) = self else { return true };
        let sentinels = |settings: &RedisSettings| settings.sentinel.as_ref().map(|sentinel| sentinel.urls.clone());
        old.servers() != new.servers() || sentinels(old) != sentinels(new)
    }

    /// Returns the prefix and the hash tags by which this store names buckets.
    pub fn bucket_names(&self) -> BucketNames {
        match self {
            Self::Memory { .. } => BucketNames::default(),
            Self::Redis(settings) => settings.bucket_names(),
        }
    }

    /// Returns `true` if a gateway is not ready while the store is unreachable.
    pub fn fails_readiness(&self) -> bool {
        matches!(self, Self::Redis(settings) if settings.fail_readiness)
    }
}

// === impl RedisSettings ===

impl RedisSettings {
    /// Returns the prefix and the hash tags by which this store names buckets.
    pub fn bucket_names(&self) -> BucketNames {
        BucketNames { prefix: self.prefix.as_str().into(), is_cluster: !self.cluster.is_empty() }
    }

    /// Returns the addresses of the server or the nodes.
    fn servers(&self) -> Vec<&str> {
        [&self.url].into_iter().chain(&self.cluster).map(RedisUrl::server).collect()
    }

    /// Creates default settings for the Redis at this URL.
    pub fn new(url: RedisUrl) -> Self {
        let (timeout, pool_size) = (StoreSettings::DEFAULT_TIMEOUT, StoreSettings::DEFAULT_POOL_SIZE);
        let (sentinel, cluster, tls, password_file, prefix) = Default::default();
        let (key_secret, fail_readiness, min_gateways) = (None, false, 1);
        Self {
            url,
            sentinel,
            cluster,
            tls,
            password_file,
            timeout,
            prefix,
            pool_size,
            key_secret,
            fail_readiness,
            min_gateways,
        }
    }
}

// === impl RedisUrl ===

impl RedisUrl {
    /// Wraps a URL that is known to be valid.
    pub fn new(url: String) -> Self {
        Self(url)
    }

    /// Returns the URL with its password. Only for connecting.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the host, port and database, or all of a Unix socket's URL.
    fn server(&self) -> &str {
        match self.0.split_once("://") {
            Some(("unix", _)) | None => &self.0,
            Some((_, rest)) => rest.rsplit_once('@').map_or(rest, |(_, host)| host),
        }
    }

    /// Returns `true` if the URL requires TLS.
    pub fn is_tls(&self) -> bool {
        self.0.starts_with("rediss://")
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.0.find("://").map_or(0, |end| end + "://".len());
        let (scheme, rest) = self.0.split_at(scheme);
        match rest.rsplit_once('@') {
            // A password is not allowed here, but the URL may contain one.
            _ if scheme == "unix://" => write!(f, "{scheme}{}", rest.split('?').next().unwrap_or_default()),
            Some((_, host)) => write!(f, "{scheme}***@{host}"),
            None => write!(f, "{scheme}{rest}"),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl KeySecret ===

impl KeySecret {
    /// Derives the secret from a text of the rule file, or from the bytes stored in Redis.
    pub fn derive(material: &[u8]) -> Self {
        Self(blake3::derive_key("tidegate 2026 client values in bucket keys", material))
    }

    /// Wraps the bytes of a secret.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Generates a random secret.
    pub fn random() -> Self {
        // If the system has no randomness, others can compute the hashes of client values. Permits are still counted.
        Self(random())
    }

    /// Returns the secret as it is stored in Redis for other gateways.
    pub fn to_hex(self) -> String {
        hex::encode(&self.0)
    }

    /// Returns a hash of 128 bits, which is the same wherever the secret is the same.
    pub fn hash(&self, value: &[u8]) -> u128 {
        let digest = blake3::keyed_hash(&self.0, value);
        let (half, _) = digest.as_bytes().split_first_chunk().unwrap_or((&[0; 16], &[]));
        u128::from_be_bytes(*half)
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for url in ["redis://:hush@db:6379/1", "redis://user:hu@sh@db:6379/1"] {
            assert_eq!(format!("{:?}", RedisUrl::new(url.into())), "redis://***@db:6379/1");
        }
        assert_eq!(format!("{:?}", RedisUrl::new("unix:///sock?pass=hu@sh".into())), "unix:///sock");
    }
}
