//! placeholder, written by the main session
use std::net::IpAddr;
use std::sync::Arc;

/// The proof that a request was judged and may go on.
#[must_use]
#[derive(Clone, Debug)]
pub struct Permit {
    pub(crate) route: Arc<str>,
    pub(crate) upstream: Option<Arc<str>>,
    pub(crate) peer: IpAddr,
    pub(crate) trusted_peer: bool,
}
