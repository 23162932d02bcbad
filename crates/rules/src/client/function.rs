//! Functions of a program that identify the client of a request.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::{Extensions, HeaderMap, Method};

use crate::request::facts::Facts;

/// The parts of a request that identify its client, for `Client::from_fn`: without the
/// header fields that a client could forge.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestParts<'a> {
    /// The method.
    pub method: &'a Method,
    /// The host in lower case, without port. Empty if the request has none.
    pub host: &'a str,
    /// The normalized path.
    pub path: &'a str,
    /// The query as it was sent, without the question mark.
    pub query: Option<&'a str>,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The address of the peer; `None` if it is unknown.
    pub peer: Option<IpAddr>,
    extensions: Option<&'a Extensions>,
}

impl<'a> RequestParts<'a> {
    /// Returns the value of this type in the request's extensions.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.extensions?.get()
    }
}

/// A function that identifies the client of a request.
#[derive(Clone)]
pub struct ClientFunction(Arc<Function>);

type Function = dyn Fn(&RequestParts<'_>) -> Option<String> + Send + Sync;

impl ClientFunction {
    /// Creates the function from a closure.
    pub fn new(function: impl Fn(&RequestParts<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    /// Returns the key of the client. An empty key identifies no client.
    pub(super) fn call(&self, facts: &Facts<'_>) -> Option<String> {
        let &Facts { method, query, headers, peer, extensions, .. } = facts;
        let (host, path) = (&*facts.host, facts.path.normalized());
        let parts = RequestParts { method, host, path, query, headers, peer, extensions };
        (self.0)(&parts).filter(|key| !key.is_empty())
    }
}

/// Clones of one function are equal.
impl PartialEq for ClientFunction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientFunction {}

impl fmt::Debug for ClientFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientFunction")
    }
}
