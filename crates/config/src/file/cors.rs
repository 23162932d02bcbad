//! The keys of cross-origin access.

use super::HOUR;
use super::keys::Kind::{Duration, Flag, List, Text};
use super::located::Located;
use super::shape::shape;
use crate::values::units::Millis;

shape! {
    /// The pages of other origins that may use the route in browsers ([http.md](http.md#cors)).
    CORS: Cors = "`cors`" {
        /// The origins of these pages: `https://app.example.com`, `https://*.example.com` for all hosts below it, or `*`. At the
        /// end of an origin, `:*` matches any port, the usual one included: `http://localhost:*`.
        origins: Vec<Located<String>> = List(&Text), Required("origins: [https://app.example.com]");
        /// The methods that a preflight allows. By default, the method that it asks for.
        methods: Vec<Located<String>> = List(&Text), Optional;
        /// The request fields that a preflight allows. By default, the fields that it asks for.
        headers: Vec<Located<String>> = List(&Text), Optional;
        /// More response fields that scripts can read. They can always read `Retry-After`, `RateLimit`,
        /// `RateLimit-Policy`, `X-RateLimit-*` and `X-Request-Id`.
        expose: Vec<Located<String>> = List(&Text), Default("[]");
        /// Whether requests may contain cookies and other credentials. Not with the origin `*`.
        credentials: bool = Flag, Default("false");
        /// How long a browser may use the response to a preflight. By default, the browser decides.
        max_age: Millis = Duration(1000, 24 * HOUR), Optional;
    }
}
