//! The names of keys: one key for each own bucket, and the keys of a limiter that is shared with Redisson.
//!
//! A client's address is part of the key as it is. All other client input is only in a keyed hash of fixed length,
//! without braces or colons. So no client can move a key to another hash slot or onto another client's bucket. The
//! secret of the hash is the same for all gateways on a Redis.

use std::fmt::Write;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{AsyncTypedCommands, ExistenceCheck, RedisResult, SetOptions};

use super::algorithms::key_suffix;
use tidegate_limit::Algorithm;
use tidegate_rules::charge::{ClientId, Limiter};
use tidegate_rules::settings::store::{KeySecret, RedisSettings};

/// The secret of the client hashes: configured in the rule file, or stored in Redis.
#[derive(Debug)]
pub(crate) struct SharedSecret {
    configured: Option<KeySecret>,
    key: String,
    stored: ArcSwapOption<StoredSecret>,
}

/// The secret that is stored in Redis.
#[derive(Debug)]
struct StoredSecret {
    text: String,
    secret: KeySecret,
}

/// Recognizes the keys of all clients of a limiter.
#[derive(Debug)]
pub(crate) struct BucketKeys {
    /// For each kind of key, the texts before the number of a partition, if there is one, and before the client. Each
    /// bucket in use has a key of the first kind.
    starts: Vec<[String; 2]>,
    pattern: String,
}

/// The end of the key of the tickets of a bucket, after the key of the bucket.
pub(super) const TICKETS: &str = ":@waiting";

/// The ends of the keys of a budget's reservations, after the key of the bucket: the gateways, and the reservations.
pub(crate) const RESERVATIONS: [&str; 2] = [":@holders", ":@reserved"];

/// The end of the key that marks a limit as post-paid, after the name of its limiter. No client has this key: the hash of a
/// client has no `@`.
const POST_PAID: &str = ":@post_paid";

/// Returns the number of keys of these buckets.
pub(crate) fn count(algorithm: Algorithm, buckets: usize) -> usize {
    match algorithm {
        Algorithm::Redisson(_) => 6 * buckets,
        _ => buckets,
    }
}

/// Calls `each` with the keys of a limiter's buckets, in the order of the script. `key` is the buffer for each key.
pub(crate) fn for_each(
    limiter: &Limiter,
    clients: &[Option<ClientId>],
    secret: &KeySecret,
    key: &mut String,
    mut each: impl FnMut(&str),
) {
    let (name, algorithm) = (&limiter.name, limiter.quota.algorithm());
    for id in clients {
        key.clear();
        if let Algorithm::Redisson(_) = algorithm {
            id.iter().for_each(|id| write_client(id, secret, key));
            redisson_keys(name, key).iter().for_each(|key| each(key));
            continue;
        }
        write_name(limiter, id.as_ref(), key);
        key.push_str(key_suffix(algorithm));
        id.iter().for_each(|id| write_client(id, secret, key));
        each(key);
    }
}

/// Writes the name of a limiter, with the client's partition in its hash tag if there are partitions.
fn write_name(limiter: &Limiter, client: Option<&ClientId>, key: &mut String) {
    let Some(partition) = limiter.partition_of(client) else { return key.push_str(&limiter.name) };
    let [tag, rest] = limiter.split_at_part_number();
    // Writing to a string cannot fail.
    _ = write!(key, "{tag}:{partition}{rest}");
}

/// Returns the keys of a limiter and a client's suffix: Redisson's five keys in its order, then Tidegate's key for the
/// client's log.
pub(crate) fn redisson_keys(name: &str, client: &str) -> [String; 6] {
    let key = |suffix, client| {
        let mut key = String::new();
        write_suffixed(name, suffix, client, &mut key);
        key
    };
    let [value, permits] = ["value", "permits"].map(|suffix| [key(suffix, ""), key(suffix, client)]);
    let ([value, own_value], [permits, own_permits]) = (value, permits);
    [name.to_owned(), value, own_value, permits, own_permits, key("tidegate", client)]
}

/// Returns the key that marks a limit as post-paid. It is in the hash slot of the limit's buckets.
pub(crate) fn post_paid_key(limiter: &Limiter) -> String {
    format!("{}{POST_PAID}", limiter.name)
}

/// Returns the key that records that a late charge was made. It is in the hash slot of the client's bucket.
pub(crate) fn late_charge_key(limiter: &Limiter, client: Option<&ClientId>, id: u64) -> String {
    let (mut name, mut key) = (String::new(), String::new());
    write_name(limiter, client, &mut name);
    write_suffixed(&name, "owed:", &format!("{id:016x}"), &mut key);
    key
}

