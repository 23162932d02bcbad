//! The marks: lines of a recording without a request.

use serde::{Deserialize, Serialize};

use super::held::Held;

/// The contents of a recording. It is the first and the last line, and follows lines that were dropped.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Mark {
    /// The id of the recording, for the end of its stream.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The share of the clients.
    pub sample: f64,
    /// The source of clients that decides about the sample. `None` if the route of the request decides, and in the last
    /// line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The values of the following requests. Only the first line has them, and the line after a reload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Held>,
    /// The inputs of the gateway's rules that the recording lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// The number of requests that were dropped so far.
    #[serde(default)]
    pub dropped: u64,
    /// The number of requests in flight at the end, which have no line.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
    /// Whether this is the last line.
    #[serde(default)]
    pub end: bool,
    /// Whether the gateway or an operator has ended the recording before its time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub early: bool,
}

/// The form of the line.
#[derive(Deserialize, Serialize)]
struct Line<M> {
    recording: M,
}

/// The start of each line.
const START: &[u8] = b"{\"recording\":";

impl Mark {
    /// Returns the line, with its end.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(&Line { recording: self }).unwrap_or_default();
        line.push('\n');
        line
    }

    /// Parses a line. Returns `None` if it is no mark.
    pub fn parse(line: &[u8]) -> Option<Self> {
        if !line.starts_with(START) {
            return None;
        }
        serde_json::from_slice(line).ok().map(|Line { recording }| recording)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_written_and_parsed() {
        let mark = Mark { sample: 0.1, dropped: 7, ..Mark::default() };
        assert_eq!(mark.to_line(), "{\"recording\":{\"sample\":0.1,\"dropped\":7,\"end\":false}}\n");
        let (by, holds) = (Some("header:x-org".into()), Some(Held::default()));
        let first = Mark { by, holds, lacks: vec!["`tls:san`".into()], ..Mark::default() };
        for mark in [mark, first] {
            assert_eq!(Mark::parse(mark.to_line().as_bytes()), Some(mark));
        }
        assert_eq!(Mark::parse(b"{\"recording\":{}}"), None);
        assert_eq!(Mark::parse(b"{\"time\":1,\"recording\":{\"sample\":1}}"), None);
    }
}
