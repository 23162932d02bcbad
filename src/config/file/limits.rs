//! The keys of clients, requests, routes and limits.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Algorithm, EncodedSlash, Fields, HOUR, Mode, OnMissingClient, OnStoreFailure, Underscores};
use crate::config::keys::Kind::{
    self, Duration, Flag, Interval as IntervalKind, List, Map, Name, OneOrMany, OrMap, Size, Text, Whole,
};
use crate::config::keys::{Key, Need, Shape, shape};
use crate::config::units::{Bytes, Interval, Millis};
use crate::limit::sliding_window::MAX_SEGMENTS;
use crate::limit::{MAX_INTERVAL, MAX_RATE};

const MAX_PERMITS: u64 = MAX_RATE as u64;
const MAX_QUEUE: u64 = 100_000;
const MAX_PARTITIONS: u64 = 1024;
const MAX_SHARDS: u64 = 256;

shape! {
    /// How a client's address is found.
    CLIENTS: Clients = "`clients`" {
        /// Networks whose `X-Forwarded-For` is believed; it is read from the right.
        trusted_proxies: Vec<Option<String>> = List(&Text), Default("[]");
        /// Bits of an IPv6 address that tell clients apart.
        ipv6_prefix: u64 = Whole(32, 128), Default("64");
    }
}

shape! {
    /// How requests are read; [http.md](http.md) and [security.md](security.md) give the reasons. A layer uses these keys to find
    /// limits and changes no request, unless it is built with `sanitize(true)`.
    REQUESTS: Requests = "`requests`" {
        /// What an encoded slash in a path is.
        encoded_slash: EncodedSlash = EncodedSlash::KIND, Default("reject");
        /// What happens to fields whose names have other characters than letters, digits and hyphens.
        underscores: Underscores = Underscores::KIND, Default("drop");
        /// Fields that are removed unless a trusted proxy sent them; `default` stands for the list in
        /// [security.md](security.md), and a `*` at the end for any rest.
        strip: Vec<Option<String>> = List(&Text), Default("[default]");
        /// Fields of that list which are not removed.
        keep: Vec<Option<String>> = List(&Text), Default("[]");
    }
}

shape! {
    /// Which requests go where, and with which limits.
    ROUTE: Route = "a route" {
        /// Its name in metrics, logs and keys.
        name: String = Name, Needed("name: all");
        /// Which requests it is for.
        r#match: Match = Map(&MATCH), Needed("match: { path: /** }");
        /// The name of the upstream that they go to. The gateway needs it, a layer does not.
        upstream: String = Text, Optional;
        /// What it takes from its requests: all permits or none. At most 100, candidates included.
        limits: Vec<Option<Limit>> = List(&Map(&LIMIT)), Default("[]");
        /// The longest body of a request.
        max_body: Bytes = Size(0, 1 << 50), Default("1GiB");
        /// The protocols that clients may switch their connection to by `Upgrade`; WebSocket over HTTP/2 is `websocket` as well. Any
        /// other request for one goes on without it. [http.md](http.md#upgrades) has more.
        upgrades: Upgrades = OrMap(&List(&Text), &UPGRADES), Default("[websocket]");
        /// In which fields its clients are told what is left.
        headers: Vec<Option<Fields>> = List(&FIELDS), Default("[ietf]");
    }
}

static FIELDS: Kind = Fields::KIND;

/// What clients may switch to.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Upgrades {
    Protocols(Vec<Option<String>>),
    Bounded(BoundedUpgrades),
}

shape! {
    /// What clients may switch to, and what holds for a connection that was switched.
    UPGRADES: BoundedUpgrades = "`upgrades`" {
        /// The protocols, as `Upgrade` names them. HTTP itself is not among them: its requests would not be judged.
        protocols: Vec<Option<String>> = List(&Text), Default("[websocket]");
        /// The longest without a byte in either direction.
        idle_timeout: Millis = Duration(1, 24 * HOUR), Default("1h");
        /// The longest in all; without it, there is no bound.
        max_time: Millis = Duration(1, 30 * 24 * HOUR), Optional;
        /// The most bytes, of both directions together; without it, there is no bound.
        max_bytes: Bytes = Size(0, 1 << 50), Optional;
    }
}

shape! {
    /// All conditions that are there must hold. Without any, every request matches.
    MATCH: Match = "a `match`" {
        /// `api.example.com`, or `*.example.com` for whatever ends so.
        host: String = Text, Optional;
        /// `/a/b` alone, `/a/{segment}` with anything in that place, `/a/**` with anything below.
        path: String = Text, Optional;
        /// Methods, any of them.
        methods: Vec<Option<String>> = OneOrMany(&Text), Optional;
        /// Fields that must be there, with just this value.
        headers: BTreeMap<String, Option<String>> = Kind::Fields, Optional;
    }
}

