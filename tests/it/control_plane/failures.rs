//! Control planes that fail: the service keeps its domains, and connects again.

use super::*;
use crate::support::redis::free_port;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_stream_keeps_domains_and_is_reopened() {
    let mut plane = ControlPlane::start().await;
    let (service, stream) = start_with(&mut plane, &[edge(9)]).await;
    let client = service.client().await;
    let mut stream = Some(stream);
    for (number, rate) in [8, 7].into_iter().enumerate() {
        let broken = stream.take().expect("a stream");
        match number {
            0 => broken.close(),
            _ => broken.end("14", "shuts%20down"),
        }
        let mut next = plane.stream().await;
        let first = next.request().await;
        // The control plane may have restarted, and count its versions from 1 again.
        assert_eq!((first.version_info.as_str(), first.response_nonce.as_str()), ("", ""));
        assert!(service.problems().await.is_empty(), "the stream had responses before");
        let before = take(&client, "ann").await.expect("a limit");
        assert_eq!(before.0, rate + 1, "the last domains stay in use");
        assert_eq!(next.push_and_wait("1", "a", &[edge(rate)]).await.error_detail, None);
        assert_eq!(take(&client, "ann").await.expect("a limit").0, rate);
        stream = Some(next);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_control_plane_is_a_problem() {
    let port = free_port();
    let service = start(rules(&format!("http://127.0.0.1:{port}"), "", "")).await;
    assert_eq!(health(&service).await, (NOT_SERVING, 500));
    assert_eq!(take(&service.client().await, "ann").await, None, "an unknown domain passes");
    let problems = service.problems().await;
    let message = problems[0]["message"].as_str().expect("a message");
    assert_eq!(problems[0]["subject"], format!("http://127.0.0.1:{port}"));
    assert!(message.starts_with("cannot be reached, its last domains stay in use: cannot connect: "), "{message}");

    let mut plane = ControlPlane::start_at(("127.0.0.1", port)).await;
    let mut stream = plane.stream().await;
    stream.request().await;
    stream.push_and_wait("1", "a", &[edge(5)]).await;
    assert_eq!(health(&service).await, (SERVING, 200));
    assert!(service.problems().await.is_empty());
    let connected = format!("tidegate_control_plane_connected{{control_plane=\"http://127.0.0.1:{port}\"}}");
    assert_eq!(service.counter(&connected).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn optional_control_plane_does_not_fail_health() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let service = start(rules(&url, ", required: false", "")).await;
    assert_eq!(health(&service).await, (SERVING, 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_long_message_ends_the_stream() {
    let mut plane = ControlPlane::start().await;
    let (service, mut stream) = start_with(&mut plane, &[edge(5)]).await;
    stream.push_bytes(b"\0\x01\0\0\x01".to_vec());
    let mut next = plane.stream().await;
    next.request().await;
    assert_eq!(take(&service.client().await, "ann").await, Some((5, 4)));
    // A compressed message, and then a version that is too long to be sent back.
    next.push_bytes(b"\x01\0\0\0\x01x".to_vec());
    let mut next = plane.stream().await;
    next.request().await;
    next.push(&"v".repeat(1_025), "a", &[edge(6)]);
    plane.stream().await;
    assert_eq!(take(&service.client().await, "ann").await, Some((5, 3)));
}

/// A control plane without a configuration sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_control_plane_does_not_prevent_the_start() {
    let mut plane = ControlPlane::start().await;
    let text = rules(&format!("http://{}", plane.address), "", "");
    let (service, mut stream) = tokio::join!(start(text), plane.stream());
    stream.request().await;
    assert_eq!(health(&service).await, (NOT_SERVING, 500));
    soon(async { while !service.problems().await.is_empty() {} }).await;
    stream.push_and_wait("1", "a", &[]).await;
    assert_eq!(health(&service).await, (SERVING, 200), "a configuration without domains is a configuration");
}
