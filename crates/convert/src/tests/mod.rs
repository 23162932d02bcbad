//! The parts that the tests of several formats share.

mod guards;
mod hostile;
pub(crate) mod laws;
