//! The windows that the gateway opens for uploads.

use crate::support::gateway::TestGateway;
use crate::support::wire::frames::*;
use crate::support::wire::upstream::Origin;

/// SETTINGS_INITIAL_WINDOW_SIZE of 64 KiB and of 96 KiB.
const NARROW: [u8; 6] = [0, 4, 0, 1, 0, 0];
const WIDE: [u8; 6] = [0, 4, 0, 1, 0x80, 0];

async fn gateway() -> TestGateway {
    let origin = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    TestGateway::start(&format!(
        "store: memory\nupstreams: {{ origin: {{ targets: ['http://{}'] }} }}
routes: [{{ name: all, match: {{}}, upstream: origin }}]\n",
        origin.address
    ))
}

/// Connects a client that has acknowledged the narrow window and opened a stream.
async fn client(gateway: &TestGateway) -> Frames {
    let mut client = Frames::connect(gateway.address, &[]).await;
    let settings = client.find(is_settings).await;
    assert!(settings.payload.chunks(6).any(|setting| setting == NARROW), "{settings:?}");
    client.frame(SETTINGS, ACK, 0, &[]).await;
    client.open(1, "POST", "/", &[], false).await;
    client
}

fn is_settings(frame: &Frame) -> bool {
    frame.kind == SETTINGS && frame.flags & ACK == 0
}

#[tokio::test]
async fn window_grows_for_a_long_upload() {
    let gateway = gateway().await;
    let mut client = client(&gateway).await;
    client.frame(DATA, 0, 1, &[7; 16 * 1024]).await;
    assert_eq!(client.find(is_settings).await.payload, WIDE);
    client.frame(SETTINGS, ACK, 0, &[]).await;
    for last in [false, true] {
        client.frame(DATA, u8::from(last), 1, &[7; 16 * 1024]).await;
    }
    assert_eq!(client.status(1).await, 200);
}

#[tokio::test]
async fn window_does_not_grow_for_small_messages() {
    let gateway = gateway().await;
    let mut client = client(&gateway).await;
    for _ in 0..70 {
        client.frame(DATA, 0, 1, &[7; 500]).await;
    }
    let of_stream = |frame: &Frame| is_settings(frame) || frame.stream == 1;
    assert_eq!(client.find(of_stream).await.kind, WINDOW_UPDATE);
    for number in 1..=10 {
        client.frame(DATA, u8::from(number == 10), 1, &[7; 500]).await;
    }
    while let frame = client.find(of_stream).await
        && frame.kind != HEADERS
    {
        assert_eq!(frame.kind, WINDOW_UPDATE);
    }
}

#[tokio::test]
async fn windows_do_not_grow_after_many_uploads() {
    let gateway = gateway().await;
    let mut client = client(&gateway).await;
    for stream in [3, 5, 7, 9] {
        client.open(stream, "POST", "/", &[], false).await;
    }
    for _ in 0..3 {
        client.frame(DATA, 0, 1, &[7; 16 * 1024]).await;
    }
    let of_upload = |frame: &Frame| is_settings(frame) || frame.stream == 1;
    assert_eq!(client.find(of_upload).await.kind, WINDOW_UPDATE);
    client.frame(DATA, 1, 1, &[7; 16 * 1024]).await;
    while let frame = client.find(of_upload).await
        && frame.kind != HEADERS
    {
        assert_eq!(frame.kind, WINDOW_UPDATE);
    }
}
