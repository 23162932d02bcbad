//! Tests different spellings of a client key against models of lenient origin servers.

use http::{HeaderMap, HeaderValue, Method};
use percent_encoding::percent_decode_str;
use proptest::prelude::*;

use super::*;

fn facts<'a>(headers: &'a HeaderMap, query: &'a str) -> Facts<'a> {
    let peer = std::net::Ipv4Addr::LOCALHOST.into();
    Facts {
        method: &Method::GET,
        host: "a".into(),
        path: "/".into(),
        query: Some(query),
        headers,
        peer: Some(peer),
        peer_is_client: false,
        peer_is_trusted: false,
        tls: None,
        extensions: None,
        identity: None,
        time: None,
        body: None,
    }
}

fn headers(fields: &[(&'static str, &[u8])]) -> HeaderMap {
    let value = |value: &[u8]| HeaderValue::from_bytes(value).expect("a header value");
    fields.iter().map(|(name, bytes)| (HeaderName::from_static(name), value(bytes))).collect()
}

fn identify(source: &ClientSource, fields: &[(&'static str, &[u8])], query: &str) -> Result<ClientId, ClientError> {
    source.identify(&facts(&headers(fields), query), &AddressRules::default())
}

fn cookie(field: &[u8]) -> Result<ClientId, ClientError> {
    identify(&ClientSource::Cookie("sid".into()), &[("cookie", field)], "")
}

fn query(query: &str) -> Result<ClientId, ClientError> {
    identify(&ClientSource::Query("key".into()), &[], query)
}

fn authorization(field: &[u8]) -> Result<ClientId, ClientError> {
    identify(&ClientSource::Header(header::AUTHORIZATION), &[("authorization", field)], "")
}

fn api_key(field: &[u8]) -> Result<ClientId, ClientError> {
    identify(&ClientSource::Header(HeaderName::from_static("x-api-key")), &[("x-api-key", field)], "")
}

#[test]
fn missing_empty_or_repeated_value_identifies_no_client() {
    let fields: [(_, &[u8]); 4] =
        [("cookie", b"a=1; sid=7; x=1; x=2"), ("x-key", b"k"), ("x-two", b"1"), ("x-two", b"2")];
    let identify = |source: ClientSource| identify(&source, &fields, "key=1&b=2&b=3&empty=").map(|_| ());
    let header = |name| ClientSource::Header(HeaderName::from_static(name));
    assert_eq!(identify(header("x-key")), Ok(()));
    assert_eq!(identify(header("x-none")), Err(ClientError::Missing));
    assert_eq!(identify(header("x-two")), Err(ClientError::Ambiguous));
    assert_eq!(identify(ClientSource::Cookie("sid".into())), Ok(()));
    assert_eq!(identify(ClientSource::Cookie("x".into())), Err(ClientError::Ambiguous));
    assert_eq!(identify(ClientSource::Cookie("si".into())), Err(ClientError::Missing));
    assert_eq!(identify(ClientSource::Query("key".into())), Ok(()));
    assert_eq!(identify(ClientSource::Query("b".into())), Err(ClientError::Ambiguous));
    assert_eq!(identify(ClientSource::Query("empty".into())), Err(ClientError::Missing));
}

#[test]
fn different_lists_of_values_are_different_clients() {
    let identify = |first: &'static [u8], second: &'static [u8]| {
        let source = |name| ClientSource::Header(HeaderName::from_static(name));
        let sources = ClientSource::All(vec![source("x-one"), source("x-two")]);
        identify(&sources, &[("x-one", first), ("x-two", second)], "")
    };
    assert_ne!(identify(b"a", b"bc"), identify(b"ab", b"c"));
    assert_ne!(identify(b"a", b"b"), identify(b"b", b"a"));
}

#[test]
fn other_spelling_of_a_cookie_is_the_same_client() {
    let client = cookie(b"sid=abc").expect("a client");
    for spelling in [
        &b"sid=abc; other=1"[..],
        b"a=b;sid = abc ;c",
        b"sid=%61b%63",
        b"sid=\"abc\"",
        b"s%69d=abc",
        b"SID=abc",
        b"\xa0sid\x85=abc\xa0",
        b"sid=%20abc",
        b"x=50%; sid=abc",
    ] {
        assert_eq!(cookie(spelling), Ok(client.clone()), "{}", spelling.escape_ascii());
    }
    assert_ne!(cookie(b"sid=abd"), Ok(client));
    assert_ne!(cookie(b"sid=ABC"), cookie(b"sid=abc"));
    for (spelling, why) in [
        (&b"sid =REAL; sid=RANDOM"[..], ClientError::Ambiguous),
        (b"sid=RANDOM; s%69d=REAL", ClientError::Ambiguous),
        (b"sid=RANDOM, sid=REAL", ClientError::Ambiguous),
        (b"x=y, sid=REAL", ClientError::Ambiguous),
        (b"sid=RANDOM; sid[]=REAL", ClientError::Ambiguous),
        (b"x=\"; sid=RANDOM; y=\"; sid=REAL", ClientError::Ambiguous),
        (b"sid; sid=REAL", ClientError::Ambiguous),
        (b"sid=REAL,RANDOM", ClientError::Malformed),
        (b"sid=\"REALx", ClientError::Malformed),
        (b"sid=\"RE\\101L\"", ClientError::Malformed),
        (b"sid=REAL RANDOM", ClientError::Malformed),
        (b"sid=%4", ClientError::Malformed),
        (b"sid=REAL%00RANDOM", ClientError::Malformed),
        (b"sid=\"\"", ClientError::Missing),
    ] {
        assert_eq!(cookie(spelling), Err(why), "{}", spelling.escape_ascii());
    }
}

#[test]
fn cookie_in_another_case_is_another_cookie() {
    let client = cookie(b"sid=abc");
    for sent in [&b"sid=abc; SID=x"[..], b"SID=x; sid=abc", b"Sid=x; sid=abc; SID=y", b"SID=x, y; sid=abc"] {
        assert_eq!(cookie(sent), client, "{}", sent.escape_ascii());
    }
    assert_eq!(cookie(b"SID=a; Sid=b"), Err(ClientError::Ambiguous), "the cookie of an origin that ignores the case");
}

#[test]
fn duplicates_decide_about_different_values_only() {
    let cookie = ClientSource::Cookie("sid".into());
    let query = ClientSource::Query("key".into());
    let header = ClientSource::Header(HeaderName::from_static("x-api-key"));
    let identify = |source: &ClientSource, sent: &[&'static str], duplicates| {
        let fields = |name: &'static str| sent.iter().map(move |value| (name, value.as_bytes()));
        let fields: Vec<_> = match source {
            ClientSource::Cookie(_) => fields("cookie").collect(),
            _ => fields("x-api-key").collect(),
        };
        let (headers, query) = (headers(&fields), sent.join("&"));
        source.identify_with(&facts(&headers, &query), &AddressRules::default(), duplicates)
    };
    for (source, value, equal, different) in [
        (&cookie, ["sid=a"], &["sid=a; sid=a", " sid = a"][..], &["sid=a; sid=b", "sid=c"][..]),
        (&cookie, ["sid=a"], &["sid=a", "sid=a"], &["s%69d=a; sid[]=b"]),
        (&cookie, ["SID=a"], &["SID=a; SID=a"], &["SID=a; Sid=b"]),
        (&query, ["key=a"], &["key=a", "key=a"], &["key=a", "KEY=b", "key=c"]),
        (&query, ["key=a"], &["key=a", "x=1", "key=a"], &["key=a;x"]),
        (&header, ["a"], &["a", " a ", "a"], &["a", "b", "a"]),
    ] {
        let client = identify(source, &value, Duplicates::Reject);
        assert!(client.is_ok(), "{source}");
        for duplicates in Duplicates::ALL {
            assert_eq!(identify(source, equal, *duplicates), client, "{source} {equal:?} {duplicates:?}");
        }
        for (duplicates, expected) in [
            (Duplicates::Reject, Err(ClientError::Ambiguous)),
            (Duplicates::First, client),
            (Duplicates::Missing, Err(ClientError::Missing)),
        ] {
            assert_eq!(identify(source, different, duplicates), expected, "{source} {different:?} {duplicates:?}");
        }
    }
}

#[test]
fn other_spelling_of_a_query_is_the_same_client() {
    let client = query("key=abc").expect("a client");
    for spelling in ["a=1&key=abc", "k%65y=%61bc", "KEY=abc", "+key=abc+", "key%00x=abc", "a=%&key=abc", "a;b&key=abc"]
    {
        assert_eq!(query(spelling), Ok(client.clone()), "{spelling}");
    }
    assert_eq!(query("key=a+b"), query("key=a%20b"));
    for (spelling, why) in [
        ("key=RANDOM&%6bey=REAL", ClientError::Ambiguous),
        ("key=RANDOM&key[]=REAL", ClientError::Ambiguous),
        ("key%5B0%5D=REAL", ClientError::Ambiguous),
        ("key=RANDOM&a;key=REAL", ClientError::Ambiguous),
        ("a;key=REAL", ClientError::Ambiguous),
        ("key=REAL;RANDOM", ClientError::Ambiguous),
        ("key&key=REAL", ClientError::Ambiguous),
        ("key=RANDOM&%u006bey=REAL", ClientError::Malformed),
        ("key=REAL%", ClientError::Malformed),
        ("key=REAL%00RANDOM", ClientError::Malformed),
        ("keys=REAL", ClientError::Missing),
    ] {
        assert_eq!(query(spelling), Err(why), "{spelling}");
    }
    let php = |sent: &str| identify(&ClientSource::Query("api_key".into()), &[], sent);
    assert_eq!(php("api.key=a"), php("api_key=a"));
    assert_eq!(php("api_key=RANDOM&api+key=REAL"), Err(ClientError::Ambiguous));
}

#[test]
fn other_spelling_of_credentials_is_the_same_client() {
    let client = authorization(b"Bearer tok").expect("a client");
    for spelling in [&b"bEaReR   tok"[..], b"bearer tok", b"Bearer\ttok ", b"BEARER \t tok"] {
        assert_eq!(authorization(spelling), Ok(client.clone()), "{}", spelling.escape_ascii());
    }
    assert_ne!(authorization(b"Bearer TOK"), Ok(client));
    assert_ne!(authorization(b"KEY"), authorization(b"key"), "a key without a scheme");
    assert_eq!(authorization(b"Basic dXNlcjpwYXNzMQ=="), authorization(b"basic  dXNlcjpwYXNzMQ"));
    assert!(authorization(b"Digest username=\"a b\", realm=x").is_ok());
    for spelling in [
        &b"Bearer REAL RANDOM"[..],
        b"Bearer REAL x=RANDOM",
        b"ApiKey REAL x=RANDOM",
        b"ApiKey REAL== x=RANDOM",
        b"Basic dXNlcjp!wYXNzMQ==",
        b"Basic dXNlcjpwYXNzMR==",
        b"Bearer eyJhbGciOiJub25lIn0.e30.AB",
        b"Bearer eyJhbGciOiJub25lIn0.e30.AA~~",
    ] {
        assert_eq!(authorization(spelling), Err(ClientError::Malformed), "{}", spelling.escape_ascii());
    }
    assert_eq!(
        authorization(b"Bearer eyJhbGciOiJub25lIn0.e30.-_8="),
        authorization(b"Bearer eyJhbGciOiJub25lIn0.e30.+/8")
    );
    assert_eq!(api_key(b"abc\xa0"), api_key(b"abc"));
    assert_ne!(api_key(b"a, b"), api_key(b"a"), "a comma is part of the value");
}

/// Decodes valid percent-encoding and keeps invalid percent-encoding, as PHP and Rack do.
fn percent(text: &str, plus: bool) -> String {
    let text = if plus { text.replace('+', " ") } else { text.to_owned() };
    percent_decode_str(&text).map(char::from).collect()
}

/// Splits a text into `name=value` pairs.
fn pairs<'t>(text: &'t str, separators: &'t [char]) -> impl DoubleEndedIterator<Item = (&'t str, &'t str)> {
    text.split(separators).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Returns the value of the cookie `sid` according to several origins.
fn cookie_origins(field: &str) -> Vec<(&'static str, Option<String>)> {
    let quoted = |value: &str| match value.strip_prefix('"') {
        Some(rest) => rest.get(..rest.len().saturating_sub(1)).unwrap_or_default().to_owned(),
        None => value.to_owned(),
    };
    let php = pairs(field, &[';']).map(|(name, value)| (percent(name.trim_start(), false), percent(value, false)));
    let php = php.map(|(name, value)| (name.replace(['.', ' '], "_"), value)).find(|(name, _)| name == "sid");
    let mut node = pairs(field, &[';']).map(|(name, value)| (name.trim(), quoted(value.trim())));
    let node = node.find(|(name, _)| *name == "sid").map(|(_, value)| percent(&value, false));
    let mut django = pairs(field, &[';']).rev().map(|(name, value)| (name.trim(), value.trim().trim_matches('"')));
    let mut rack = pairs(field, &[';', ',']).map(|(name, value)| (percent(name.trim(), true), percent(value, true)));
    // ASP.NET ignores the case. The gateway does so only in a request without the cookie itself: other services of the
    // domain may set cookies in another case.
    let has_cookie = pairs(field, &[';', ',']).any(|(name, _)| {
        let name = percent(name, true);
        name.trim().split('[').next() == Some("sid")
    });
    let asp = pairs(field, &[';']).rev().filter(|_| !has_cookie);
    let mut asp = asp.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()));
    vec![
        ("php", php.map(|(_, value)| value)),
        ("node", node),
        ("django", django.find(|(name, _)| *name == "sid").map(|(_, value)| value.to_owned())),
        ("rack", rack.find(|(name, _)| name == "sid").map(|(_, value)| value)),
        ("asp.net", asp.find(|(name, _)| name == "sid").map(|(_, value)| value.to_owned())),
    ]
}

/// Returns the value of the parameter `key` according to several origins.
fn query_origins(text: &str) -> Vec<(&'static str, Option<String>)> {
    let decoded = |(name, value): (&str, &str)| (percent(name, true), percent(value, true));
    let first = pairs(text, &['&']).map(decoded).find(|(name, _)| name == "key");
    let php = |(name, value): (String, String)| (name.trim_start().split('[').next().unwrap_or("").to_owned(), value);
    let php = pairs(text, &['&']).rev().map(decoded).map(php).find(|(name, _)| name == "key");
    let python = pairs(text, &['&', ';']).map(decoded).find(|(name, _)| name == "key");
    let perl = pairs(text, &['&', ';']).rev().map(decoded).find(|(name, _)| name.trim() == "key");
    let asp = pairs(text, &['&']).rev().map(decoded).find(|(name, _)| name.eq_ignore_ascii_case("key"));
    let named = [("java", first), ("php", php), ("python", python), ("perl", perl), ("asp.net", asp)];
    named.map(|(name, found)| (name, found.map(|(_, value)| value))).to_vec()
}

/// Returns the token of `Authorization` according to several origins.
fn token_origins(field: &str) -> Vec<(&'static str, Option<String>)> {
    let (scheme, rest) = field.split_once([' ', '\t']).unwrap_or((field, ""));
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    let second = field.split_whitespace().nth(1);
    vec![
        ("express", second.filter(|_| is_bearer).map(str::to_owned)),
        ("spring", Some(rest.trim().to_owned()).filter(|_| is_bearer)),
    ]
}

/// Checks that the gateway finds the client of the value that each origin reads, or no client.
fn agree(
    read: Vec<(&'static str, Option<String>)>,
    ours: &Result<ClientId, ClientError>,
    plain: impl Fn(&str) -> Result<ClientId, ClientError>,
) -> Result<(), TestCaseError> {
    for (origin, value) in read {
        let value = value.unwrap_or_default();
        let value = value.trim();
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_lowercase()) {
            continue;
        }
        let is_rejected = matches!(ours, Err(ClientError::Ambiguous | ClientError::Malformed));
        prop_assert!(is_rejected || *ours == plain(value), "{} reads {}, and we {:?}", origin, value, ours);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn cookie_is_the_client_that_origins_read_or_none(
        field in "(sid|s%69d|SID|sid\\[\\]|s\\.d| sid|[=;, \"]|=|; |ab|a%62|%61|[ab+%\\\\]|%20|sid=ab; |sid=b){0,9}",
    ) {
        agree(cookie_origins(&field), &cookie(field.as_bytes()), |value| cookie(format!("sid={value}").as_bytes()))?;
    }

    #[test]
    fn query_is_the_client_that_origins_read_or_none(
        text in "(key|k%65y|Key|key\\[\\]|[=;&+]|=|&|ab|a%62|%61|[ab%]|%20|%5B|%5D|key=ab&|key=b){0,9}",
    ) {
        agree(query_origins(&text), &query(&text), |value| query(&format!("key={value}")))?;
    }

    #[test]
    fn token_is_the_client_that_origins_read_or_none(field in "(Bearer|bEaReR|ab|a|b|=|,|[ \t]){1,8}") {
        let ours = authorization(field.as_bytes());
        agree(token_origins(&field), &ours, |value| authorization(format!("Bearer {value}").as_bytes()))?;
    }

    #[test]
    fn equal_base64_of_a_lenient_decoder_is_one_client_or_none(token in "[AQgw8+/_!=-]{0,8}") {
        // Skips other characters and accepts both alphabets, as PHP, Python and Node do.
        let decode_leniently = |text: &str| {
            let bits = text.bytes().filter_map(|byte| Some(match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            }));
            let bits: String = bits.map(|value| format!("{value:06b}")).collect();
            bits[..bits.len() / 8 * 8].to_owned()
        };
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let canonical: String = decode_leniently(&token).as_bytes().chunks(6).map(|bits| {
            let value = bits.iter().fold(0, |value, bit| value << 1 | usize::from(bit - b'0')) << (6 - bits.len());
            char::from(letters[value])
        }).collect();
        let basic = |token: &str| authorization(format!("Basic {token}").as_bytes());
        let ours = basic(&token);
        if !canonical.is_empty() {
            prop_assert!(ours == Err(ClientError::Malformed) || ours == basic(&canonical), "{} {:?}", canonical, ours);
        }
    }
}

#[test]
fn shown_value_is_decoded_and_bounded() {
    let mut encoded = Vec::new();
    append(&mut encoded, b'h', "x-key", b"K-1");
    assert_eq!(shown_value(&encoded, 8), "K-1");
    append(&mut encoded, b'i', "", b"192.0.2.1");
    assert_eq!(shown_value(&encoded, 128), "K-1, 192.0.2.1");
    assert_eq!(shown_value(&encoded, 8), "K-1, 192...");
    let mut long = Vec::new();
    append(&mut long, b'h', "x-key", "\u{e9}".repeat(1000).as_bytes());
    assert_eq!(shown_value(&long, 7), "\u{e9}".repeat(3) + "...");
    for end in 0..encoded.len() {
        assert!(shown_value(&encoded[..end], 128).len() <= 131, "{end}");
    }
}
