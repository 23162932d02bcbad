//! Where Redisson looks for a limiter's data: the names of its keys.
//!
//! A client's address is written as it is; everything else that a client sends is there only as a keyed hash of fixed
//! length, without braces or colons. So nothing that it sends moves a key to another cluster slot or onto another
//! client's bucket.

use std::fmt::Write;

use crate::limit::{Charge, ClientId};
use crate::store::settings::KeySecret;

/// The keys of one bucket, in the order in which the scripts take them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketKeys {
    pub(super) hash: String,
    pub(super) value: String,
    pub(super) permits: String,
}

impl BucketKeys {
    pub(super) fn of(charge: &Charge, secret: &KeySecret) -> Self {
        let name = &charge.limiter.name;
        let client = charge.client.as_ref().map(|client| client_suffix(client, secret)).unwrap_or_default();
        Self {
            hash: name.clone(),
            value: suffixed(name, "value", &client),
            permits: suffixed(name, "permits", &client),
        }
    }
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
    };
    suffix
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limit::{Algorithm, Limiter, Mode, Quota};

    fn keys(name: &str, client: Option<ClientId>) -> BucketKeys {
        let quota = Quota::new(1, 1_000, Algorithm::TokenBucket).expect("a quota");
        let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
        let limiter = Arc::new(Limiter { name: name.into(), mode, quota });
        BucketKeys::of(&Charge { limiter, client, permits: 1 }, &KeySecret::derive(b"a secret of these tests"))
    }

    #[test]
    fn the_keys_are_those_of_redisson() {
        let overall = keys("{tidegate:rest}:total", None);
        assert_eq!(overall.hash, "{tidegate:rest}:total");
        assert_eq!(overall.value, "{tidegate:rest}:total:value");
        assert_eq!(overall.permits, "{tidegate:rest}:total:permits");
        let plain = keys("lim", None);
        assert_eq!((plain.hash.as_str(), plain.value.as_str()), ("lim", "{lim}:value"));
    }

    #[test]
    fn an_address_is_written_as_it_is_and_a_value_as_a_hash_of_fixed_length() {
        let address = |text: &str| Some(ClientId::Address(text.parse().expect("a network")));
        assert_eq!(keys("lim", address("192.0.2.1/32")).value, "{lim}:value:192.0.2.1");
        assert_eq!(keys("lim", address("2001:db8::/64")).value, "{lim}:value:2001:db8::/64");
        for value in [&b""[..], b"a}b{c}:x", b"\r\n\0{}", &[0xff; 16 * 1024]] {
            let keys = keys("lim", Some(ClientId::Value(value.into())));
            let hash = keys.permits.strip_prefix("{lim}:permits:").expect("the prefix");
            assert!(hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
        }
    }

    #[test]
    fn different_values_have_different_keys() {
        proptest::proptest!(|(one: Vec<u8>, two: Vec<u8>)| {
            let key = |value: &[u8]| keys("lim", Some(ClientId::Value(value.into()))).value;
            proptest::prop_assert_eq!(one == two, key(&one) == key(&two));
        });
    }
}
