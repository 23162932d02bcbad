//! All integration tests, in one binary so that it links once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod batches;
mod check;
mod checker;
mod explain;
mod foreign;
mod foreign_laws;
mod functions;
mod gateway;
mod laws;
mod laws_shadow;
mod laws_windows;
mod layer;
mod many_clients;
mod one_decision;
mod pictures;
mod program;
mod rate_limiter;
mod redis_connection;
mod redis_format;
mod redisson_weaknesses;
mod rows;
mod slots;
mod stress;
mod support;
mod tidy;
mod waiting;
mod windows_redis;
