//! Properties of rewritten request heads, and the size of request futures.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use tower::Layer;

use super::*;
use crate::http::http1::{Framing, ParsedRequest, read_request, write_request};
use crate::transport::BodyData;
use tidegate_layer::layer::RateLimitLayer;
use tidegate_rules::request::sanitize::{FieldFilter, NextHop, RequestContext, hop_by_hop, name};

const PEER: &str = "192.0.2.7";

/// Field names in several spellings: framing, routing, hop-by-hop and forwarding fields, and fields without a special
/// meaning.
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

/// A body with a length and no content.
struct EmptyBody(Option<u64>);

impl Body for EmptyBody {
    type Data = BodyData;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.0 == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Returns the head that is written to the origin. Returns `None` if the request is rejected.
fn rewritten_head(request: Request<()>, body: Option<u64>, trusted: bool) -> Option<Vec<u8>> {
    let mut request = request.map(|()| RequestBody::new(EmptyBody(body)));
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

/// Parses a head with `httparse`. Panics if other parsers could parse it in a different way.
fn parse_strictly(bytes: &[u8]) -> Fields {
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

/// Compares the fields that a client has sent with the rewritten head.
fn check_rewritten(sent: &HeaderMap, written: &[u8], body: Option<u64>, trusted: bool) {
    let fields = parse_strictly(written);
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
    let strip = tidegate_rules::rules::Strip::default();
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
    // All other fields are forwarded unchanged.
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
    fn rewritten_http1_head_is_unambiguous(fields in fields(), version in 0..2_u8, trusted: bool) {
        let mut bytes = format!("POST /a HTTP/1.{version}\r\nHost: a\r\n").into_bytes();
        for (name, value) in &fields {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        let parsed = read_request(&Bytes::from(bytes), &mut HeaderMap::new(), 100);
        if let Ok(Some(ParsedRequest { request, framing_fields, .. })) = parsed {
            let body = match Framing::of_request(framing_fields) {
                Framing::Length(length) => Some(length),
                _ => None,
            };
            let sent = request.headers().clone();
            if let Some(written) = rewritten_head(request, body, trusted) {
                check_rewritten(&sent, &written, body, trusted);
            }
        }
    }

    #[test]
    fn rewritten_http2_head_is_unambiguous(
        fields in fields(),
        length in prop::option::of(0..9_u64),
        trusted: bool,
    ) {
        let mut request = Request::post("http://a/").version(Version::HTTP_2).body(()).unwrap();
        let is_end_to_end = |name: &str| !hop_by_hop::is_hop_by_hop(&name.parse().unwrap());
        for (name, value) in fields.iter().filter(|(name, _)| is_end_to_end(name)) {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request.headers_mut().append(*name, value);
            }
        }
        let sent = request.headers().clone();
        // Without `Content-Length`, only the length of an empty body is known.
        let length = length.filter(|length| *length == 0 || sent.contains_key("content-length"));
        if let Some(written) = rewritten_head(request, length, trusted) {
            check_rewritten(&sent, &written, length, trusted);
        }
    }
}

#[test]
fn most_generated_heads_are_forwarded() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let count = 500;
    let forwarded = (0..count).filter(|_| {
        let fields = fields().new_tree(&mut runner).unwrap().current();
        let mut request = Request::post("http://a/").version(Version::HTTP_11).body(()).unwrap();
        for (name, value) in &fields {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request.headers_mut().append(*name, value);
            }
        }
        rewritten_head(request, None, false).is_some()
    });
    assert!(forwarded.count() > count / 4, "too few generated heads are forwarded");
}

/// The largest allocation that the allocator serves from its size classes.
const SMALL_ALLOCATION: usize = 1024;

#[tokio::test]
async fn request_future_fits_into_a_small_allocation() {
    let mut forward = Forward;
    let mut limited =
        RateLimitLayer::from_yaml("routes: [{ name: all, match: { path: /** } }]").unwrap().layer(forward.clone());
    let request = || Request::new(RequestBody::none());
    let sizes = [size_of_val(&*limited.call(request())), size_of_val(&*forward.call(request()))];
    assert!(sizes.iter().all(|size| *size <= SMALL_ALLOCATION), "{sizes:?}");
}

#[tokio::test]
async fn request_without_a_permit_is_not_forwarded() {
    let mut forward = Forward;
    let response = forward.call(Request::new(RequestBody::none())).await.unwrap_or_else(|never| match never {});
    assert_eq!(response.status(), 500);
    assert!(response.extensions().get::<NotSent>().is_some());
}
