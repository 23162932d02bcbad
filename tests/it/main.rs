//! All integration tests, in one binary so that it links once.

mod laws;
mod redis_format;
mod support;
mod check;
