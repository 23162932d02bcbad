//! The parts that the tests of several formats share.

mod guards;
pub(crate) mod laws;
