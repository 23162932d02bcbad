//! TLS: what the files hold that it is made of.

pub(crate) mod files;
