//! The keys of a route's action, and of its changes of requests and responses.

use super::keys::Kind::{self, Flag, Integer, List, Text};
use super::keys::{Key, Presence, Shape};
use super::located::Located;
use super::shape::shape;

shape! {
    /// Sends clients to another URL.
    REDIRECT: Redirect = "`redirect`" {
        /// The URL, with [variables](http.md#actions-of-routes): `https://example.com{uri}`, where `{uri}` is the path
        /// with the query, or a path. Its server is literal or `{host}`. With `{host}`, give `match` a `host`: otherwise
        /// a request can choose the server.
        to: String = Text, Required("to: \"https://example.com{uri}\"");
        /// The status, 301, 302, 303, 307 or 308.
        status: u64 = Integer(301, 308), Default("307");
    }
}

shape! {
    /// A response without an upstream. A route with a 5xx status may be above the routes that it replaces during a maintenance:
    /// `check` warns, and names them. Other routes that no request can reach are errors.
    RESPOND: Respond = "`respond`" {
        /// The status.
        status: u64 = Integer(200, 599), Default("200");
        /// The body, at most 64 KiB. It has no variables.
        body: String = Text, Optional;
        /// The type of the body.
        content_type: String = Text, Default("text/plain; charset=utf-8");
        /// Further fields of the response.
        headers: Vec<(String, Located<String>)> = Kind::Fields, Optional;
    }
}

/// The keys of [`RESPOND`] with another default.
pub(crate) static BANS: Shape = Shape {
    title: "`bans`",
    description: "The response to requests of banned clients, instead of problem details. It has a `Retry-After` as well. gRPC \
                  calls get a gRPC error.",
    keys: &[Key {
        name: "status",
        kind: Integer(400, 599),
        presence: Presence::Default("403"),
        description: "The status.",
        notes: &[],
    }],
    shared_keys: Some((&RESPOND, |key| key.name != "status")),
};

shape! {
    /// Changes the path and the host that the upstream receives. Routes and limits use the original request.
    REWRITE: Rewrite = "`rewrite`" {
        /// Whole segments to remove from the start of the path, if it starts with them.
        strip_prefix: String = Text, Optional;
        /// Segments to put before the path, after `strip_prefix`.
        add_prefix: String = Text, Optional;
        /// The `Host`: a name, or `upstream` for the name of the target. By default the client's.
        host: String = Text, Optional;
        /// Maps paths in responses back: `Location`, `Content-Location`, and the `Path` of cookies. By default only a
        /// `Location` that names a target; `false` maps none.
        responses: bool = Flag, Optional;
    }
}

shape! {
    /// Changes header fields: `remove`, then `set`, then `add`. Fields that frame or route a message are not allowed. A
    /// field is absent if one of its [variables](http.md#actions-of-routes) has no value.
    FIELD_CHANGES: FieldChanges = "changes of header fields" {
        /// Fields that replace all fields with the same name.
        set: Vec<(String, Located<String>)> = Kind::Fields, Optional;
        /// Fields to append.
        add: Vec<(String, Located<String>)> = Kind::Fields, Optional;
        /// The names of fields to remove.
        remove: Vec<Located<String>> = List(&Text), Default("[]");
    }
}

shape! {
    /// The response to requests that limits of the route reject, instead of problem details. `Retry-After` and the rate
    /// limit fields stay. gRPC calls get a gRPC error.
    REJECT: Reject = "`reject`" {
        /// The status.
        status: u64 = Integer(400, 599), Default("429");
        /// The type of the body; it decides how values are escaped.
        content_type: String = Text, Default("application/json");
        /// The body, with [variables](http.md#actions-of-routes), also `{retry_after}` and `{limit}`.
        body: String = Text, Required("body: '{\"error\":\"slow down\",\"retry_after\":{retry_after}}'");
    }
}
