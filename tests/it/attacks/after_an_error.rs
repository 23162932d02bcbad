//! After any error there is no second answer: whatever follows a body that is none has no beginning.

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::run::{Pieces, Stage};
use crate::support::strict::Message;

const HEAD: &[u8] = b"POST /p HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
const BODY: &[u8] = b"5\r\nhello\r\n0\r\n\r\n";
/// Pipelined behind it; the second one makes sure that the connection ends.
const BEHIND: &[u8] =
    b"GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\nGET /end HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
/// What is put there.
const BYTES: [u8; 7] = [b'\n', b'X', 0, b' ', b'-', b'\r', 0x80];

/// For bodies whose end does not come.
const PATIENCE: Duration = Duration::from_millis(500);

/// A valid body with one byte more, or with one byte another.
fn spoilt() -> Vec<Vec<u8>> {
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

/// What is wrong with these answers to a POST and two GETs, of which an origin got these requests. Where the head is sound,
/// every error is one of framing; else one that keeps the connection open is about what the head means.
fn verdict(answers: &[Message], requests: &[Message], sound_head: bool) -> Result<(), String> {
    let statuses: Vec<_> = answers.iter().map(Message::status).collect();
    let asked: Vec<_> = requests.iter().map(Message::method_and_target).collect();
    let told = format!("answered {statuses:?}, and the origin got {asked:?}");
    let closes = |answer: &Message| answer.values("connection") == ["close"];
    let is_last = |answer: &Message| answer.status() >= 400 && (sound_head || closes(answer));
    match answers.iter().position(is_last) {
        Some(at) if at + 1 < statuses.len() => return Err(format!("an answer after an error: {told}")),
        Some(at) if !closes(&answers[at]) => return Err(format!("does not say close: {told}")),
        Some(at) if requests.len() > at => return Err(format!("more requests than good answers: {told}")),
        _ => {}
    }
    if requests.len() > 3 { Err(format!("more requests than were sent: {told}")) } else { Ok(()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_spoilt_body_nothing_is_answered_or_forwarded() {
    let stage = Stage::start().await;
    let (mut failures, mut refused) = (Vec::new(), 0);
    for body in spoilt() {
        for pieces in [Pieces::WithMore, Pieces::Parts(3)] {
            let (answers, requests) = stage.talk(&[HEAD, &body, BEHIND].concat(), pieces, PATIENCE).await;
            refused += usize::from(answers.first().is_some_and(|answer| answer.status() == 400));
            if let Err(why) = verdict(&answers, &requests, true) {
                failures.push(format!("{:?} ({pieces:?}): {why}", String::from_utf8_lossy(&body)));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(refused > 250, "only {refused} of 434 were refused");
}

#[test]
fn after_any_error_nothing_is_answered_or_forwarded() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stage = runtime.block_on(Stage::start());
    let whole = [HEAD, BODY, BEHIND].concat();
    let end = HEAD.len() + BODY.len();
    let change = (any::<bool>(), 0..end, prop_oneof![prop::sample::select(BYTES.to_vec()), any::<u8>()]);
    let changes = (prop::collection::vec(change, 1..4), 1..6_usize);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() });
    let refused = Cell::new(0);
    let outcome = runner.run(&changes, |(changes, parts)| {
        let mut bytes = whole.clone();
        let sound_head = changes.iter().all(|(_, at, _)| *at >= HEAD.len());
        for (more, at, byte) in changes {
            _ = bytes.splice(at..at + usize::from(!more), [byte]);
        }
        let (answers, requests) = runtime.block_on(stage.talk(&bytes, Pieces::Parts(parts), PATIENCE));
        refused.update(|count| count + usize::from(answers.first().is_some_and(|answer| answer.status() == 400)));
        verdict(&answers, &requests, sound_head)
            .map_err(|why| TestCaseError::fail(format!("{:?}: {why}", String::from_utf8_lossy(&bytes))))
    });
    outcome.unwrap();
    assert!(refused.get() > 100, "only {} of 256 were refused", refused.get());
}
