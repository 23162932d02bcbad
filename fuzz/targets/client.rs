//! Fuzzes client keys: two clients have different buckets, and a client has one bucket in every spelling.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use tidegate::internals::for_each_redis_key;
use tidegate::redisson::Mode;
use tidegate_limit::{Algorithm, Quota};
use tidegate_rules::charge::{Charge, ClientId, Limiter};
use tidegate_rules::client::{AddressRules, ClientSource};
use tidegate_rules::request::facts::{Facts, Requests};
use tidegate_rules::settings::store::KeySecret;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// The values that identify a client: a header field, a cookie and a query parameter.
type Values = [String; 3];

/// Checks client IDs and Redis keys. The input is the values of two clients, and the spelling of the first one.
pub fn client(data: &[u8]) {
    let mut parts = data.split(|byte| *byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    let (one, other) = (values([next(), next(), next()]), values([next(), next(), next()]));
    let style = next();
    let (Some(first), Some(second)) = (identify(&one, &[]), identify(&other, &[])) else { return };
    assert_eq!(first == second, one == other, "{one:?} and {other:?}");
    assert_eq!(identify(&one, style).as_ref(), Some(&first), "another client in the spelling {style:?}");
    let keys = [keys(first), keys(second)];
    assert_eq!(keys[0] == keys[1], one == other, "{keys:?}");
    for key in keys.iter().flatten().filter(|key| key.contains('}')) {
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        assert_eq!(tag, Some("tidegate:route"), "another hash slot: {key:?}");
        assert!(key.len() < 100 && key.bytes().all(|byte| byte.is_ascii_graphic()), "{key:?}");
    }
}

/// Maps bytes to letters and digits, which every parser reads in the same way.
fn values(parts: [&[u8]; 3]) -> Values {
    let letter = |byte: &u8| char::from(b"abcdefgABCDEFG0123456789"[usize::from(*byte) % 24]);
    parts.map(|part| part.iter().map(letter).collect())
}

/// Identifies the client of these values. The bits of `style` select the encoded letters and the places of blanks.
fn identify([field, cookie, parameter]: &Values, style: &[u8]) -> Option<ClientId> {
    let bit = |index: usize| style.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
    let blank = |index: usize| if bit(index) { " \t" } else { "" };
    let mut encoded = String::new();
    for (index, letter) in parameter.bytes().enumerate() {
        match bit(index + 8) {
            true => encoded.push_str(&format!("%{letter:02x}")),
            false => encoded.push(char::from(letter)),
        }
    }
    let name = if bit(4) { "%6bey" } else { "key" };
    let uri: Uri = format!("/?a=b&{name}={encoded}&c").parse().ok()?;
    let mut headers = HeaderMap::new();
    let mut add =
        |name: &'static str, value: String| HeaderValue::from_str(&value).ok().map(|value| headers.append(name, value));
    add("host", "a.example".to_owned())?;
    add("x-key", format!("{}{field}{}", blank(0), blank(1)))?;
    add("cookie", format!("a=b;{}sid={cookie}{};c=d", blank(2), blank(3)))?;
    let (method, rules) = (Method::GET, AddressRules::default());
    let facts = Facts::read(&method, &uri, Version::HTTP_11, &headers, PEER, &Requests::default()).ok()?;
    let source = ClientSource::All(vec![
        ClientSource::Header(HeaderName::from_static("x-key")),
        ClientSource::Cookie("sid".to_owned()),
        ClientSource::Query("key".to_owned()),
    ]);
    source.identify(&facts, &rules).ok()
}

fn keys(client: ClientId) -> Vec<String> {
    let quota = Quota::new(10, 1_000, Algorithm::TokenBucket).expect("a quota");
    let limiter = Limiter::new("{tidegate:route}:limit".into(), Mode::PerClient, quota);
    let charge = Charge::new(limiter.into(), Some(client), 1);
    let mut keys = Vec::new();
    for_each_redis_key(&charge, &KeySecret::derive(b"secret"), |key| keys.push(key.to_owned()));
    keys
}
