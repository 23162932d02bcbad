//! The settings of the store, of upstreams and of TLS, as the rule file has them, and the readers of the files that they
//! name.

pub mod files;
pub mod identities;
pub mod store;
pub mod tls;
pub mod upstream;
