//! Where Redisson looks for a limiter's data: the names of its keys.
//!
//! A client's address is written as it is; everything else that a client sends is there only as a keyed hash of fixed
//! length, without braces or colons. So nothing that it sends moves a key to another cluster slot or onto another
//! client's bucket.

use std::fmt::Write;

use crate::limit::{Algorithm, Charge, ClientId};
use crate::store::settings::KeySecret;

/// The keys of one bucket, in the order in which its algorithm's script takes them.
pub(super) fn keys(charge: &Charge, secret: &KeySecret) -> Vec<String> {
    let name = &charge.limiter.name;
    let client = charge.client.as_ref().map(|client| client_suffix(client, secret)).unwrap_or_default();
    let own = |suffix| suffixed(name, suffix, &client);
    match charge.limiter.quota.algorithm() {
        Algorithm::TokenBucket => vec![name.clone(), own("value"), own("permits")],
        Algorithm::Gcra { .. } => vec![own("gcra")],
        Algorithm::LeakyBucket(_) => vec![own("slots")],
        Algorithm::Foreign(_) => foreign(name, &client).into(),
        Algorithm::SlidingWindow { .. } => vec![own("segments")],
        Algorithm::FixedWindow(_) => vec![own("window")],
    }
}

/// The five keys of a limiter and a client's suffix, in Redisson's order.
pub(super) fn foreign(name: &str, client: &str) -> [String; 5] {
    let key = |suffix, client| suffixed(name, suffix, client);
    [name.to_owned(), key("value", ""), key("value", client), key("permits", ""), key("permits", client)]
}

/// Redisson's `suffixName`: a name with a brace in it brings its own hash tag.
fn suffixed(name: &str, suffix: &str, client: &str) -> String {
    match name.contains('{') {
        true => format!("{name}:{suffix}{client}"),
        false => format!("{{{name}}}:{suffix}{client}"),
    }
}

fn client_suffix(client: &ClientId, secret: &KeySecret) -> String {
    let mut suffix = String::with_capacity(48);
    // Writing to a string cannot fail.
    _ = match client {
        ClientId::Address(network) if network.prefix_len() == network.max_prefix_len() => {
            write!(suffix, ":{}", network.addr())
        }
        ClientId::Address(network) => write!(suffix, ":{network}"),
        ClientId::Value(value) => write!(suffix, ":{:032x}", secret.hash(value)),
        ClientId::Instance(id) => write!(suffix, ":{id}"),
    };
    suffix
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limit::{Algorithm, Limiter, Mode, Quota};

    fn keys_of(name: &str, client: Option<ClientId>) -> [String; 3] {
        let quota = Quota::new(1, 1_000, Algorithm::TokenBucket).expect("a quota");
        let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
        let limiter = Arc::new(Limiter { name: name.into(), mode, quota });
        let charge = Charge { limiter, client, permits: 1, shadow: false };
        keys(&charge, &KeySecret::derive(b"a secret of these tests")).try_into().expect("three keys")
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
        let limiter = Arc::new(Limiter { name: "lim".into(), mode: Mode::Overall, quota });
        let charge = Charge { limiter, client: None, permits: 1, shadow: false };
        assert_eq!(keys(&charge, &KeySecret::derive(b"a secret of these tests")), ["{lim}:gcra"]);
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
