//! The keys of routes that evaluate requests for proxies.

use super::keys::Kind::Flag;
use super::shape::shape;

shape! {
    /// Evaluates the requests of trusted proxies, which forward them ([authorize.md](authorize.md)). A path that ends
    /// with `/**` contains the original path, as Envoy sends it.
    AUTHORIZE: Authorize = "`authorize`" {
        /// Whether rejections have the status 403, with the actual status in `X-Tidegate-Status`; a 401 stays. nginx
        /// turns other statuses into 500.
        nginx: bool = Flag, Default("false");
    }
}
