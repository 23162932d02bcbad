//! All integration tests, in one binary so that it links once.

mod support;
