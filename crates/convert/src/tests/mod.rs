//! The parts that the tests of several formats share.

pub(crate) mod laws;
