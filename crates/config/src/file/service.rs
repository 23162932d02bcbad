//! The keys of the rate limit service.

use super::SECOND;
use super::keys::Kind::{
    Address, Duration, Entries, Flag, Label, List, Many, Map, Name, OneOrMany, OrMap, Scalar, Short, Text, Word,
};
use super::keys::{Key, Presence, Shape};
use super::limits::{INTERVAL, LIMIT, Limit, RATE};
use super::listen_tls::{LISTEN_TLS, ListenTls};
use super::located::{Located, ValueOrMap};
use super::read::{FromMap, MapReader};
use super::shape::shape;
use super::upstream_tls::{UPSTREAM_TLS, UpstreamTls};
use crate::problem::Problems;
use crate::values::units::Millis;
use tidegate_limit::{AlgorithmName, Mode};
use tidegate_rules::limits::policy::RateLimitFields;
use tidegate_service::Window;

shape! {
    /// A rate limit service for proxies: Envoy asks it whether a request is over a limit ([service.md](service.md)). A rule
    /// file with this key needs no `listen` and no `routes`. A layer ignores it.
    SERVICE: Service = "`service`" {
        /// The address for gRPC calls. Off by default.
        grpc: ServiceListener = Short("address", &SERVICE_LISTENER), Optional;
        /// The address for calls over HTTP. Off by default. `service` needs `grpc` or `http`.
        http: String = Address, Optional;
        /// Files of envoyproxy/ratelimit, one domain in each. A path, or a list of paths. `*` and `?` have the same meaning as in
        /// `include`, and the bounds of included files apply. Placeholders have no meaning in these files. The gateway notices
        /// changed, new and removed files. Instead of files, a map names a control plane that sends the domains.
        descriptors: ValueOrMap<Vec<Located<String>>, ControlPlane> = OrMap(&OneOrMany(&Text), &CONTROL_PLANE), Optional;
        /// Whether several files of `descriptors` may have the same domain. Their descriptors apply together.
        merge_domains: bool = Flag, Default("false");
        /// The algorithm of limits without their own: a word, or a map.
        algorithm: ValueOrMap<Window, DomainAlgorithms> = OrMap(&Word(Window::WORDS), &DOMAIN_ALGORITHMS), Default("token_bucket");
        /// Domains whose limits are in the rule file.
        domains: Vec<Located<Domain>> = Many(&Map(&DOMAIN)), Optional;
        /// Whether all calls pass. Limits are evaluated and counted as shadows, and the statuses of descriptors are `OVER_LIMIT`.
        shadow: bool = Flag, Default("false");
        /// Whether all limits have `quota_mode`: only a call whose descriptors all exceed their limits is `OVER_LIMIT`.
        quota_mode: bool = Flag, Default("false");
        /// The fields for the response to the client of the proxy. `legacy`: three fields that describe the limit of the call with
        /// the fewest remaining requests, also limits of all clients together.
        headers: Vec<Located<RateLimitFields>> = List(&Word(RateLimitFields::WORDS)), Default("[ietf]");
        /// The names of the fields of `legacy`.
        legacy_names: LegacyNames = Map(&LEGACY_NAMES), Optional;
        /// Whether answers repeat the call as dynamic metadata, with the `metadata` of its rules. Access logs and filters of the
        /// proxy can use them.
        dynamic_metadata: bool = Flag, Default("false");
        /// The longest time for the decision about a call to the service, if it is shorter than `timeout` of the store. `grpc-timeout`
        /// of a call can shorten it. Then `on_store_failure` of each limit decides. By default `timeout` of the store if the file
        /// has it, otherwise 12 ms. Not for `POST /v1/take`.
        timeout: Millis = Duration(1, 60 * SECOND), Optional;
    }
}

shape! {
    /// The names of the fields of `legacy`.
    LEGACY_NAMES: LegacyNames = "`legacy_names`" {
        /// The requests in each unit or interval.
        limit: String = Text, Default("x-ratelimit-limit");
        /// The remaining requests.
        remaining: String = Text, Default("x-ratelimit-remaining");
        /// The seconds until the next requests become available.
        reset: String = Text, Default("x-ratelimit-reset");
    }
}

