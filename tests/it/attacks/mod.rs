//! Malformed and ambiguous requests and responses.
//!
//! To add a case, write a block into one of the files, in the format of [`format`]. The client sends every case at
//! once, in parts and byte by byte. A strict reader reads what arrives at the origin: a request with altered framing, a
//! merged one and a duplicate are failures, even if the responses are as expected.

#![allow(clippy::print_stderr, reason = "reports pending cases")]

mod after_an_error;
pub mod format;
pub mod origin;
pub mod run;

use std::time::Duration;

use self::format::{Case, parse};
use self::run::{Harness, Pieces};

const FILES: [(&str, &str); 12] = [
    ("request_line.txt", include_str!("request_line.txt")),
    ("target.txt", include_str!("target.txt")),
    ("host.txt", include_str!("host.txt")),
    ("fields.txt", include_str!("fields.txt")),
    ("framing.txt", include_str!("framing.txt")),
    ("chunks.txt", include_str!("chunks.txt")),
    ("trailers.txt", include_str!("trailers.txt")),
    ("pipelining.txt", include_str!("pipelining.txt")),
    ("expect.txt", include_str!("expect.txt")),
    ("spellings.txt", include_str!("spellings.txt")),
    ("lookalikes.txt", include_str!("lookalikes.txt")),
    ("responses.txt", include_str!("responses.txt")),
];

const PIECES: [Pieces; 4] = [Pieces::WithMore, Pieces::Parts(2), Pieces::Parts(5), Pieces::Bytes];

/// Returns the cases of all files.
pub fn cases() -> Vec<Case> {
    FILES.iter().flat_map(|(file, text)| parse(file, text)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_have_the_expected_responses_and_requests() {
    let mut harness = Harness::start().await;
    let mut failures = Vec::new();
    for case in cases() {
        // A pending case may hang; others may be slow on a busy machine.
        let max_wait = Duration::from_millis(if case.pending.is_some() { 300 } else { 8_000 });
        let mut passes = true;
        for pieces in PIECES {
            if let Err(why) = harness.run(&case, pieces, max_wait).await {
                passes = false;
                let kind = case.pending.as_ref().map_or("", |_| "pending ");
                eprintln!("{kind}{}: {} ({pieces:?}): {why}", case.place, case.name);
                if case.pending.is_none() {
                    failures.push(format!("{}: {} ({pieces:?}): {why}", case.place, case.name));
                }
            }
        }
        if passes && case.pending.is_some() {
            eprintln!("no longer pending: {}: {}", case.place, case.name);
        }
    }
    let begun = [harness.open.take_begun(), harness.guarded.take_begun()].concat();
    let allowed: Vec<String> = cases().into_iter().flat_map(|case| case.begun).collect();
    failures.extend(
        begun.into_iter().filter(|begun| !allowed.contains(begun)).map(|begun| format!("incomplete request: {begun}")),
    );
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn cases_have_unique_names() {
    let cases = cases();
    let mut names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    let duplicates: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(duplicates.is_empty(), "{duplicates:?}");
    assert!(cases.len() > 500);
    let pending: Vec<_> = cases.iter().filter_map(|case| Some((case.pending.as_ref()?, &case.name))).collect();
    assert!(pending.is_empty(), "pending: {pending:#?}");
}
