//! All integration tests, in one binary so that it links once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod check;
mod gateway;
mod laws;
mod laws_windows;
mod program;
mod redis_format;
mod support;
mod windows_redis;
