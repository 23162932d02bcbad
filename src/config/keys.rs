//! Every key of the rule file: where it stands, what it takes, and whether it is built. [`shape`](super::shape) holds
//! files against this table, and [`file`](super::file) has a field for every key that is built.

use crate::limit::sliding_window::MAX_SEGMENTS;
use crate::limit::{MAX_INTERVAL, MAX_RATE};

/// What a value must be.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Text; what it says is checked later.
    Text,
    /// Text, or a number, since a port alone is one and deserves a better answer than quotes.
    Address,
    /// Text that no message repeats.
    Secret,
    /// Text that is the name of something.
    Name,
    /// One of the built words; those not built yet come second.
    Word(&'static [&'static str], &'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number in this range.
    Whole(u64, u64),
    /// A duration in this range of milliseconds.
    Duration(u64, u64),
    /// A size in this range of bytes.
    Size(u64, u64),
    /// A duration in this range of milliseconds, or a unit of the calendar.
    Interval(u64, u64),
    /// A map with these keys.
    Map(&'static Shape),
    /// A map with these keys, or a text, which stands for the map that has only this key.
    Short(&'static str, &'static Shape),
    /// A list, maybe empty.
    List(&'static Kind),
    /// A list of at least one.
    Many(&'static Kind),
    /// A list of at least one, or that one alone.
    OneOrMany(&'static Kind),
    /// A map from names to these.
    Named(&'static Kind),
    /// A map from names of header fields to values.
    Fields,
    /// This, or a map with these keys.
    OrMap(&'static Kind, &'static Shape),
    /// Nothing yet: the key is not built.
    Unbuilt,
}

/// The keys of a map.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What such a map describes, for messages.
    pub(crate) what: &'static str,
    /// Keys that it must have, with an example of each.
    pub(crate) needs: &'static [(&'static str, &'static str)],
    /// All its keys.
    pub(crate) keys: &'static [(&'static str, Kind)],
}

use Kind::{
    Address, Duration, Fields, Flag, Interval, List, Many, Map, Name, Named, OneOrMany, OrMap, Secret, Short, Size,
    Text, Unbuilt, Whole, Word,
};

const ALGORITHMS: [&str; 5] = ["token_bucket", "gcra", "leaky_bucket", "fixed_window", "sliding_window"];
const SECOND: u64 = 1000;
const MAX_CONNECTIONS: u64 = 1_000_000;
const MAX_QUEUE: u64 = 100_000;
const HOUR: u64 = 60 * 60 * SECOND;

/// All shapes, to tell where a misplaced key belongs.
pub(crate) static SHAPES: [&Shape; 12] =
    [&FILE, &LISTEN, &STORE, &CLIENTS, &REQUESTS, &UPSTREAM, &TARGET, &ROUTE, &MATCH, &LIMIT, &PERMITS, &CANDIDATE];

/// The whole file.
pub(crate) static FILE: Shape = Shape {
    what: "the rule file",
    needs: &[("routes", "routes: [{ name: all, match: { path: /** } }]")],
    keys: &[
        ("listen", OneOrMany(&Short("address", &LISTEN))),
        ("max_connections", Whole(1, MAX_CONNECTIONS)),
        ("admin", Address),
        ("access_log", Text),
        ("store", Short("url", &STORE)),
        ("clients", Map(&CLIENTS)),
        ("requests", Map(&REQUESTS)),
        ("upstreams", Named(&Map(&UPSTREAM))),
        ("routes", Many(&Map(&ROUTE))),
    ],
};

static LISTEN: Shape = Shape {
    what: "an entry of `listen`",
    needs: &[("address", "address: 0.0.0.0:8080")],
    keys: &[
        ("address", Address),
        ("max_connections", Whole(1, MAX_CONNECTIONS)),
        ("max_connections_per_client", Whole(1, MAX_CONNECTIONS)),
        ("max_requests", Whole(1, 1_000_000_000)),
        ("max_streams", Whole(1, 10_000)),
        ("header_timeout", Duration(1, HOUR)),
        ("idle_timeout", Duration(1, 24 * HOUR)),
        ("body_timeout", Duration(1, HOUR)),
        ("min_rate", Size(0, 1 << 20)),
        ("max_fields", Whole(1, 1000)),
        ("max_field_bytes", Size(1 << 10, 1 << 20)),
        ("max_target", Size(1 << 8, 1 << 15)),
        ("tls", Unbuilt),
        ("proxy_protocol", Unbuilt),
        ("http2", Unbuilt),
    ],
};

static STORE: Shape = Shape {
    what: "the store",
    needs: &[],
    keys: &[
        ("url", Secret),
        ("timeout", Duration(1, 60 * SECOND)),
        ("prefix", Name),
        ("pool_size", Whole(1, 1024)),
        ("key_secret", Secret),
        ("cluster", Unbuilt),
        ("sentinel", Unbuilt),
    ],
};

static CLIENTS: Shape =
    Shape { what: "`clients`", needs: &[], keys: &[("trusted_proxies", List(&Text)), ("ipv6_prefix", Whole(32, 128))] };

static REQUESTS: Shape = Shape {
    what: "`requests`",
    needs: &[],
    keys: &[
        ("encoded_slash", Word(&["reject", "keep", "decode"], &[])),
        ("underscores", Word(&["drop", "reject", "keep"], &[])),
        ("strip", List(&Text)),
        ("keep", List(&Text)),
    ],
};

static UPSTREAM: Shape = Shape {
    what: "an upstream",
    needs: &[("targets", "targets: [http://127.0.0.1:9000]")],
    keys: &[
        ("targets", OneOrMany(&Short("url", &TARGET))),
        ("connect_timeout", Duration(1, HOUR)),
        ("response_timeout", Duration(1, 24 * HOUR)),
        ("body_timeout", Duration(1, 24 * HOUR)),
        ("max_connections", Whole(1, 1_000_000)),
        ("queue", Whole(0, 1_000_000)),
        ("queue_timeout", Duration(1, HOUR)),
    ],
};

static TARGET: Shape = Shape {
    what: "a target",
    needs: &[("url", "url: http://127.0.0.1:9000")],
    keys: &[("url", Text), ("weight", Unbuilt)],
};

static ROUTE: Shape = Shape {
    what: "a route",
    needs: &[("name", "name: all"), ("match", "match: { path: /** }")],
    keys: &[
        ("name", Name),
        ("match", Map(&MATCH)),
        ("upstream", Text),
        ("limits", List(&Map(&LIMIT))),
        ("max_body", Size(0, 1 << 50)),
        ("headers", List(&Word(&["ietf", "legacy"], &[]))),
    ],
};

static MATCH: Shape = Shape {
    what: "a `match`",
    needs: &[],
    keys: &[("host", Text), ("path", Text), ("methods", OneOrMany(&Text)), ("headers", Fields)],
};

static LIMIT: Shape = Shape {
    what: "a limit",
    // The others it may leave out if it adopts them: see `check`.
    needs: &[("name", "name: per-client")],
    keys: &[
        ("name", Name),
        ("mode", Word(&["OVERALL", "PER_CLIENT"], &[])),
        ("client", OneOrMany(&Text)),
        ("rate", Whole(1, MAX_RATE as u64)),
        ("interval", Interval(1, MAX_INTERVAL)),
        ("algorithm", Word(&ALGORITHMS, &[])),
        ("burst", Whole(1, MAX_RATE as u64)),
        ("permits", OrMap(&Whole(1, MAX_RATE as u64), &PERMITS)),
        ("on_store_failure", Word(&["allow", "deny"], &["local"])),
        ("on_missing_client", Word(&["deny", "skip", "ip"], &[])),
        ("queue", Whole(1, MAX_QUEUE)),
        ("segments", Whole(1, MAX_SEGMENTS as u64)),
        ("timezone", Text),
        ("max_wait", Duration(1, HOUR)),
        ("shadow", Flag),
        ("key", Text),
        ("adopt", Flag),
        ("candidate", Map(&CANDIDATE)),
        ("headers", Unbuilt),
    ],
};

static PERMITS: Shape = Shape {
    what: "`permits`",
    needs: &[("header", "header: X-Cost")],
    keys: &[("header", Text), ("default", Whole(0, MAX_RATE as u64)), ("max", Whole(1, MAX_RATE as u64))],
};

/// A quota as a limit has it: whoever takes to it moves these keys up.
static CANDIDATE: Shape = Shape {
    what: "a `candidate`",
    needs: &[("rate", "rate: 100"), ("interval", "interval: 1m")],
    keys: &[
        ("rate", Whole(1, MAX_RATE as u64)),
        ("interval", Interval(1, MAX_INTERVAL)),
        ("algorithm", Word(&ALGORITHMS, &[])),
        ("burst", Whole(1, MAX_RATE as u64)),
        ("queue", Whole(1, MAX_QUEUE)),
        ("max_wait", Duration(1, HOUR)),
        ("segments", Whole(1, MAX_SEGMENTS as u64)),
        ("timezone", Text),
    ],
};
