//! Uploads whose requests wait for permits do not stop another upload of their connection.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::support::gateway::TestGateway;

const RULES: &str = "store: memory
upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: waiting
    match: { path: /waiting }
    upstream: echo
    limits: [{ name: slow, mode: OVERALL, rate: 1, interval: 100s, max_wait: 1h, queue: 200 }]
  - { name: all, match: {}, upstream: echo }
";

async fn test_upload_with(waiting: usize) {
    let gateway = TestGateway::start(RULES);
    let client = handshake(TcpStream::connect(gateway.address).await.expect("a gateway")).await;
    assert_upload_completes(client, waiting).await;
}

async fn assert_upload_completes(mut client: SendRequest<Bytes>, waiting: usize) {
    let mut uploads = JoinSet::new();
    for _ in 0..=waiting {
        client = client.ready().await.expect("a stream");
        let request = Request::post("http://api.example/waiting").body(()).expect("a request");
        let (response, mut to) = client.send_request(request, false).expect("a stream");
        uploads.spawn(async move {
            send_all(&mut to, MIB).await;
            response.await
        });
    }
    // The first upload has the only permit.
    let first = timeout(Duration::from_secs(60), uploads.join_next()).await.expect("a response");
    assert!(first.expect("an upload").expect("no panic").is_ok());
    let upload = exchange(&mut client, 4 * MIB);
    timeout(Duration::from_secs(60), upload).await.expect("the upload completes");
    assert!(uploads.try_join_next().is_none(), "the other uploads must wait");
}

#[tokio::test]
async fn upload_completes_while_17_uploads_wait() {
    test_upload_with(17).await;
}

#[tokio::test]
async fn upload_completes_while_30_uploads_wait() {
    test_upload_with(30).await;
}

/// A long body has enlarged the windows of the connection before.
#[tokio::test]
async fn upload_completes_after_windows_have_grown() {
    let gateway = TestGateway::start(RULES);
    let mut client = handshake(TcpStream::connect(gateway.address).await.expect("a gateway")).await;
    exchange(&mut client, 4 * MIB).await;
    assert_upload_completes(client, 17).await;
}
