//! Whatever fields a request has, what is written to its origin has one meaning, and that of what was sent.

use std::collections::BTreeMap;

use http_body::{Body, SizeHint};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::http1::{Framing, ParsedRequest, read_request, write_request};
use crate::sanitize::{hop_by_hop, name};

const PEER: &str = "192.0.2.7";

/// Names in all spellings: what frames, routes, belongs to a connection, is believed, and what is nothing special.
const NAMES: [&str; 40] = [
    "Host",
    "Content-Length",
    "content-length",
    "Transfer-Encoding",
    "transfer_encoding",
    "Content_Length",
    "Connection",
    "connection",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Upgrade",
    "HTTP2-Settings",
    "Trailer",
    "Expect",
    "Via",
    "Cookie",
    "cookie",
    "Authorization",
    "X-Forwarded-For",
    "x-forwarded-for",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Port",
    "X_Forwarded_For",
    "X.Forwarded.For",
    "X-Real-IP",
    "Forwarded",
    "Proxy",
    "X-Original-URL",
    "X-HTTP-Method-Override",
    "X-Own",
    "x-own",
    "X-Other",
    "Accept",
    "X-Named",
    "x_odd",
    "a!b",
    "Max-Forwards",
    "Range",
];

const VALUES: [&str; 24] = [
    "",
    "a",
    "5",
    "05",
    "5, 5",
    "0",
    "+5",
    "chunked",
    "Chunked",
    "gzip, chunked",
    "close",
    "keep-alive",
    "X-Named",
    "te, X-Own",
    "host",
    "Content-Length",
    "trailers",
    "gzip, trailers",
    "100-continue",
    "a=1",
    "1.1 tidegate",
    "X-Sum, Host",
    "b; c=\"d\"",
    "198.51.100.1",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    let any = prop::collection::vec(prop_oneof![9 => 0x20_u8..0x7f, 1 => 0x80_u8..=0xff, 1 => Just(b'\t')], 0..12);
    prop_oneof![3 => prop::sample::select(VALUES.to_vec()).prop_map(|text| text.as_bytes().to_vec()), 1 => any]
}

fn fields() -> impl Strategy<Value = Vec<(&'static str, Vec<u8>)>> {
    prop::collection::vec((prop::sample::select(NAMES.to_vec()), value()), 0..10)
}

/// A body of which only the length is looked at.
struct Sized(Option<u64>);