shape! {
    /// An address for gRPC calls.
    SERVICE_LISTENER: ServiceListener = "`grpc`" {
        /// An address with a port, or a Unix socket: as in `listen`.
        address: String = Address, Required("address: 0.0.0.0:8081");
        /// Serves TLS instead of plaintext.
        tls: ListenTls = Map(&LISTEN_TLS), Optional;
    }
}

shape! {
    /// A control plane that sends domains over xDS, as Envoy Gateway does
    /// ([service.md](service.md#configuration-from-a-control-plane)).
    CONTROL_PLANE: ControlPlane = "`descriptors` of `service`" {
        /// The control plane: `http://host:port`, or `https://host:port` with TLS.
        xds: String = Text, Required("xds: \"http://127.0.0.1:18000\"");
        /// The name of the service at the control plane: the `id` of its node.
        node: String = Label, Default("default");
        /// Whether the health checks of the service fail until the control plane has sent a configuration. With `false`,
        /// they do not wait for it.
        required: bool = Flag, Default("true");
        /// TLS to a control plane with `https://`: the keys of an upstream's `tls`. The files are read for each connection.
        tls: UpstreamTls = Map(&UPSTREAM_TLS), Optional;
    }
}

shape! {
    /// The algorithms of domains.
    DOMAIN_ALGORITHMS: DomainAlgorithms = "`algorithm` of `service`" {
        /// The algorithm of all other domains.
        default: Window = Word(Window::WORDS), Default("token_bucket");
        /// The algorithms of single domains, by name.
        domains: Vec<(String, Located<Window>)> = Entries(&Word(Window::WORDS)), Optional;
    }
}

shape! {
    /// A domain: the limits of one proxy, or of several proxies that share them.
    DOMAIN: Domain = "a domain" {
        /// The name that proxies send as `domain`.
        name: String = Label, Required("name: edge");
        /// The limits. At most one applies to a descriptor: it has the keys of `match` in this order, and no others. A value without `*`
        /// precedes a value with `*`; of these, the first one in the file applies; `"*"` alone comes last.
        limits: Vec<Located<DomainLimit>> = Many(&Map(&DOMAIN_LIMIT)), Required("limits: [{ name: per-user, match: { user: \"*\" }, mode: PER_CLIENT, rate: 100, interval: 1m }]");
    }
}

/// A limit of a domain. A limit of a route has the same keys for its quota.
pub(crate) struct DomainLimit {
    pub entries: Located<Vec<(String, Located<String>)>>,
    pub quota_mode: Located<bool>,
    pub keys: Limit,
}

impl FromMap for DomainLimit {
    fn from_map(map: &MapReader<'_>, problems: &mut Problems) -> Self {
        Self {
            entries: map.read("match", problems),
            quota_mode: map.read("quota_mode", problems),
            keys: Limit::from_map(map, problems),
        }
    }
}

/// The keys of a limit of a domain.
pub(crate) static DOMAIN_LIMIT: Shape = Shape {
    title: "a limit of a domain",
    description: "A limit of a domain. Calls do not wait, so `leaky_bucket` is not supported.",
    keys: &[
        Key {
            name: "name",
            kind: Name,
            presence: Presence::Required("name: per-user"),
            description: "The name of the limit in metrics, logs, keys and responses.",
            notes: &[],
        },
        Key {
            name: "match",
            kind: Entries(&Scalar),
            presence: Presence::Required("match: { user: \"*\" }"),
            description: "The keys and values of a descriptor, in order. In a value, each `*` stands for any characters.",
            notes: &[],
        },
        Key {
            name: "mode",
            kind: Word(Mode::WORDS),
            presence: Presence::Required("mode: PER_CLIENT"),
            description: "Whether all descriptors that match share one bucket. The client of `PER_CLIENT` is the values that `*` \
                          matches.",
            notes: &[],
        },
        RATE,
        INTERVAL,
        Key {
            name: "algorithm",
            kind: Word(AlgorithmName::WORDS),
            presence: Presence::Optional,
            description: "When a permit becomes available again. By default, the `algorithm` of `service`.",
            notes: &[],
        },
        Key {
            name: "quota_mode",
            kind: Flag,
            presence: Presence::Default("false"),
            description: "Whether the limit rejects a call only together with all other limits of the call that have \
                          `quota_mode`.",
            notes: &[],
        },
    ],
    shared_keys: Some((&LIMIT, |key| {
        matches!(key.name, "burst" | "warm_up" | "segments" | "timezone" | "on_store_failure" | "shadow")
    })),
};
