//! Pseudo-header fields in trailers and in responses, which the gateway drops. RFC 9113 (sections 8.1 and 8.3) calls such
//! messages malformed, but nothing of these fields reaches a recipient.

use crate::support::gateway::TestGateway;
use crate::support::wire::frames::*;
use crate::support::wire::upstream::Origin;

#[tokio::test]
async fn pseudo_header_fields_in_request_trailers_are_dropped() {
    let origin = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let gateway = TestGateway::start(&format!(
        "upstreams: {{ origin: {{ targets: ['http://{}'] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: origin }}]
",
        origin.address
    ));
    let mut client = Frames::connect(gateway.address, &[]).await;
    let sum = fields([("x-sum", "1")]);
    let trailers: [&[u8]; 6] = [
        &fields([(":path", "/x")]),
        &fields([(":authority", "a")]),
        &fields([(":status", "200")]),
        &[0x82],                                           // :method GET, indexed
        &[0x44, 2, b'/', b'x'],                            // :path /x, with an indexed name
        &[0x00, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 0x01, b'x'], // a name in Huffman code
    ];
    for (stream, pseudo) in (1..).step_by(2).zip(trailers) {
        client.open(stream, "POST", "/", &[], false).await;
        client.frame(DATA, 0, stream, b"body").await;
        client.frame(HEADERS, END_HEADERS | END_STREAM, stream, &[pseudo, &sum].concat()).await;
        assert_eq!(client.status(stream).await, 200, "{pseudo:02x?}");
        let request = origin.last_request();
        assert_eq!((request.body, request.trailers), (b"body".to_vec(), vec![("x-sum".to_owned(), "1".to_owned())]));
    }
    // After another field they end the stream.
    client.open(101, "POST", "/", &[], false).await;
    client.frame(HEADERS, END_HEADERS | END_STREAM, 101, &[&sum[..], &[0x82]].concat()).await;
    assert_eq!(client.reset_code(101).await, PROTOCOL_ERROR);
}
