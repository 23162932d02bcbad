//! What a store needs to know before it is opened.

#[cfg(feature = "tls")]
pub(crate) mod tls;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use self::url::BadRedisUrl;

/// Which store, and how to reach it.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// Buckets in this process.
    Memory {
        /// The secret under which client values are hashed; made up at start if none is given.
        key_secret: Option<KeySecret>,
    },
    /// Buckets in a Redis that gateways share.
    Redis(RedisSettings),
}

/// How to reach a Redis.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// `redis://[user:password@]host[:port][/database]`, the same with `rediss://` for TLS, or `unix:///path`. With
    /// `sentinel`, the host is the name of the master.
    pub url: RedisUrl,
    /// The sentinels that know where the master is; without them the server is at `url`.
    pub sentinel: Option<Box<SentinelSettings>>,
    /// Nodes of a cluster, any of which tells of all; none if it is no cluster. The URL is that of the first.
    pub cluster: Box<[RedisUrl]>,
    /// Whom `rediss://` trusts, and what it shows of itself.
    pub tls: RedisTls,
    /// The file with the password, if the URL has none. It is read for each connection.
    pub password_file: Option<PathBuf>,
    /// The longest a decision may take: over queueing, connecting and the reply together.
    pub timeout: Duration,
    /// Put before every key, inside the hash tag.
    pub prefix: String,
    /// Connections that each worker keeps open. One carries the decisions of all requests that come while Redis answers; more
    /// of them make calls smaller.
    pub pool_size: usize,
    /// The secret under which client values are hashed; made once in Redis if none is given.
    pub key_secret: Option<KeySecret>,
    /// Whether a gateway is not ready while the store is away.
    pub fail_readiness: bool,
    /// The fewest gateways that share it: while Redis does not decide, a gateway has no larger share of a limit than one of
    /// so many.
    pub min_gateways: u32,
}

/// Sentinels, and how to reach them.
#[derive(Clone, Debug, Default)]
pub struct SentinelSettings {
    /// Where they are; at least one.
    pub urls: Vec<RedisUrl>,
    /// The file with their password, if the URL has none. It is read for each connection.
    pub password_file: Option<PathBuf>,
    /// Whom `rediss://` trusts, and what it shows of itself.
    pub tls: RedisTls,
}

/// Whom a connection by TLS trusts, and what it shows of itself: files in PEM, read for each connection. The name in the URL
/// is always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// The authorities, one of which has signed Redis's certificate; those that the system trusts if none are given.
    pub ca: Option<PathBuf>,
    /// The certificate to show to Redis, and its private key.
    pub identity: Option<TlsIdentity>,
}

/// The files of a certificate and of its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate, and after it those that lead to its authority.
    pub cert: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
}

/// The address of a Redis; shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

/// The key of the hash that stands for client values in a store. Never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeySecret([u8; 32]);

impl StoreSettings {
    /// A decision's deadline unless the rule file says otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);
    /// Connections of each worker unless the rule file says otherwise.
    pub const DEFAULT_POOL_SIZE: usize = 1;

    /// Is a gateway not ready while the store is away?
    #[cfg(feature = "gateway")]
    pub(crate) fn fails_readiness(&self) -> bool {
        matches!(self, Self::Redis(settings) if settings.fail_readiness)
    }
}

// === impl RedisSettings ===

impl RedisSettings {
    /// What holds unless somebody says otherwise, for the Redis at this address.
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
    /// Wraps an address that has been found to be one.
    pub fn new(url: String) -> Self {
        Self(url)
    }

    /// The address with its password, for connecting only.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Does it ask for TLS?
    pub(crate) fn is_tls(&self) -> bool {
        self.0.starts_with("rediss://")
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.0.find("://").map_or(0, |end| end + "://".len());
        let (scheme, rest) = self.0.split_at(scheme);
        match rest.rsplit_once('@') {
            // A password has no place there, and may stand there all the same.
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
    /// The secret that a text of the rule file, or the bytes kept in Redis, stand for.
    pub fn derive(material: &[u8]) -> Self {
        Self(blake3::derive_key("tidegate 2026 client values in bucket keys", material))
    }

    /// The secret of these bytes.
    #[cfg(feature = "gateway")]
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A secret that nobody has seen before.
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        // Where the system has no randomness to give, the keyed hash is still a hash; nothing is granted by it.
        _ = getrandom::fill(&mut bytes);
        Self(bytes)
    }

    /// The secret as it is kept in Redis, for the other gateways.
    pub(crate) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// 128 bits that stand for `value`, the same wherever the secret is the same.
    pub(crate) fn hash(&self, value: &[u8]) -> u128 {
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
