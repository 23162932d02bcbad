//! Internals for benchmarks, tests and the fuzzer. Not a public API: items change and disappear without notice.

mod calls;
mod extensions;
mod local_gateway;
mod overrides;
mod probes;
mod replay;
mod takes;
mod talkers;

pub use self::calls::{ReadCall, ReadDescriptor};
pub use self::extensions::{ConfigInternals, ReplayStore};
pub use self::local_gateway::LocalGateway;
pub use self::overrides::ban_many;
pub use self::probes::{
    ApiKeyFile, RateLimitFieldBuilder, for_each_redis_key, limited_response, normalize_path, parse_log,
    recording_layer, show_config, write_redis_keys,
};
pub use self::replay::{ParsedLog, ReplayedLine, TracedRequest, decide_log, parse_requests, replay_logs, replay_trace};
pub use self::takes::{PermitRequest, Take, read_return, read_take};
pub use self::talkers::CountedClients;
pub use tidegate_proxy::internals::{
    DecodedBody, MalformedChunks, Pipeline, PipelineOutcome, ResponseEncoder, decode_chunked, parse_proxy_header,
};

/// The items of the module `transport::tls`.
pub mod tls {
    pub use tidegate_proxy::transport::tls::*;
}

/// The items of the module `upstream`.
pub mod upstream {
    pub use tidegate_proxy::upstream::*;
}

/// The items of the private module `cli`.
pub mod cli {
    pub use crate::cli::*;
}
