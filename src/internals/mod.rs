//! Internals for benchmarks, tests and the fuzzer. Not a public API: items change and disappear without notice.

mod calls;
mod compression;
mod extensions;
mod local_gateway;
mod overrides;
mod pipeline;
mod probes;
mod replay;
mod talkers;

pub use self::calls::{ReadCall, ReadDescriptor};
pub use self::compression::ResponseEncoder;
pub use self::extensions::{ConfigInternals, ReplayStore};
pub use self::local_gateway::LocalGateway;
pub use self::overrides::ban_many;
pub use self::pipeline::{Pipeline, PipelineOutcome};
pub use self::probes::{
    ApiKeyFile, DecodedBody, MalformedChunks, RateLimitFieldBuilder, decode_chunked, for_each_redis_key,
    limited_response, normalize_path, parse_log, parse_proxy_header, recording_layer, show_config, write_redis_keys,
};
pub use self::replay::{ParsedLog, ReplayedLine, TracedRequest, decide_log, parse_requests, replay_logs, replay_trace};
pub use self::talkers::CountedClients;

/// The items of the private module `tls`.
pub mod tls {
    pub use crate::transport::tls::*;
}

/// The items of the private module `upstream`.
pub mod upstream {
    pub use crate::upstream::*;
}

/// The items of the private module `cli`.
pub mod cli {
    pub use crate::cli::*;
}
