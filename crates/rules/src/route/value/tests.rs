//! Table tests of values in all spellings.

use http::{HeaderMap, HeaderValue, Method, header};

use super::*;

fn facts<'a>(query: Option<&'a str>, headers: &'a HeaderMap) -> Facts<'a> {
    Facts {
        method: &Method::GET,
        host: "a".into(),
        path: "/".into(),
        query,
        headers,
        peer: None,
        peer_is_client: false,
        peer_is_trusted: false,
        tls: None,
        extensions: None,
        identity: None,
        time: None,
        body: None,
    }
}

/// Returns the results of `present`, `absent`, `2` and `[2, "3"]`.
fn results(source: &ValueSource, facts: &Facts<'_>) -> [Met; 4] {
    let one_of = |values: &[&str]| ValueTest::OneOf(values.iter().map(|value| value.as_bytes().into()).collect());
    let tests = [ValueTest::Present, ValueTest::Absent, one_of(&["2"]), one_of(&["2", "3"])];
    tests.map(|test| ValueCondition { source: source.clone(), test }.met(facts))
}

const NO: Met = Met::No;
const OR: Met = Met::Maybe;
const OK: Met = Met::Yes;

#[test]
fn query_parameters_are_read_in_all_ways() {
    let (source, headers) = (ValueSource::Query("v".into()), HeaderMap::new());
    for (query, expected) in [
        ("", [NO, OK, NO, NO]),
        ("w=2&vv=2&2=v", [NO, OK, NO, NO]),
        ("v=2", [OK, NO, OK, OK]),
        ("a=1&v=%32&b", [OK, NO, OK, OK]),
        ("%76=2", [OK, NO, OK, OK]),
        ("v=3", [OK, NO, NO, OK]),
        ("v=4", [OK, NO, NO, NO]),
        ("v=2&v=3", [OK, NO, OR, OR]),
        ("v=3&v=2", [OK, NO, OR, OR]),
        ("v=2&%76=2", [OK, NO, OR, OR]),
        ("v=4&v=5", [OK, NO, NO, NO]),
        ("V=2", [OR, OR, OR, OR]),
        ("V=4", [OR, OR, NO, NO]),
        ("v[]=2", [OR, OR, OR, OR]),
        ("v%5B0%5D=2", [OR, OR, OR, OR]),
        ("v=4&v[]=2", [OR, OR, OR, OR]),
        ("v=2;x=1", [OK, NO, OR, OR]),
        ("x=1;v=2", [OR, OR, OR, OR]),
        ("v=+2", [OK, NO, OR, OR]),
        ("v=2%00", [OK, NO, OR, OR]),
        ("v=%zz", [OK, NO, OR, OR]),
        ("+v=2", [OR, OR, OR, OR]),
        ("v%00x=2", [OR, OR, OR, OR]),
        ("%v=2", [OR, OR, OR, OR]),
        ("v", [OR, OR, NO, NO]),
        ("v=", [OR, OR, NO, NO]),
    ] {
        assert_eq!(results(&source, &facts(Some(query), &headers)), expected, "{query}");
    }
    assert_eq!(results(&source, &facts(None, &headers)), [NO, OK, NO, NO]);
}

/// Each part of a repeated value may be in another of its values: the joined text that some origins read can match.
#[test]
fn patterns_match_values_in_all_readings() {
    let (source, headers) = (ValueSource::Query("v".into()), HeaderMap::new());
    let parts = |prefix: &str, suffix: &str, regex: Option<&str>| {
        let regex = regex.and_then(|regex| ValueRegex::new(regex, Default::default()).ok());
        let (prefix, suffix) = (prefix.as_bytes().into(), suffix.as_bytes().into());
        ValuePattern::Parts(Box::new(ValueParts { prefix, suffix, regex, ..ValueParts::default() }))
    };
    let tests =
        [parts("2", "", None), parts("2", "3", None), parts("", "", Some("^2.*3$")), parts("", "", Some("^2+$"))];
    for (query, expected) in [
        ("v=2", [OK, NO, NO, OK]),
        ("v=2x3", [OK, OK, OK, NO]),
        ("v=4", [NO, NO, NO, NO]),
        ("v=%32", [OK, NO, NO, OK]),
        ("v=2&v=3", [OR, OR, OR, OR]),
        ("v=4&v=5", [NO, OR, OR, OR]),
        ("v=2;x=3", [OK, OR, OR, OR]),
        ("V=2", [OR, NO, NO, OR]),
    ] {
        let met = |pattern: &ValuePattern| {
            let test = ValueTest::OneOf(vec![pattern.clone()]);
            ValueCondition { source: source.clone(), test }.met(&facts(Some(query), &headers))
        };
        assert_eq!(tests.each_ref().map(met), expected, "{query}");
    }
}

