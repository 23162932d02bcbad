//! Replays access logs through the rules.

#[allow(dead_code, unused_imports, reason = "only the command `replay` uses the parser")]
pub(crate) mod log;
