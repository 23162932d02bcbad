//! Fuzzes HTTP messages: a second, strict reader must read each forwarded message as exactly one message, with the path
//! that the limits were evaluated for.

use std::net::{IpAddr, Ipv4Addr};

use http::Method;
use tidegate::internals::{DecodedBody, Pipeline, PipelineOutcome, decode_chunked};

use crate::support::strict::{self, Message, Parsed};

const RULES: &str = "
store: memory
upstreams: { origin: { targets: [builtin:echo] } }
routes:
  - name: login
    match: { path: /login, methods: [POST] }
    upstream: origin
    limits:
      - { name: total, mode: OVERALL, rate: 1000000000, interval: 1s, algorithm: gcra, burst: 1000000000 }
  - name: all
    match: { path: /** }
    upstream: origin
";

/// The most fields that the gateway reads. A forwarded message can have more, because the gateway adds some.
const MAX_FIELDS: usize = 100;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// Fields that the gateway removes: forwarding fields of untrusted peers, and hop-by-hop fields.
const REMOVED: [&str; 5] = ["forwarded", "x-real-ip", "keep-alive", "proxy-connection", "upgrade"];

fn with_pipeline<T>(work: impl FnOnce(&Pipeline) -> T) -> T {
    thread_local! {
        static PIPELINE: Pipeline = Pipeline::new(RULES).unwrap_or_else(|error| panic!("{error}"));
    }
    PIPELINE.with(work)
}

/// Parses, evaluates, rewrites and writes a request, and parses the result again.
pub fn request(data: &[u8]) {
    with_pipeline(|pipeline| {
        let PipelineOutcome::Forwarded { bytes, length, path } = pipeline.request(data, PEER) else { return };
        let sent = single_message(strict::request(&bytes), &bytes);
        let target = sent.method_and_target().split_once(' ').map(|(_, target)| target).unwrap_or_default();
        assert_eq!(target.split('?').next(), Some(&path[..]), "evaluated another path than was forwarded");
        assert_eq!(sent.values("x-forwarded-for"), [PEER.to_string()], "another client's address");
        let connection = sent.values("connection");
        assert!(connection.is_empty() || connection == ["te"], "{connection:?}");
        for name in REMOVED {
            assert!(sent.values(name).is_empty(), "{name} was forwarded");
        }
        // Without its last byte the request is incomplete, and the following bytes do not change it.
        assert!(
            matches!(pipeline.request(&data[..length - 1], PEER), PipelineOutcome::Incomplete),
            "complete before its end"
        );
        let followed = [&data[..length], b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let again = pipeline.request(&followed, PEER);
        assert_eq!(
            again,
            PipelineOutcome::Forwarded { bytes: bytes.clone(), length, path: path.clone() },
            "changed by the following bytes"
        );
        // The gateway reads the forwarded request as the same request.
        match pipeline.request(&bytes, PEER) {
            PipelineOutcome::Forwarded { bytes: twice, length, path: same } => {
                let twice = single_message(strict::request(&twice), &twice);
                assert_eq!((length, &same, twice.method_and_target()), (bytes.len(), &path, sent.method_and_target()));
                assert_eq!((twice.body, twice.trailers), (sent.body, sent.trailers));
            }
            PipelineOutcome::Responded(_) => {}
            PipelineOutcome::Malformed if sent.fields.len() > MAX_FIELDS => {}
            other => panic!("{other:?}: {:?}", String::from_utf8_lossy(&bytes)),
        }
    });
}

/// Parses, rewrites and writes a response, and parses the result again.
pub fn response(data: &[u8]) {
    for method in [Method::GET, Method::HEAD] {
        with_pipeline(|pipeline| {
            let PipelineOutcome::Forwarded { bytes, length, .. } = pipeline.response(data, &method) else { return };
            let head_only = method == Method::HEAD;
            let sent = single_message(strict::response(&bytes, head_only, false), &bytes);
            assert!(length <= data.len());
            assert!(sent.values("connection").is_empty() && sent.values("upgrade").is_empty());
            match pipeline.response(&bytes, &method) {
                PipelineOutcome::Forwarded { bytes: twice, length, .. } => {
                    let twice = single_message(strict::response(&twice, head_only, false), &twice);
                    assert_eq!((length, twice.status(), twice.body), (bytes.len(), sent.status(), sent.body));
                }
                PipelineOutcome::Malformed if sent.fields.len() > MAX_FIELDS => {}
                other => panic!("{other:?}: {:?}", String::from_utf8_lossy(&bytes)),
            }
        });
    }
}

/// Returns the message, which must use all of the bytes.
fn single_message(front: Parsed, bytes: &[u8]) -> Message {
    match front {
        Parsed::Complete(message, length) if length == bytes.len() => message,
        other => panic!("{other:?}: {:?}", String::from_utf8_lossy(bytes)),
    }
}

/// Checks that a chunked body decodes to the same data however it is split, and as in a second decoder.
pub fn chunks(data: &[u8]) {
    let [cut, body @ ..] = data else { return };
    let whole = decode_chunked([body]);
    let cut = usize::from(*cut) % (body.len() + 1);
    assert_eq!(decode_chunked([&body[..cut], &body[cut..]]), whole, "depends on the split");
    assert_eq!(decode_chunked(body.chunks(1)), whole, "depends on the split");
    let Ok(Some(DecodedBody { data, rest, .. })) = whole else { return };
    let (expected, length) =
        decode(body).unwrap_or_else(|| panic!("not a chunked body: {:?}", String::from_utf8_lossy(body)));
    assert_eq!((data, body.len() - rest), (expected, length), "the decoders disagree");
}

/// A simple decoder that splits lines, and cuts chunk extensions at the semicolon.
fn decode(body: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let line = line(body, &mut at)?;
        let size = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
        let size = std::str::from_utf8(size).ok().filter(|size| size.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            break;
        }
        data.extend_from_slice(body.get(at..at.checked_add(size)?)?);
        at += size;
        if !self::line(body, &mut at)?.is_empty() {
            return None;
        }
    }
    while !line(body, &mut at)?.is_empty() {}
    Some((data, at))
}

/// Reads a line up to CR LF. Returns `None` if the line contains a CR or LF.
fn line<'b>(bytes: &'b [u8], at: &mut usize) -> Option<&'b [u8]> {
    let rest = bytes.get(*at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    *at += end + 2;
    let line = &rest[..end];
    (!line.contains(&b'\n') && !line.contains(&b'\r')).then_some(line)
}
