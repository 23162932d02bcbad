//! Internals for benchmarks, tests and the fuzzer. Not a public API: items change and disappear without notice.

mod extensions;
#[cfg(feature = "gateway")]
mod pipeline;
#[cfg(feature = "gateway")]
mod probes;

pub use self::extensions::{ConfigInternals, StoreInternals};
#[cfg(feature = "gateway")]
pub use self::pipeline::{Pipeline, PipelineOutcome};
#[cfg(feature = "gateway")]
pub use self::probes::{
    DecodedBody, MalformedChunks, RateLimitFieldBuilder, decode_chunked, for_each_redis_key, limited_response,
    normalize_path, parse_proxy_header, write_redis_keys,
};
pub use crate::facts::{Facts, Requests};

/// Re-exports the public items of private modules.
macro_rules! expose {
    ($($module:ident),* $(,)?) => {
        $(
            #[doc = concat!("The items of the private module `", stringify!($module), "`.")]
            pub mod $module {
                pub use crate::$module::*;
            }
        )*
    };
}

expose!(client, clock, condition, config, cost, limit, policy, route, rule, rules, store, tls, upgrade, upstream);

#[cfg(feature = "gateway")]
expose!(cli);
