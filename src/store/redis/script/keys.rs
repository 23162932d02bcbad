//! The names of keys: one for each bucket of ours, and where Redisson looks for the data of a limiter that is shared.
//!
//! A client's address is written as it is; everything else that a client sends is there only as a keyed hash of fixed
//! length, without braces or colons. So nothing that it sends moves a key to another cluster slot or onto another
//! client's bucket. The secret of that hash is the same for all gateways on a Redis.

use std::fmt::Write;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{AsyncTypedCommands, ExistenceCheck, RedisResult, SetOptions};

use crate::limit::{Algorithm, ClientId, Limiter};
use crate::store::settings::{KeySecret, RedisSettings};

/// The secret of the client hashes: the rule file's, or the text that lies in Redis.
#[derive(Debug)]
pub(crate) struct SharedSecret {
    configured: Option<KeySecret>,
    key: String,
    stored: ArcSwapOption<StoredSecret>,
}

/// What lies in Redis.
#[derive(Debug)]
struct StoredSecret {
    text: String,
    secret: KeySecret,
}

/// How many keys so many buckets have.
pub(crate) fn count(algorithm: Algorithm, buckets: usize) -> usize {
    match algorithm {
        Algorithm::Redisson(_) => 6 * buckets,
        _ => buckets,
    }
}

/// What tells the buckets of an algorithm from those of the others; nothing for `token_bucket`.
fn suffix(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::Redisson(_) => "",
        Algorithm::Gcra { .. } => ":gcra",
        Algorithm::LeakyBucket(_) => ":slots",
        Algorithm::SlidingWindow { .. } => ":segments",
        Algorithm::FixedWindow(_) => ":window",
    }
}

/// Calls `each` with the keys of a limiter's buckets, in the order in which its algorithm's script takes them. `key` is a buffer:
/// each key is written into it.
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
        key.push_str(suffix(algorithm));
        id.iter().for_each(|id| write_client(id, secret, key));
        each(key);
    }
}

/// The name of a limiter, with the client's partition in its hash tag if there are some.
fn write_name(limiter: &Limiter, client: Option<&ClientId>, key: &mut String) {
    let Some(partition) = limiter.partition_of(client) else { return key.push_str(&limiter.name) };
    let [tag, rest] = limiter.split_at_part_number();
    // Writing to a string cannot fail.
    _ = write!(key, "{tag}:{partition}{rest}");
}

/// The keys of a limiter and a client's suffix: Redisson's five in its order, then our note about the client's log.
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

/// Where the slot of a client's bucket remembers that a payment of this number was made.
pub(crate) fn payment_key(limiter: &Limiter, client: Option<&ClientId>, id: u64) -> String {
    let (mut name, mut key) = (String::new(), String::new());
    write_name(limiter, client, &mut name);
    write_suffixed(&name, "owed:", &format!("{id:016x}"), &mut key);
    key
}

/// Redisson's `suffixName`: a name with a brace in it brings its own hash tag.
fn write_suffixed(name: &str, suffix: &str, client: &str, key: &mut String) {
    let [before, after] = if name.contains('{') { ["", ":"] } else { ["{", "}:"] };
    for part in [before, name, after, suffix, client] {
        key.push_str(part);
    }
}

fn write_client(client: &ClientId, secret: &KeySecret, out: &mut String) {
    // Writing to a string cannot fail.
    _ = match client {
        ClientId::Address(network) if network.prefix_len() == network.max_prefix_len() => {
            write!(out, ":{}", network.addr())
        }
        ClientId::Address(network) => write!(out, ":{network}"),
        ClientId::Value(value) => write!(out, ":{:032x}", secret.hash(value)),
        ClientId::Instance(id) => write!(out, ":{id}"),
    };
}

/// The hash tag of a name: it decides which node of a cluster has the key, and all keys of a route share it.
pub(crate) fn hash_tag(name: &str) -> &str {
    name.split_once('}').map_or(name, |(tag, _)| tag)
}

// === impl SharedSecret ===

impl SharedSecret {
    pub(crate) fn new(settings: &RedisSettings) -> Self {
        let key = format!("{}tidegate:key_secret", settings.prefix);
        Self { configured: settings.key_secret, key, stored: ArcSwapOption::empty() }
    }

    /// The secret, as far as it is known.
    pub(crate) fn known(&self) -> Option<KeySecret> {
        self.configured.or_else(|| Some(self.stored.load().as_ref()?.secret))
    }

    /// Learns the secret that all gateways on this Redis use. The first of them puts it there; a Redis that has lost it is
    /// given it again, and whoever comes later follows.
    pub(crate) async fn fetch(&self, redis: &mut MultiplexedConnection) -> RedisResult<()> {
        if self.configured.is_some() {
            return Ok(());
        }
        let had = self.stored.load_full();
        let ours = had.as_ref().map_or_else(|| KeySecret::random().to_hex(), |had| had.text.clone());
        let if_absent = SetOptions::default().conditional_set(ExistenceCheck::NX);
        let was_absent = redis.set_options(&self.key, &ours, if_absent).await?.is_some();
        let text = redis.get(&self.key).await?.unwrap_or(ours);
        if had.is_some_and(|had| was_absent || had.text != text) {
            tracing::warn!(restored = was_absent, "store has lost its data: permits in use are forgotten");
        }
        self.stored.store(Some(Arc::new(StoredSecret { secret: KeySecret::derive(text.as_bytes()), text })));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Mode, Quota};

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
    fn a_bucket_has_one_key_and_algorithms_share_none() {
        assert_eq!(key_of("{tidegate:rest}:total", Algorithm::TokenBucket, None), "{tidegate:rest}:total");
        assert_eq!(key_of("{tidegate:rest}:total", Algorithm::Gcra { burst: 1 }, None), "{tidegate:rest}:total:gcra");
    }

    #[test]
    fn the_partition_of_a_client_is_in_the_hash_tag_and_is_the_same_everywhere() {
        let quota = Quota::new(1, 1_000, Algorithm::Gcra { burst: 1 }).expect("a quota");
        let limiter = |name: &str| Limiter::new(name.to_owned(), Mode::PerClient, quota).partitioned(64);
        let address = ClientId::Address("192.0.2.1".parse::<std::net::IpAddr>().expect("an address").into());
        let clients = [address, ClientId::Instance("a".into())].map(Some);
        let told = ["{tidegate:rest:772}:own:gcra:192.0.2.1", "{tidegate:rest:404}:own:gcra:a"];
        assert_eq!(all_of(&limiter("{tidegate:rest}:own"), &clients), told);
    }

    #[test]
    fn the_keys_of_shared_limiters_are_those_of_redisson() {
        let keys = ["lim", "{lim}:value", "{lim}:value:x", "{lim}:permits", "{lim}:permits:x", "{lim}:tidegate:x"];
        assert_eq!(redisson_keys("lim", ":x"), keys);
        assert_eq!(redisson_keys("{a}b", "")[1], "{a}b:value");
    }

    #[test]
    fn an_address_is_written_as_it_is_and_a_value_as_a_hash_of_fixed_length() {
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
        proptest::proptest!(|(one: Vec<u8>, two: Vec<u8>)| {
            let key = |value: &[u8]| key_of("lim", Algorithm::TokenBucket, Some(ClientId::Value(value.into())));
            proptest::prop_assert_eq!(one == two, key(&one) == key(&two));
        });
    }
}