fn lines(name: &HeaderName, values: &[&[u8]]) -> HeaderMap {
    values.iter().map(|value| (name.clone(), HeaderValue::from_bytes(value).expect("a header value"))).collect()
}

#[test]
fn cookies_are_read_in_all_ways() {
    let source = ValueSource::Cookie("v".into());
    let cases: [(&[&[u8]], _); 22] = [
        (&[], [NO, OK, NO, NO]),
        (&[b"w=2; vv=2"], [NO, OK, NO, NO]),
        (&[b"v=2"], [OK, NO, OK, OK]),
        (&[b"a=1;v=2 ; b=1"], [OK, NO, OK, OK]),
        (&[b"a=1", b"v=3"], [OK, NO, NO, OK]),
        (&[b"v=2", b"v=3"], [OK, NO, OR, OR]),
        (&[b"v=4; v=2"], [OK, NO, OR, OR]),
        (&[b"v=4; v=5"], [OK, NO, NO, NO]),
        (&[b"v=\"2\""], [OK, NO, OR, OR]),
        (&[b"v=\"2"], [OK, NO, OR, OR]),
        (&[b"v=%32"], [OK, NO, OR, OR]),
        (&[b"%76=2"], [OR, OR, OR, OR]),
        (&[b"V=2"], [OR, OR, OR, OR]),
        (&[b"v=2; v=2"], [OK, NO, OK, OK]),
        (&[b"v=2; v=2", b"v=3"], [OK, NO, OR, OR]),
        (&[b"v=2; V=4; V=5"], [OK, NO, OK, OK]),
        (&[b"V=2; v=4"], [OK, NO, NO, NO]),
        (&[b"x=1, v=2"], [OR, OR, OR, OR]),
        (&[b"v=2, x=1"], [OK, NO, OR, OR]),
        (&[b"v=2,v=2"], [OR, OR, OR, OR]),
        (&[b"v="], [OR, OR, NO, NO]),
        (&[b"v"], [OR, OR, NO, NO]),
    ];
    for (values, expected) in cases {
        let headers = lines(&header::COOKIE, values);
        assert_eq!(results(&source, &facts(None, &headers)), expected, "{headers:?}");
    }
}

#[test]
fn header_fields_are_read_in_all_ways() {
    let (name, list) = (HeaderName::from_static("x-v"), header::ACCEPT);
    let cases: [(&[&[u8]], _, _); 10] = [
        (&[], [NO, OK, NO, NO], [NO, OK, NO, NO]),
        (&[b"2"], [OK, NO, OK, OK], [OK, NO, OK, OK]),
        (&[b" 2\t"], [OK, NO, OK, OK], [OK, NO, OK, OK]),
        (&[b"3"], [OK, NO, NO, OK], [OK, NO, NO, OK]),
        (&[b"2", b"2"], [OK, NO, OK, OK], [OK, NO, OK, OK]),
        (&[b"4", b"2"], [OK, NO, OR, OR], [OK, NO, OK, OK]),
        (&[b"2, 3"], [OK, NO, NO, NO], [OK, NO, NO, NO]),
        (&[b"2\xa0"], [OK, NO, OR, OR], [OK, NO, OR, OR]),
        (&[b""], [OR, OR, NO, NO], [OR, OR, NO, NO]),
        (&[b"", b"2"], [OR, OR, OR, OR], [OK, NO, OK, OK]),
    ];
    for (values, single, of_list) in cases {
        for (name, expected) in [(&name, single), (&list, of_list)] {
            let headers = lines(name, values);
            assert_eq!(results(&ValueSource::Header(name.clone()), &facts(None, &headers)), expected, "{headers:?}");
        }
    }
}
