//! The requests of a stream: for a configuration, and about each configuration.

use super::*;
use crate::support::control_plane::{Any, Stream, TYPE_URL, UNKNOWN};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_configuration_is_accepted_and_applied() {
    let mut plane = ControlPlane::start().await;
    let text = rules(&format!("http://{}", plane.address), "", "");
    let answer = async {
        let mut stream = plane.stream().await;
        let first = stream.request().await;
        assert_eq!(first.node.as_ref().map(|node| node.id.as_str()), Some("tests"));
        assert_eq!((first.type_url.as_str(), first.error_detail.clone()), (TYPE_URL, None));
        assert_eq!((first.version_info.as_str(), first.response_nonce.as_str()), ("", ""));
        let accepted = stream.push_and_wait("7", "a", &[edge(5), config("other", [])]).await;
        assert_eq!((accepted.version_info.as_str(), accepted.error_detail), ("7", None));
        stream
    };
    let (service, mut stream) = tokio::join!(start(text), answer);
    let client = service.client().await;
    assert_eq!(take(&client, "ann").await, Some((5, 4)));
    assert_eq!(take(&client, "ann").await, Some((5, 3)));
    // Permits in use stay in use.
    let accepted = stream.push_and_wait("8", "b", &[edge(3)]).await;
    assert_eq!(accepted.version_info, "8");
    assert_eq!(take(&client, "ann").await, Some((3, 0)));
    assert_eq!(health(&service).await, (SERVING, 200));
    let counted = |result: &str| {
        format!(
            "tidegate_control_plane_updates_total{{control_plane=\"http://{}\",result=\"{result}\"}}",
            plane.address
        )
    };
    assert_eq!((service.counter(&counted("applied")).await, service.counter(&counted("failed")).await), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_configuration_is_rejected_with_all_errors() {
    let mut plane = ControlPlane::start().await;
    let (service, mut stream) = start_with(&mut plane, &[edge(5)]).await;
    let client = service.client().await;
    assert_eq!(take(&client, "ann").await, Some((5, 4)));
    let broken = [config("edge", [limited("user", UNKNOWN, 1), limited("", HOUR, 1)]), config("edge", [])];
    let rejected = stream.push_and_wait("2", "b", &broken).await;
    assert_eq!(rejected.version_info, "1", "the last accepted version");
    let text = rejected.error_detail.expect("an error").message;
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("  help: ")).collect();
    let expected = [
        "descriptor `user` of resource `resource-edge`: `UNKNOWN` is not a unit",
        "descriptor `` of resource `resource-edge`: `key` is missing",
        "resource `resource-edge`: domain `edge` is already at position 1",
    ];
    assert_eq!(lines, expected);
    assert_eq!(take(&client, "ann").await, Some((5, 3)), "the previous domains stay in use");
    let problems = service.problems().await;
    assert_eq!((problems.len(), &problems[0]["kind"]), (1, &"control_plane".into()));
    let message = problems[0]["message"].as_str().expect("a message");
    assert!(message.contains("was rejected") && message.contains("`UNKNOWN` is not a unit (3 errors)"), "{message}");

    let accepted = stream.push_and_wait("3", "c", &[edge(6)]).await;
    assert_eq!((accepted.version_info.as_str(), accepted.error_detail), ("3", None));
    assert_eq!(take(&client, "ann").await, Some((6, 3)));
    assert!(service.problems().await.is_empty());
}

/// Returns the error for a response with these resources.
async fn error_of(stream: &mut Stream, nonce: &str, resources: Vec<Any>) -> String {
    stream.push_resources(nonce, nonce, resources);
    let rejected = stream.request().await;
    assert_eq!((rejected.version_info.as_str(), rejected.response_nonce.as_str()), ("1", nonce));
    rejected.error_detail.expect("an error").message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_resources_are_rejected() {
    let mut plane = ControlPlane::start().await;
    let (_service, mut stream) = start_with(&mut plane, &[edge(5)]).await;
    let any = |type_url: &str, value: &[u8]| Any { type_url: type_url.to_owned(), value: value.to_vec() };
    let error = error_of(&mut stream, "a", vec![any("other", b""), any(TYPE_URL, b"\x0a\x05x")]).await;
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert_eq!(lines[0], format!("resource 1: its type is `other`, not `{TYPE_URL}`"));
    assert!(lines[1].starts_with("resource 2: it is malformed: "), "{error}");
    // Two bytes for each descriptor.
    let many = b"\x1a\0".repeat(100_001);
    let error = error_of(&mut stream, "b", vec![any(TYPE_URL, &many)]).await;
    assert_eq!(error, "resource 1: it has more than 100000 parts");
    let error = error_of(&mut stream, "c", vec![any(TYPE_URL, b""); 1_001]).await;
    assert_eq!(error, "there are 1001 resources, more than 1000");
}
