//! Internals for benchmarks, tests and the fuzzer. Not a public API: items change and disappear without notice.

mod extensions;
mod local_gateway;
mod overrides;
mod pipeline;
mod probes;
mod replay;

pub use self::extensions::{ConfigInternals, ReplayStore};
pub use self::local_gateway::LocalGateway;
pub use self::overrides::ban_many;
pub use self::pipeline::{Pipeline, PipelineOutcome};
pub use self::probes::{
    ApiKeyFile, DecodedBody, MalformedChunks, RateLimitFieldBuilder, decode_chunked, for_each_redis_key,
    limited_response, normalize_path, parse_log, parse_proxy_header, recording_layer, show_config, write_redis_keys,
};
pub use self::replay::{ParsedLog, ReplayedLine, TracedRequest, decide_log, parse_requests, replay_logs, replay_trace};
pub use crate::facts::{Facts, Requests};

/// The items of the private module `client`.
pub mod client {
    pub use crate::client::*;
}

/// The items of the private module `clock`.
pub mod clock {
    pub use crate::clock::*;
}

/// The items of the private module `condition`.
pub mod condition {
    pub use crate::condition::*;
}

/// The items of the private module `config`.
pub mod config {
    pub use crate::config::*;
}

/// The items of the private module `cost`.
pub mod cost {
    pub use crate::cost::*;
}

/// The items of the private module `limit`.
pub mod limit {
    pub use crate::limit::*;
}

/// The items of the private module `metrics`.
pub mod metrics {
    pub use crate::metrics::*;
}

/// The items of the private module `policy`.
pub mod policy {
    pub use crate::policy::*;
}

/// The items of the private module `route`.
pub mod route {
    pub use crate::route::*;
}

/// The items of the private module `rule`.
pub mod rule {
    pub use crate::rule::*;
}

/// The items of the private module `rules`.
pub mod rules {
    pub use crate::rules::*;
}

/// The items of the private module `settings`.
pub mod settings {
    pub use crate::settings::*;
}

/// The items of the private module `store`.
pub mod store {
    pub use crate::store::*;
}

/// The items of the private module `tls`.
pub mod tls {
    pub use crate::tls::*;
}

/// The items of the private module `upgrade`.
pub mod upgrade {
    pub use crate::upgrade::*;
}

/// The items of the private module `upstream`.
pub mod upstream {
    pub use crate::upstream::*;
}

/// The items of the private module `cli`.
pub mod cli {
    pub use crate::cli::*;
}