/// Appends a suffix as Redisson's `suffixName` does: a name with a brace contains its own hash tag.
fn write_suffixed(name: &str, suffix: &str, client: &str, key: &mut String) {
    let [before, after] = if name.contains('{') { ["", ":"] } else { ["{", "}:"] };
    for part in [before, name, after, suffix, client] {
        key.push_str(part);
    }
}

/// Returns the hash tag of a client's bucket, with its braces.
pub(crate) fn bucket_tag(limiter: &Limiter, client: Option<&ClientId>) -> String {
    let mut name = String::new();
    write_name(limiter, client, &mut name);
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    format!("{{{}}}", tag.filter(|tag| !tag.is_empty()).unwrap_or(&name))
}

/// Returns the key of a receipt with this hash tag, given the hash of its id. No limit has this name.
pub(crate) fn receipt_key(tag: &str, id: u128) -> String {
    format!("{tag}:@receipt:{id:032x}")
}

/// Returns the key of the hash tag that the receipt of an id has in a cluster.
pub(crate) fn bound_tag_key(tag: &str, id: u128) -> String {
    format!("{tag}:@bound:{id:032x}")
}

fn write_client(client: &ClientId, secret: &KeySecret, out: &mut String) {
    // Writing to a string cannot fail.
    _ = match client {
        ClientId::Address(network) if network.prefix_len() == network.max_prefix_len() => {
            write!(out, ":{}", network.addr())
        }
        ClientId::Address(network) => write!(out, ":{network}"),
        ClientId::Value(value) => write!(out, ":{:032x}", secret.hash(value)),
        ClientId::Hash(hash) => write!(out, ":{hash:032x}"),
        ClientId::Instance(id) => write!(out, ":{id}"),
    };
}

/// Returns the key of the leases of the requests in flight of a route or of one of its clients, given the name of the
/// route's slots.
pub(crate) fn in_flight_key(name: &str, client: Option<&ClientId>, secret: &KeySecret) -> String {
    let mut key = name.to_owned();
    client.iter().for_each(|client| write_client(client, secret, &mut key));
    key
}

/// Returns the key of the gateways whose requests wait for a slot of a route, given the name of its slots. No client
/// has this key: the hash of a client has 32 digits, and an address has a period or a colon.
pub(crate) fn waiting_key(name: &str) -> String {
    format!("{name}:waiting")
}

/// Returns the hash tag of a name. It determines the node of a cluster; all keys of a route share it.
pub(crate) fn hash_tag(name: &str) -> &str {
    name.bytes().position(|byte| byte == b'}').map_or(name, |end| &name[..end])
}

// === impl BucketKeys ===

impl BucketKeys {
    pub(crate) fn new(limiter: &Limiter) -> Self {
        let (name, algorithm) = (&limiter.name, limiter.quota.algorithm());
        if let Algorithm::Redisson(_) = algorithm {
            let start = |suffix| {
                let mut start = String::new();
                write_suffixed(name, suffix, ":", &mut start);
                [start, String::new()]
            };
            let mut pattern = String::new();
            write_suffixed(name, "", "", &mut pattern);
            return Self { starts: ["permits", "value", "tidegate"].map(start).into(), pattern: glob(&pattern) + "*" };
        }
        let [tag, rest] = limiter.split_at_part_number();
        let rest = format!("{rest}{}:", key_suffix(algorithm));
        let pattern = format!("{}*{}*", glob(tag), glob(&rest));
        Self { starts: vec![[tag.to_owned(), rest]], pattern }
    }

    /// Returns a pattern that all keys match, for `SCAN`. Other keys may match it, too.
    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns the kind of a key, if it is the key of a bucket of this limiter. Each bucket in use has a key of kind 0.
    pub(crate) fn kind_of(&self, key: &str) -> Option<usize> {
        self.starts.iter().position(|[tag, rest]| {
            let Some(after) = key.strip_prefix(tag.as_str()) else { return false };
            if rest.is_empty() {
                return !after.is_empty();
            }
            let Some((partition, client)) = after.split_once(rest.as_str()) else { return false };
            let is_partition = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
            is_client(client) && (partition.is_empty() || partition.strip_prefix(':').is_some_and(is_partition))
        })
    }
}

/// Returns `true` for an address, a network, or the hash of another client. So the keys of a limit in the format of
/// another algorithm are not mistaken for clients.
fn is_client(text: &str) -> bool {
    let is_hash = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash || text.parse::<std::net::IpAddr>().is_ok() || text.parse::<ipnet::IpNet>().is_ok()
}

/// Escapes a text for a pattern of Redis.
fn glob(text: &str) -> String {
    let is_special = |letter: char| matches!(letter, '*' | '?' | '[' | ']' | '^' | '-' | '\\');
    text.chars().flat_map(|letter| is_special(letter).then_some('\\').into_iter().chain([letter])).collect()
}

// === impl SharedSecret ===

