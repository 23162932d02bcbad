//! All integration tests, in one binary so that it links once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod check;
mod checker;
mod gateway;
mod laws;
mod layer;
mod program;
mod redis_format;
mod stress;
mod support;
mod tidy;
mod waiting;
