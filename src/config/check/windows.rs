//! What only the limits have that count in windows.

use super::{Checked, number, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote};
use crate::limit::{Algorithm, sliding_window};

/// Keys that only one algorithm has.
const OWN: [(&str, &str); 1] = [("segments", "sliding_window")];

pub(super) fn sliding(written: &file::Limit, node: &Node, problems: &mut Problems) -> Checked<Algorithm> {
    let segments = part(&written.segments, node, "segments", problems)?.copied();
    let segments = number(segments, sliding_window::DEFAULT_SEGMENTS, node.at("segments"), problems)?;
    Ok(Algorithm::SlidingWindow { segments })
}

/// Reports keys that the algorithm of the limit does not have.
pub(super) fn out_of_place(algorithm: &Algorithm, node: &Node, problems: &mut Problems) {
    for (key, owner) in OWN.iter().filter(|(_, owner)| *owner != algorithm.name()) {
        if let Some(entry) = node.entries().iter().find(|entry| entry.key == *key) {
            let message = format!("{} has no effect on a limit by {}", quote(key), algorithm.name());
            problems.add(entry.place, message, format!("leave it out, or use `algorithm: {owner}`"));
        }
    }
}
