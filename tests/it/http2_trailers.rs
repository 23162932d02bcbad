//! Pseudo-header fields in trailers, which make a request malformed (RFC 9113 section 8.1).

use crate::support::gateway::TestGateway;
use crate::support::wire::frames::*;
use crate::support::wire::upstream::Origin;

/// Returns a gateway with one route to `origin`.
fn gateway(origin: &Origin) -> TestGateway {
    TestGateway::start(&format!(
        "upstreams: {{ origin: {{ targets: ['http://{}'] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: origin }}]
",
        origin.address
    ))
}

async fn healthy() -> Origin {
    Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await
}

/// Opens a stream with a body and these trailers.
async fn post(client: &mut Frames, stream: u32, trailers: &[u8]) {
    client.open(stream, "POST", "/", &[], false).await;
    client.frame(DATA, 0, stream, b"body").await;
    client.frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers).await;
}

/// Regression test: the gateway accepted such trailers, without the pseudo-header fields.
#[tokio::test]
async fn pseudo_header_in_trailers_is_a_protocol_error() {
    let origin = healthy().await;
    let gateway = gateway(&origin);
    let mut client = Frames::connect(gateway.address, &[]).await;
    let trailers: [&[u8]; 8] = [
        &fields([(":path", "/x")]),
        &fields([(":authority", "a"), ("x-sum", "1")]),
        &fields([(":status", "200")]),
        &[0x82],                                           // :method GET, indexed
        &[0x44, 2, b'/', b'x'],                            // :path /x, with an indexed name
        &[0x3f, 0xe1, 0x1f, 0x20, 0x3f, 0xe1, 0x1f, 0x84], // after changes of the table's size
        &[0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 0x01, b'x'], // a name in Huffman code, which begins with a colon
        &[0x10, 5, b':', b'p', b'a', b't', b'h', 1, b'/'], // never indexed
    ];
    for (stream, trailers) in (1..).step_by(2).zip(trailers) {
        post(&mut client, stream, trailers).await;
        assert_eq!(client.reset_code(stream).await, PROTOCOL_ERROR, "{trailers:02x?}");
    }
    // The connection stays open.
    post(&mut client, 101, &fields([("x-sum", "1")])).await;
    assert_eq!(client.status(101).await, 200);
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(gateway.counter("tidegate_rejected_total{cause=\"malformed\"}").await, 8);
}

/// Names in the dynamic table count as well, even after entries that other streams have added.
#[tokio::test]
async fn dynamic_pseudo_header_is_a_protocol_error() {
    let origin = healthy().await;
    let gateway = gateway(&origin);
    let mut client = Frames::connect(gateway.address, &[]).await;
    let head = [
        &[0x83, 0x86, 0x84][..],
        &[0x41, 1, b'a'],                      // :authority a, added: index 62, and 63 after the next
        &[0x40, 3, b'x', b'-', b'a', 1, b'1'], // x-a: 1, added
    ]
    .concat();
    client.frame(HEADERS, END_HEADERS, 1, &head).await;
    client.frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xbe]).await; // x-a: 1
    assert_eq!(client.status(1).await, 200);
    for (stream, trailers) in [(3, &[0xbf][..]), (5, &[0x0f, 48, 1, b'b']), (7, &[0x7f, 0, 1, b'b'])] {
        client.frame(HEADERS, END_HEADERS, stream, &[0x83, 0x86, 0x84, 0xbf]).await;
        client.frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers).await;
        assert_eq!(client.reset_code(stream).await, PROTOCOL_ERROR, "{trailers:02x?}");
    }
}

/// The frames can be padded, have a priority, or be split anywhere.
#[tokio::test]
async fn pseudo_header_is_found_in_split_frames() {
    let origin = healthy().await;
    let gateway = gateway(&origin);
    let mut client = Frames::connect(gateway.address, &[]).await;
    let block = fields([(":path", "/x"), ("x-sum", "1")]);
    let padded = [&[3, 0, 0, 0, 0, 9][..], &block, &[0, 0, 0]].concat();
    let frames = [
        Frame::bytes(HEADERS, END_HEADERS | END_STREAM | 0x28, 1, &padded),
        [
            Frame::bytes(HEADERS, END_STREAM, 3, &[]),
            Frame::bytes(CONTINUATION, 0, 3, &block[..2]),
            Frame::bytes(CONTINUATION, 0, 3, &[]),
            Frame::bytes(CONTINUATION, END_HEADERS, 3, &block[2..]),
        ]
        .concat(),
    ];
    for (stream, frames) in [1, 3].into_iter().zip(frames) {
        client.open(stream, "POST", "/", &[], false).await;
        for byte in frames {
            client.send([byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.reset_code(stream).await, PROTOCOL_ERROR);
    }
}
