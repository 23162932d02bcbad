//! All integration tests, in one binary so that it links once.

mod check;
mod gateway;
mod laws;
mod program;
mod redis_format;
mod support;
