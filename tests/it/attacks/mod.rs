//! Requests and answers that are malformed or can be read in two ways, byte by byte, and what becomes of them.
//!
//! To add one, write a block into one of the files; [`format`] tells how. Every case is sent at once, in parts and byte
//! by byte. What arrives at the origin is read by a strict reader of its own: a request that is altered in its framing,
//! merged with another or there twice is a failure, whatever the answers were.

#![allow(clippy::print_stderr, reason = "tells of what is pending")]

mod after_an_error;
pub mod format;
pub mod origin;
pub mod run;

use std::time::Duration;

use self::format::{Case, parse};
use self::run::{Pieces, Stage};

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
    ("look_alikes.txt", include_str!("look_alikes.txt")),
    ("answers.txt", include_str!("answers.txt")),
];

const WAYS: [Pieces; 4] = [Pieces::WithMore, Pieces::Parts(2), Pieces::Parts(5), Pieces::Bytes];

/// All of them.
pub fn cases() -> Vec<Case> {
    FILES.iter().flat_map(|(file, text)| parse(file, text)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_gets_through() {
    let mut stage = Stage::start().await;
    let mut failures = Vec::new();
    for case in cases() {
        // What is not mended yet may hang; all the others may take their time.
        let patience = Duration::from_millis(if case.pending.is_some() { 300 } else { 8_000 });
        let mut holds = true;
        for pieces in WAYS {
            if let Err(why) = stage.run(&case, pieces, patience).await {
                holds = false;
                let kind = case.pending.as_ref().map_or("", |_| "pending ");
                eprintln!("{kind}{}: {} ({pieces:?}): {why}", case.place, case.name);
                if case.pending.is_none() {
                    failures.push(format!("{}: {} ({pieces:?}): {why}", case.place, case.name));
                }
            }
        }
        if holds && case.pending.is_some() {
            eprintln!("holds by now: {}: {}", case.place, case.name);
        }
    }
    let begun = [stage.open.take_begun(), stage.guarded.take_begun()].concat();
    let allowed: Vec<String> = cases().into_iter().flat_map(|case| case.begun).collect();
    failures
        .extend(begun.into_iter().filter(|begun| !allowed.contains(begun)).map(|begun| format!("broken off: {begun}")));
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn there_are_many_cases_each_with_a_name_of_its_own() {
    let cases = cases();
    let mut names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(cases.len() > 500);
    let pending: Vec<_> = cases.iter().filter_map(|case| Some((case.pending.as_ref()?, &case.name))).collect();
    assert!(pending.is_empty(), "pending: {pending:#?}");
}
