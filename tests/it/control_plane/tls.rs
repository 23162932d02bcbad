//! A control plane that requires client certificates.

use super::*;
use crate::support::tls::Authority;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_exchanged_and_renewed() {
    let authority = Authority::new();
    authority.sign("plane", &["envoy-gateway"]);
    authority.sign("service", &["service"]);
    let mut plane = ControlPlane::start_with_tls(&authority).await;
    let file = |name: &str| authority.path(name);
    let tls = format!(
        ", tls: {{ ca: '{}', server_name: envoy-gateway, cert: '{}', key: '{}' }}",
        file("ca.pem"),
        file("service.pem"),
        file("service.key")
    );
    let url = format!("https://localhost:{}", plane.address.port());
    let answer = async {
        let mut stream = plane.stream().await;
        stream.request().await;
        stream.push_and_wait("1", "a", &[edge(5)]).await;
        stream
    };
    let (service, stream) = tokio::join!(start(rules(&url, &tls, "")), answer);
    assert_eq!(take(&service.client().await, "ann").await, Some((5, 4)));
    // Each connection reads the files.
    let other = Authority::new();
    other.sign("stranger", &["service"]);
    let copy = |from: &str, to: &str| authority.write(to, &std::fs::read_to_string(other.path(from)).expect("a file"));
    copy("stranger.pem", "service.pem");
    copy("stranger.key", "service.key");
    stream.close();
    soon(async { while service.problems().await.is_empty() {} }).await;
    authority.sign("service", &["service"]);
    let mut stream = plane.stream().await;
    stream.request().await;
    stream.push_and_wait("2", "a", &[edge(6)]).await;
    assert_eq!(take(&service.client().await, "ann").await, Some((6, 4)));
}