impl SharedSecret {
    pub(crate) fn new(settings: &RedisSettings) -> Self {
        let key = format!("{}tidegate:key_secret", settings.prefix);
        Self { configured: settings.key_secret, key, stored: ArcSwapOption::empty() }
    }

    /// Returns the secret, if it is known.
    pub(crate) fn get(&self) -> Option<KeySecret> {
        self.configured.or_else(|| Some(self.stored.load().as_ref()?.secret))
    }

    /// Reads the secret that all gateways on this Redis use. The first gateway stores it. If Redis has lost it, it is
    /// stored again, and other gateways read it.
    pub(crate) async fn fetch(&self, redis: &mut MultiplexedConnection) -> RedisResult<()> {
        if self.configured.is_some() {
            return Ok(());
        }
        let had = self.stored.load_full();
        let own = had.as_ref().map_or_else(|| KeySecret::random().to_hex(), |had| had.text.clone());
        let if_absent = SetOptions::default().conditional_set(ExistenceCheck::NX);
        let was_absent = redis.set_options(&self.key, &own, if_absent).await?.is_some();
        let text = redis.get(&self.key).await?.unwrap_or(own);
        if had.is_some_and(|had| was_absent || had.text != text) {
            tracing::warn!(restored = was_absent, "store has lost its data: permits in use are forgotten");
        }
        self.stored.store(Some(Arc::new(StoredSecret { secret: KeySecret::derive(text.as_bytes()), text })));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use tidegate_limit::{Mode, Quota, examples};

    fn all_of(limiter: &Limiter, clients: &[Option<ClientId>]) -> Vec<String> {
        let (mut keys, secret) = (Vec::new(), KeySecret::derive(b"a secret of these tests"));
        for_each(limiter, clients, &secret, &mut String::new(), |key| keys.push(key.to_owned()));
        assert_eq!(keys.len(), count(limiter.quota.algorithm(), clients.len()));
        keys
    }

    fn key_of(name: &str, algorithm: Algorithm, client: Option<ClientId>) -> String {
        let quota = Quota::new(1, 1_000, algorithm).expect("a quota");
        let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
        let [key] = all_of(&Limiter::new(name.into(), mode, quota), &[client]).try_into().expect("one key");
        key
    }

    #[test]
    fn algorithms_share_no_keys() {
        let keys = examples(1).map(|algorithm| key_of("{tidegate:rest}:total", algorithm, None));
        let keys: BTreeSet<String> = keys.collect();
        assert_eq!(keys.len(), examples(1).count(), "{keys:?}");
        assert!(keys.contains("{tidegate:rest}:total") && keys.contains("{tidegate:rest}:total:gcra"), "{keys:?}");
    }

    #[test]
    fn partition_of_a_client_is_stable() {
        let quota = Quota::new(1, 1_000, Algorithm::Gcra { burst: 1 }).expect("a quota");
        let limiter = |name: &str| Limiter::new(name.to_owned(), Mode::PerClient, quota).partitioned(64);
        let address = ClientId::Address("192.0.2.1".parse::<std::net::IpAddr>().expect("an address").into());
        let clients = [address, ClientId::Instance("a".into())].map(Some);
        let keys = ["{tidegate:rest:772}:own:gcra:192.0.2.1", "{tidegate:rest:404}:own:gcra:a"];
        assert_eq!(all_of(&limiter("{tidegate:rest}:own"), &clients), keys);
    }

    #[test]
    fn shared_limiter_has_the_keys_of_redisson() {
        let keys = ["lim", "{lim}:value", "{lim}:value:x", "{lim}:permits", "{lim}:permits:x", "{lim}:tidegate:x"];
        assert_eq!(redisson_keys("lim", ":x"), keys);
        assert_eq!(redisson_keys("{a}b", "")[1], "{a}b:value");
    }

    #[test]
    fn only_addresses_are_in_keys_as_they_are() {
        let key = |client| key_of("{lim}", Algorithm::TokenBucket, Some(client));
        let address = |text: &str| key(ClientId::Address(text.parse().expect("a network")));
        assert_eq!(address("192.0.2.1/32"), "{lim}:192.0.2.1");
        assert_eq!(address("2001:db8::/64"), "{lim}:2001:db8::/64");
        for value in [&b""[..], b"a}b{c}:x", b"\r\n\0{}", &[0xff; 16 * 1024]] {
            let key = key(ClientId::Value(value.into()));
            let hash = key.strip_prefix("{lim}:").expect("the prefix");
            assert!(hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
        }
    }

    #[test]
    fn different_values_have_different_keys() {
        proptest::proptest!(|(first: Vec<u8>, second: Vec<u8>)| {
            let key = |value: &[u8]| key_of("lim", Algorithm::TokenBucket, Some(ClientId::Value(value.into())));
            proptest::prop_assert_eq!(first == second, key(&first) == key(&second));
        });
    }
}