impl Body for Sized {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.0 == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// What an origin is sent of a request; nothing if it goes no further.
fn written(request: Request<()>, body: Option<u64>, trusted: bool) -> Option<Vec<u8>> {
    let mut request = request.map(|()| RequestBody::new(Sized(body)));
    let field_filter = FieldFilter::default();
    let context = RequestContext { version: request.version(), trusted, next: NextHop::Origin };
    let kinds = field_filter.apply(request.headers_mut(), context).ok()?;
    let peer = ForwardPeer { address: PEER.parse().unwrap(), trusted, over_tls: false };
    let upstream = HeaderValue::from_static("upstream.example");
    head::request(
        &mut request,
        ForwardInput { peer, kinds, field_filter: Some(&field_filter), default_host: &upstream },
    )
    .ok()?;
    let mut bytes = Vec::new();
    write_request(&mut bytes, &request);
    Some(bytes)
}

type Fields = BTreeMap<String, Vec<Vec<u8>>>;

/// The fields of a head, read by another reader, of a head that nobody could read in another way.
fn read_strictly(bytes: &[u8]) -> Fields {
    let lines = bytes.strip_suffix(b"\r\n\r\n").unwrap();
    for line in lines.split(|byte| *byte == b'\r').enumerate().map(|(i, line)| if i == 0 { line } else { &line[1..] }) {
        assert!(!line.is_empty() && !line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{line:?}");
    }
    let mut room = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut room);
    assert_eq!(request.parse(bytes), Ok(httparse::Status::Complete(bytes.len())));
    assert_eq!(request.version, Some(1));
    let mut fields = Fields::new();
    for field in request.headers {
        fields.entry(field.name.to_owned()).or_default().push(field.value.to_vec());
    }
    fields
}

/// Holds what was written against what was sent.
fn hold(sent: &HeaderMap, written: &[u8], body: Option<u64>, trusted: bool) {
    let fields = read_strictly(written);
    let texts = |name: &str| {
        let values = fields.get(name).into_iter().flatten();
        values.map(|value| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts("host").len(), 1);
    let (lengths, codings) = (texts("content-length"), texts("transfer-encoding"));
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => assert_eq!(body, Some(0)),
        ([length], []) => assert_eq!(Some(length.clone()), body.map(|length| length.to_string())),
        ([], [coding]) => assert!(coding == "chunked" && body != Some(0)),
        framing => panic!("{framing:?}"),
    }
    let (connection, te) = (texts("connection"), texts("te"));
    assert!((connection.is_empty() && te.is_empty()) || (connection == ["te"] && te == ["trailers"]));
    assert!(texts("cookie").len() <= 1 && texts("via").last().unwrap().ends_with("tidegate"));
    for one in ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"] {
        assert!(trusted || texts(one).len() == 1, "{one}");
    }
    assert!(texts("x-forwarded-for")[0].ends_with(PEER) && (trusted || texts("x-forwarded-for") == [PEER]));
    let strip = crate::rules::Strip::default();
    let (own, rewritten) =
        (["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"], ["host", "content-length", "cookie", "via"]);
    let named = |other: &str| {
        let lines = sent.get_all("connection").iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        lines.map(<[u8]>::trim_ascii).any(|option| option.eq_ignore_ascii_case(other.as_bytes()))
    };
    for name in fields.keys().map(|name| HeaderName::from_bytes(name.as_bytes()).unwrap()) {
        let text = name.as_str();
        assert!(!name::has_unusual_chars(text), "{name}");
        assert!(trusted || own.contains(&text) || !strip.has(text), "{name}");
        assert!(
            !hop_by_hop::is_hop_by_hop(&name) || ["connection", "te", "transfer-encoding"].contains(&text),
            "{name}"
        );
        assert!(text == "te" || !named(text), "{name}");
    }
    // Whatever is none of these arrives as it was sent.
    for name in sent.keys().filter(|name| {
        !hop_by_hop::is_hop_by_hop(name) && !name::has_unusual_chars(name.as_str()) && !named(name.as_str())
    }) {
        let text = name.as_str();
        let is_changed = own.contains(&text) || rewritten.contains(&text) || ["trailer", "expect"].contains(&text);
        if !is_changed && (trusted || !strip.has(text)) {
            let sent: Vec<_> = sent.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect();
            assert_eq!(fields.get(text), Some(&sent), "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_head_of_http1_is_sent_on_with_one_meaning(fields in fields(), version in 0..2_u8, trusted: bool) {
        let mut bytes = format!("POST /a HTTP/1.{version}\r\nHost: a\r\n").into_bytes();
        for (name, value) in &fields {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        if let Ok(Some(ParsedRequest { request, framing_fields, .. })) = read_request(&Bytes::from(bytes), &mut HeaderMap::new(), 100) {
            let body = match Framing::of_request(framing_fields) {
                Framing::Length(length) => Some(length),
                _ => None,
            };
            let sent = request.headers().clone();
            if let Some(written) = written(request, body, trusted) {
                hold(&sent, &written, body, trusted);
            }
        }
    }

    #[test]
    fn a_head_of_http2_is_sent_on_with_one_meaning(fields in fields(), length in prop::option::of(0..9_u64), trusted: bool) {
        let mut request = Request::post("http://a/").version(Version::HTTP_2).body(()).unwrap();
        for (name, value) in fields.iter().filter(|(name, _)| !hop_by_hop::is_hop_by_hop(&HeaderName::from_bytes(name.as_bytes()).unwrap())) {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request.headers_mut().append(*name, value);
            }
        }
        let sent = request.headers().clone();
        // Without a field that tells it, no length but that of nothing is known.
        let length = length.filter(|length| *length == 0 || sent.contains_key("content-length"));
        if let Some(written) = written(request, length, trusted) {
            hold(&sent, &written, length, trusted);
        }
    }
}

#[test]
fn most_of_these_heads_go_on() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let count = 500;
    let gone_on = (0..count).filter(|_| {
        let fields = fields().new_tree(&mut runner).unwrap().current();
        let mut request = Request::post("http://a/").version(Version::HTTP_11).body(()).unwrap();
        for (name, value) in &fields {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request.headers_mut().append(*name, value);
            }
        }
        written(request, None, false).is_some()
    });
    assert!(gone_on.count() > count / 4, "the property is held against too little");
}
