//! The settings of a route besides its limits: responses, header fields, cross-origin access and bounds of requests in flight.

use std::time::Duration;

use super::{Client, setters};
use tidegate_config::built::{Item, Map};

/// Sends clients to another URL.
#[derive(Clone, Debug, Default)]
#[must_use = "these settings do nothing until a route uses them"]
pub struct Redirect {
    pub(super) keys: Map,
}

/// A response without a call of the inner service.
#[derive(Clone, Debug, Default)]
#[must_use = "these settings do nothing until a route uses them"]
pub struct Respond {
    pub(super) keys: Map,
}

/// The response to requests that limits reject, instead of problem details. `Retry-After` and the rate limit fields stay.
/// gRPC calls get a gRPC error.
#[derive(Clone, Debug, Default)]
#[must_use = "these settings do nothing until a route uses them"]
pub struct Reject {
    pub(super) keys: Map,
}

/// Changes of header fields: first fields are removed, then set, then added. Values can have variables
/// (`docs/http.md`).
#[derive(Clone, Debug, Default)]
#[must_use = "these settings do nothing until a route uses them"]
pub struct FieldChanges {
    pub(super) keys: Map,
}

/// The pages of other origins that may use a route in browsers.
#[derive(Clone, Debug, Default)]
#[must_use = "these settings do nothing until a route uses them"]
pub struct Cors {
    pub(super) keys: Map,
}

/// Bounds the requests in flight over all processes that share the store. It needs [`max`](Self::max) or
/// [`per_client`](Self::per_client).
#[derive(Clone, Debug, Default)]
#[must_use = "these settings do nothing until a route uses them"]
pub struct Concurrency {
    pub(super) keys: Map,
}

impl Redirect {
    /// Redirects to this URL or path, which can have variables: `https://example.com{uri}`.
    pub fn to(url: &str) -> Self {
        let mut redirect = Self::default();
        redirect.keys.set("to", url);
        redirect
    }

    setters! {
        /// Sets the status: 301, 302, 303, 307 or 308. By default 307.
        status(status: u64) = "status", status;
    }
}

impl Respond {
    /// Creates a response with this status, 200 to 599.
    pub fn new(status: u64) -> Self {
        let mut respond = Self::default();
        respond.keys.set("status", status);
        respond
    }

    /// Adds a header field.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.keys.change("headers", |headers| headers.add(name, value));
        self
    }

    setters! {
        /// Sets the body, at most 64 KiB.
        body(body: &str) = "body", body;
        /// Sets the type of the body. By default `text/plain; charset=utf-8`.
        content_type(content_type: &str) = "content_type", content_type;
    }
}

impl Reject {
    /// Creates a response with this body, which can have variables, also `{retry_after}` and `{limit}`.
    pub fn new(body: &str) -> Self {
        let mut reject = Self::default();
        reject.keys.set("body", body);
        reject
    }

    setters! {
        /// Sets the status, 400 to 599. By default 429.
        status(status: u64) = "status", status;
        /// Sets the type of the body, which decides how values are escaped. By default `application/json`.
        content_type(content_type: &str) = "content_type", content_type;
    }
}

impl FieldChanges {
    /// Creates an empty list of changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces all fields with this name.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.keys.change("set", |fields| fields.add(name, value));
        self
    }

    /// Adds a field.
    pub fn add(mut self, name: &str, value: &str) -> Self {
        self.keys.change("add", |fields| fields.add(name, value));
        self
    }

    /// Removes all fields with this name.
    pub fn remove(mut self, name: &str) -> Self {
        self.keys.push("remove", name);
        self
    }
}

impl Cors {
    /// Allows pages of these origins: `https://app.example.com`, `https://*.example.com` for all hosts below it, or `*`.
    pub fn new<'n>(origins: impl IntoIterator<Item = &'n str>) -> Self {
        let mut cors = Self::default();
        cors.keys.set("origins", Item::from_iter(origins));
        cors
    }

    /// Sets the methods that a preflight allows. By default, the method that it asks for.
    pub fn methods<'n>(mut self, methods: impl IntoIterator<Item = &'n str>) -> Self {
        self.keys.set("methods", Item::from_iter(methods));
        self
    }

    /// Sets the request fields that a preflight allows. By default, the fields that it asks for.
    pub fn headers<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.keys.set("headers", Item::from_iter(names));
        self
    }

    /// Sets more response fields that scripts can read.
    pub fn expose<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.keys.set("expose", Item::from_iter(names));
        self
    }

    setters! {
        /// Sets whether requests may contain cookies and other credentials. Not with the origin `*`.
        credentials(credentials: bool) = "credentials", credentials;
        /// Sets how long a browser may use the response to a preflight, from a second to a day.
        max_age(time: Duration) = "max_age", time;
    }
}

impl Concurrency {
    /// Creates bounds; one of them has to be set.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the most requests of the route in flight. Further ones are rejected with 503.
        max(requests: u64) = "max", requests;
        /// Sets the most requests of one client in flight. Further ones are rejected with 429.
        per_client(requests: u64) = "per_client", requests;
        /// Sets what identifies the client. By default the address.
        client(client: Client) = "client", client;
        /// Sets the most requests of this process that wait for a slot. By default none.
        queue(requests: u64) = "queue", requests;
        /// Sets the longest time that a request waits. By default a second.
        max_wait(time: Duration) = "max_wait", time;
    }
}
