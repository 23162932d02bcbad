//! Where Redisson looks for a limiter's data: the names of its keys.
//!
//! A client's address is written as it is; everything else that a client sends is there only as a keyed hash of fixed
//! length, without braces or colons. So nothing that it sends moves a key to another cluster slot or onto another
//! client's bucket.

use std::fmt::Write;

use crate::limit::{Algorithm, ClientId, Limiter};
use crate::store::settings::KeySecret;

/// The suffixes of a bucket's keys, in the order in which its algorithm's script takes them.
fn suffixes(algorithm: Algorithm) -> &'static [&'static str] {
    match algorithm {
        Algorithm::TokenBucket => &["value", "permits"],
        Algorithm::Gcra { .. } => &["gcra"],
        Algorithm::LeakyBucket(_) => &["slots"],
        Algorithm::SlidingWindow { .. } => &["segments"],
        Algorithm::FixedWindow(_) => &["window"],
        Algorithm::Foreign(_) => &[],
    }
}

/// How many keys a limiter and so many of its buckets have.
pub(super) fn count(algorithm: Algorithm, buckets: usize) -> usize {
    match algorithm {
        Algorithm::Foreign(_) => 6 * buckets,
        Algorithm::TokenBucket => 1 + 2 * buckets,
        own => suffixes(own).len() * buckets,
    }
}

/// Shows `each` the keys of a limiter and of its buckets, in the order in which its algorithm's script takes them; each is
/// written into `key`, which is no use to anybody else meanwhile.
pub(super) fn each(
    limiter: &Limiter,
    clients: &[Option<ClientId>],
    secret: &KeySecret,
    key: &mut String,
    mut each: impl FnMut(&str),
) {
    let (name, algorithm) = (&limiter.name, limiter.quota.algorithm());
    if algorithm == Algorithm::TokenBucket {
        each(name);
    }
    let mut client = String::with_capacity(48);
    for id in clients {
        client.clear();
        if let Some(id) = id {
            write_client(id, secret, &mut client);
        }
        if let Algorithm::Foreign(_) = algorithm {
            foreign(name, &client).iter().for_each(|key| each(key));
        }
        for suffix in suffixes(algorithm) {
            key.clear();
            write_suffixed(name, suffix, &client, key);
            each(key);
        }
    }
}

/// The keys of a limiter and a client's suffix: Redisson's five in its order, then our note about the client's log.
pub(super) fn foreign(name: &str, client: &str) -> [String; 6] {
    let key = |suffix, client| {
        let mut key = String::new();
        write_suffixed(name, suffix, client, &mut key);
        key
    };
    let [value, permits] = ["value", "permits"].map(|suffix| [key(suffix, ""), key(suffix, client)]);
    let ([value, own_value], [permits, own_permits]) = (value, permits);
    [name.to_owned(), value, own_value, permits, own_permits, key("tidegate", client)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Mode, Quota};

    fn all_of(limiter: &Limiter, clients: &[Option<ClientId>]) -> Vec<String> {
        let (mut keys, secret) = (Vec::new(), KeySecret::derive(b"a secret of these tests"));
        each(limiter, clients, &secret, &mut String::new(), |key| keys.push(key.to_owned()));
        assert_eq!(keys.len(), count(limiter.quota.algorithm(), clients.len()));
        keys
    }

    fn keys_of(name: &str, client: Option<ClientId>) -> [String; 3] {
        let quota = Quota::new(1, 1_000, Algorithm::TokenBucket).expect("a quota");
        let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
        all_of(&Limiter { name: name.into(), mode, quota }, &[client]).try_into().expect("three keys")
    }

    #[test]
    fn the_keys_are_those_of_redisson() {
        let overall = ["{tidegate:rest}:total", "{tidegate:rest}:total:value", "{tidegate:rest}:total:permits"];
        assert_eq!(keys_of("{tidegate:rest}:total", None), overall);
        assert_eq!(keys_of("lim", None), ["lim", "{lim}:value", "{lim}:permits"]);
    }

    #[test]
    fn gcra_has_one_key() {
        let quota = Quota::new(1, 1_000, Algorithm::Gcra { burst: 1 }).expect("a quota");
        assert_eq!(all_of(&Limiter { name: "lim".into(), mode: Mode::Overall, quota }, &[None]), ["{lim}:gcra"]);
    }

    #[test]
    fn an_address_is_written_as_it_is_and_a_value_as_a_hash_of_fixed_length() {
        let address = |text: &str| Some(ClientId::Address(text.parse().expect("a network")));
        assert_eq!(keys_of("lim", address("192.0.2.1/32"))[1], "{lim}:value:192.0.2.1");
        assert_eq!(keys_of("lim", address("2001:db8::/64"))[1], "{lim}:value:2001:db8::/64");
        for value in [&b""[..], b"a}b{c}:x", b"\r\n\0{}", &[0xff; 16 * 1024]] {
            let [_, _, permits] = keys_of("lim", Some(ClientId::Value(value.into())));
            let hash = permits.strip_prefix("{lim}:permits:").expect("the prefix");
            assert!(hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
        }
    }

    #[test]
    fn different_values_have_different_keys() {
        proptest::proptest!(|(one: Vec<u8>, two: Vec<u8>)| {
            let keys = |value: &[u8]| keys_of("lim", Some(ClientId::Value(value.into())));
            proptest::prop_assert_eq!(one == two, keys(&one) == keys(&two));
        });
    }
}
