//! After a framing error, the gateway sends no further response: the start of the next request is unknown.

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::run::{Harness, Pieces};
use crate::support::case_count;
use crate::support::strict::Message;

const HEAD: &[u8] = b"POST /p HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
const BODY: &[u8] = b"5\r\nhello\r\n0\r\n\r\n";
/// Requests that are pipelined after the body. The second one ends the connection.
const PIPELINED: &[u8] =
    b"GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\nGET /end HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
/// Bytes that are inserted or replace a byte.
const BYTES: [u8; 7] = [b'\n', b'X', 0, b' ', b'-', b'\r', 0x80];

/// The wait for bodies that do not end.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Returns copies of a valid body, each with one inserted or replaced byte.
fn corrupted_bodies() -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    for byte in BYTES {
        for at in 0..=BODY.len() {
            bodies.push([&BODY[..at], &[byte], &BODY[at..]].concat());
            if at < BODY.len() {
                bodies.push([&BODY[..at], &[byte], &BODY[at + 1..]].concat());
            }
        }
    }
    bodies
}

/// Checks the responses to a POST and two GETs, and the requests that arrived at the origin. With a valid head, every
/// error is a framing error. With an invalid head, an error that keeps the connection open concerns the meaning of the
/// head.
fn check(responses: &[Message], requests: &[Message], is_head_valid: bool) -> Result<(), String> {
    let statuses: Vec<_> = responses.iter().map(Message::status).collect();
    let arrived: Vec<_> = requests.iter().map(Message::method_and_target).collect();
    let context = format!("responses {statuses:?}, requests at the origin {arrived:?}");
    let closes = |response: &Message| response.values("connection") == ["close"];
    let is_last = |response: &Message| response.status() >= 400 && (is_head_valid || closes(response));
    match responses.iter().position(is_last) {
        Some(at) if at + 1 < statuses.len() => return Err(format!("a response after an error: {context}")),
        Some(at) if !closes(&responses[at]) => return Err(format!("an error without `connection: close`: {context}")),
        Some(at) if requests.len() > at => return Err(format!("more requests than successful responses: {context}")),
        _ => {}
    }
    if requests.len() > 3 { Err(format!("more requests than were sent: {context}")) } else { Ok(()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_forwarded_after_a_corrupted_body() {
    let harness = Harness::start().await;
    let (mut failures, mut rejected) = (Vec::new(), 0);
    for body in corrupted_bodies() {
        for pieces in [Pieces::WithMore, Pieces::Parts(3)] {
            let (responses, requests) = harness.talk(&[HEAD, &body, PIPELINED].concat(), pieces, MAX_WAIT).await;
            rejected += usize::from(responses.first().is_some_and(|response| response.status() == 400));
            if let Err(why) = check(&responses, &requests, true) {
                failures.push(format!("{:?} ({pieces:?}): {why}", String::from_utf8_lossy(&body)));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(rejected > 250, "only {rejected} of 434 were rejected");
}

#[test]
fn nothing_is_forwarded_after_a_random_error() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let harness = runtime.block_on(Harness::start());
    let whole = [HEAD, BODY, PIPELINED].concat();
    let end = HEAD.len() + BODY.len();
    let change = (any::<bool>(), 0..end, prop_oneof![prop::sample::select(BYTES.to_vec()), any::<u8>()]);
    let changes = (prop::collection::vec(change, 1..4), 1..6_usize);
    let cases = case_count(256);
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let rejected = Cell::new(0);
    let outcome = runner.run(&changes, |(changes, parts)| {
        let mut bytes = whole.clone();
        let is_head_valid = changes.iter().all(|(_, at, _)| *at >= HEAD.len());
        for (inserts, at, byte) in changes {
            _ = bytes.splice(at..at + usize::from(!inserts), [byte]);
        }
        let (responses, requests) = runtime.block_on(harness.talk(&bytes, Pieces::Parts(parts), MAX_WAIT));
        rejected.update(|count| count + u32::from(responses.first().is_some_and(|response| response.status() == 400)));
        check(&responses, &requests, is_head_valid)
            .map_err(|why| TestCaseError::fail(format!("{:?}: {why}", String::from_utf8_lossy(&bytes))))
    });
    outcome.unwrap();
    assert!(5 * rejected.get() > 2 * cases, "only {} of {cases} were rejected", rejected.get());
}
