//! Reloads of the rule file of a service with a control plane.

use tidegate::Gateway;

use super::*;
use crate::support::service::{OVER_LIMIT, TestService};

const OWN: &str = "  domains:
    - name: own
      limits: [{ name: per-user, match: { user: '*' }, mode: PER_CLIENT, rate: 1, interval: 1h }]
";

fn reload(service: &TestService, text: &str) -> Result<Vec<String>, String> {
    let config = Gateway::parse_config(text).unwrap_or_else(|problems| panic!("{problems}"));
    service.running().reload(config).map(|report| report.changes()).map_err(|error| error.to_string())
}

/// Returns the code of a call to a domain.
async fn code(service: &TestService, domain: &str) -> i32 {
    let mut question = call([descriptor("user=ann")]);
    question.domain = domain.to_owned();
    service.client().await.should_rate_limit(&question).await.expect("an answer").overall_code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_keeps_the_domains_of_the_control_plane() {
    let mut plane = ControlPlane::start().await;
    let (service, mut stream) = start_with(&mut plane, &[edge(1)]).await;
    assert_eq!(take(&service.client().await, "ann").await, Some((1, 0)));
    let url = format!("http://{}", plane.address);
    let changes = reload(&service, &rules(&url, "", OWN)).expect("a reload");
    assert!(changes.iter().all(|change| !change.contains("edge")), "{changes:?}");
    assert_eq!(code(&service, "edge").await, OVER_LIMIT, "permits in use stay in use");
    code(&service, "own").await;
    assert_eq!(code(&service, "own").await, OVER_LIMIT);
    // The stream stays open, and both kinds of domains are in use.
    stream.push_and_wait("2", "b", &[config("next", [limited("user", HOUR, 0)])]).await;
    assert_eq!((code(&service, "next").await, code(&service, "own").await), (OVER_LIMIT, OVER_LIMIT));

    let error = reload(&service, &rules(&url, "", &OWN.replace("own", "next"))).expect_err("a conflict");
    assert!(error.contains("domain `next` is already in the rule file"), "{error}");
    assert_eq!(code(&service, "own").await, OVER_LIMIT, "the previous rules stay in use");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_moves_to_another_control_plane() {
    let (mut plane, mut other) = (ControlPlane::start().await, ControlPlane::start().await);
    let (service, _stream) = start_with(&mut plane, &[edge(1)]).await;
    let rules = rules(&format!("http://{}", other.address), "", "");
    assert_eq!(reload(&service, &rules).expect("a reload").len(), 1);
    let mut stream = other.stream().await;
    stream.request().await;
    let client = service.client().await;
    assert_eq!(take(&client, "ann").await, Some((1, 0)), "until the other one has sent its domains");
    stream.push_and_wait("1", "a", &[edge(9)]).await;
    assert_eq!(take(&client, "ann").await, Some((9, 7)));
    // Without a control plane, its domains end.
    let own = format!("admin: 127.0.0.1:0\nservice:\n  grpc: 127.0.0.1:0\n  http: 127.0.0.1:0\n{OWN}");
    reload(&service, &own).expect("a reload");
    assert_eq!(take(&client, "ann").await, None);
}
