//! Where buckets are kept and decided on.

pub mod settings;