shape! {
    /// How many permits there are, for whom, and when they come back; [algorithms.md](algorithms.md) has the laws.
    LIMIT: Limit = "a limit" {
        /// Its name in metrics, logs and keys, and for its clients.
        name: String = Name, Needed("name: per-client");
        /// How many buckets there are. Needed, unless it is adopted.
        mode: Mode = Mode::KIND, Optional;
        /// What tells clients apart: `ip`, `header:NAME`, `cookie:NAME`, `query:NAME`, `host`, `path`, `tls:subject`, `tls:san`, in a layer
        /// `extension` (the `ClientKey` in a request's extensions), or a list of these.
        /// `PER_CLIENT` needs it.
        client: Vec<Option<String>> = OneOrMany(&Text), Optional;
        /// Permits in an interval. Needed, unless it is adopted.
        rate: u64 = Whole(1, MAX_PERMITS), Optional;
        /// How long a permit is in use. Needed, unless it is adopted. A unit of the calendar is for `fixed_window`.
        interval: Interval = IntervalKind(1, MAX_INTERVAL), Optional;
        /// When a permit comes back.
        algorithm: Algorithm = Algorithm::KIND, Default("token_bucket");
        /// Permits that a full bucket has; `gcra` alone. Without it, the rate.
        burst: u64 = Whole(1, MAX_PERMITS), Optional;
        /// Requests that may wait: for slots of `leaky_bucket`, by default as many as the rate; or with `max_wait`, by default 100.
        queue: u64 = Whole(1, MAX_QUEUE), Optional;
        /// Segments of an interval; `sliding_window` alone. Without it, 10.
        segments: u64 = Whole(1, MAX_SEGMENTS as u64), Optional;
        /// Whose calendar it is, as in `Europe/Rome`; `fixed_window` alone. Without it, UTC.
        timezone: String = Text, Optional;
        /// Over how many hash tags the clients of `PER_CLIENT` are spread, so that the nodes of a Redis Cluster share them;
        /// [cluster.md](cluster.md) has more. Without it 1; with `store.cluster` 64 if all limits of the route are `PER_CLIENT` with one
        /// `client`.
        partitions: u64 = Whole(1, MAX_PARTITIONS), Optional;
        /// Over how many buckets the rate of `OVERALL` is spread, so that the nodes of a Redis Cluster share it; not for
        /// `leaky_bucket`. [cluster.md](cluster.md) tells what it costs.
        shards: u64 = Whole(1, MAX_SHARDS), Optional;
        /// What a request costs.
        permits: Permits = OrMap(&Whole(1, MAX_PERMITS), &PERMITS), Default("1");
        /// The longest that a refused request is held for a permit; without it, none is. For a slot of `leaky_bucket`, by default
        /// the interval.
        max_wait: Millis = Duration(1, HOUR), Optional;
        /// What it does while the store gives no answer. A limit that adopts its rate has none to share out: without this key it
        /// lets requests pass.
        on_store_failure: OnStoreFailure = OnStoreFailure::KIND, Default("local");
        /// What it does with a request that has no client.
        on_missing_client: OnMissingClient = OnMissingClient::KIND, Default("deny");
        /// It judges and counts, and refuses nobody.
        shadow: bool = Flag, Default("false");
        /// The name of a limiter that Java services share through Redisson.
        key: String = Text, Optional;
        /// The Java service says the rate, the interval and the mode.
        adopt: bool = Flag, Default("false");
        /// A quota that is judged beside this one, in shadow.
        candidate: Box<Limit> = Map(&CANDIDATE), Optional;
        unbuilt headers;
    }
}

shape! {
    /// A request says itself what it costs.
    PERMITS: HeaderPermits = "`permits`" {
        /// The field that says it.
        header: String = Text, Needed("header: X-Cost");
        /// What a request costs that does not say it.
        default: u64 = Whole(0, MAX_PERMITS), Default("1");
        /// The most that a request may cost. A value above is 400.
        max: u64 = Whole(1, MAX_PERMITS), Optional;
    }
}

/// What a request costs.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Permits {
    Fixed(u64),
    Header(HeaderPermits),
}

/// A quota as a limit has it: to adopt a candidate, move these keys up.
pub(crate) static CANDIDATE: Shape = Shape {
    what: "a `candidate`",
    about: "The keys of a limit that make its quota.",
    keys: &[
        Key {
            name: "rate",
            kind: Whole(1, MAX_PERMITS),
            need: Need::Needed("rate: 100"),
            about: "Permits in an interval.",
        },
        Key {
            name: "interval",
            kind: IntervalKind(1, MAX_INTERVAL),
            need: Need::Needed("interval: 1m"),
            about: "How long a permit is in use.",
        },
    ],
    like: Some((&LIMIT, &["algorithm", "burst", "queue", "max_wait", "segments", "timezone"])),
};
