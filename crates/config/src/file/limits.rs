//! The keys of clients, requests, routes and limits.

use super::actions::{
    FIELD_CHANGES, FieldChanges, REDIRECT, REJECT, RESPOND, REWRITE, Redirect, Reject, Respond, Rewrite,
};
use super::compression::{COMPRESSION, Compression};
use super::concurrency::{CONCURRENCY, Concurrency};
use super::identities::{IDENTITY_CONDITIONS, IdentityConditions, REQUIRE, Require};
use super::keys::Kind::{
    self, Decimal, Duration, Flag, Form, Integer, Interval as IntervalKind, List, Many, Map, Name, OneOrMany, OrMap,
    OrNone, Scalar, Size, Statuses, Text, Word,
};
use super::keys::{Key, Presence, Shape};
use super::located::{Located, OneOrList, ValueOrMap};
use super::shape::shape;
use super::{AUTHORIZE, Authorize, CORS, Cors, HOUR};
use crate::values::units::{Bytes, Interval, Millis};
use tidegate_limit::algorithm::gcra::warm_up::{MAX_WARM_UP, MIN_WARM_UP};
use tidegate_limit::algorithm::sliding_window::MAX_SEGMENTS;
use tidegate_limit::{AlgorithmName, MAX_INTERVAL, MAX_RATE, Mode};
use tidegate_rules::charge::OnLost;
use tidegate_rules::client::Duplicates;
use tidegate_rules::limits::budget::OnDisconnect;
use tidegate_rules::limits::policy::RateLimitFields;
use tidegate_rules::limits::rule::{OnMissingClient, OnStoreFailure};
use tidegate_rules::request::facts::Scheme;
use tidegate_rules::request::identity::IdentityKind;
use tidegate_rules::route::{Case, RejectionPreset};
use tidegate_rules::rules::{EncodedSlash, Slashes, Underscores};

pub(super) const MAX_PERMITS: u64 = MAX_RATE as u64;
const MAX_QUEUE: u64 = 100_000;
const MAX_PARTITIONS: u64 = 1024;
const MAX_SHARDS: u64 = 256;

shape! {
    /// How to find the address of a client.
    CLIENTS: Clients = "`clients`" {
        /// Networks of proxies whose `X-Forwarded-For` is trusted; the field is read from right to left.
        trusted_proxies: Vec<Located<String>> = List(&Text), Default("[]");
        /// The leading bits of an IPv6 address that identify a client.
        ipv6_prefix: u64 = Integer(32, 128), Default("64");
    }
}

shape! {
    /// How to interpret paths and header fields of requests; [http.md](http.md) and [security.md](security.md) give the
    /// reasons. A layer uses these keys only to find limits. It changes requests only if it is built with
    /// `sanitize(true)`.
    REQUESTS: Requests = "`requests`" {
        /// How to interpret an encoded slash in a path.
        encoded_slash: EncodedSlash = Word(EncodedSlash::WORDS), Default("reject");
        /// How to treat empty segments of a path: `//`.
        slashes: Slashes = Word(Slashes::WORDS), Default("merge");
        /// How to handle fields whose names contain other characters than letters, digits and hyphens.
        underscores: Underscores = Word(Underscores::WORDS), Default("drop");
        /// Fields to remove unless a trusted proxy sent them. `default` stands for the list in
        /// [security.md](security.md); a `*` at the end matches any suffix.
        strip: Vec<Located<String>> = List(&Text), Default("[default]");
        /// Exceptions to `strip`: fields to keep.
        keep: Vec<Located<String>> = List(&Text), Default("[]");
        /// Identifies each request by an `X-Request-Id`, which the gateway forwards, returns and logs. An id of a trusted
        /// proxy is kept if it has at most 128 visible ASCII characters. A layer sets the field, too.
        request_id: bool = Flag, Default("false");
        /// The longest body that limits can read: `json` and `usage` of `permits`, `json` of `when`, and the client `json:POINTER`.
        /// Routes with such limits reject longer bodies with 413 ([bodies.md](bodies.md)).
        json_bytes: Bytes = Size(1 << 10, 64 << 20), Default("1MiB");
    }
}

shape! {
    /// The upstream and the limits of matching requests.
    ROUTE: Route = "a route" {
        /// The name of the route in metrics, logs and keys.
        name: String = Name, Required("name: all"), Always;
        /// The requests that the route applies to.
        r#match: Match = Map(&MATCH), Required("match: { path: /** }"), Always;
        /// The credentials that a request must have: a kind, or a map of conditions; a list contains alternatives. Requests with
        /// missing or invalid credentials get 401, and requests with valid credentials that do not suffice 403
        /// ([identities.md](identities.md)).
        require: Vec<Located<ValueOrMap<IdentityKind, Require>>> =
            OrNone(&OneOrMany(&OrMap(&Word(IdentityKind::WORDS), &REQUIRE))), Optional, Always;
        /// The name of the upstream to forward to. A route of the gateway has exactly one of `upstream`, `redirect`, `respond` and `authorize`;
        /// without them, a layer calls its inner service.
        upstream: String = Text, Optional, OnlyGateway NotWithAuthorize;
        /// Sends clients to another URL.
        redirect: Redirect = Map(&REDIRECT), Optional, NotWithAuthorize;
        /// Responds without an upstream.
        respond: Respond = Map(&RESPOND), Optional, NotWithAuthorize;
        /// Changes the path and the host that the upstream receives. A layer ignores this key and the next three.
        rewrite: Rewrite = Map(&REWRITE), Optional, OnlyGateway NeedsUpstream;
        /// Changes the header fields that the upstream receives.
        request_headers: FieldChanges = OrNone(&Map(&FIELD_CHANGES)), Optional, OnlyGateway NeedsUpstream;
        /// The longest time from the receipt of a request until the end of its response. The upstream's
        /// `timeouts.total` applies if it is shorter.
        timeout: Millis = OrNone(&Duration(1, 24 * HOUR)), Optional, OnlyGateway NeedsUpstream;
        /// Compresses responses of the upstream. `true` uses all defaults. Read
        /// [security.md](security.md#attacks-that-tidegate-does-not-prevent) first.
        compression: ValueOrMap<bool, Compression> = OrMap(&Flag, &COMPRESSION), Default("false"), OnlyGateway;
        /// Changes the header fields of all responses of the route, also of responses of the gateway such as 429.
        response_headers: FieldChanges = OrNone(&Map(&FIELD_CHANGES)), Optional, Always;
        /// The response to requests that the limits reject: a map, or the errors of an API that its clients parse
        /// ([rejections.md](rejections.md)). `jsonrpc` makes the route read bodies ([bodies.md](bodies.md)).
        reject: ValueOrMap<RejectionPreset, Reject> = OrNone(&OrMap(&Word(RejectionPreset::WORDS), &REJECT)), Optional, Always;
        /// Forwards requests that the limits would reject, to another upstream or with a mark
        /// ([rejections.md](rejections.md#forward-instead-of-rejecting)). A limit that refuses a request is not charged, and all others are.
        on_limit: OnLimit = Map(&ON_LIMIT), Optional, NotWithAuthorize;
        /// The limits of the route; a request is charged to all of them or to none. The name of a shared limit, or a map.
        /// `default` stands for the limits of `defaults`. At most 100, candidates included.
        limits: Vec<Located<NamedLimit>> = OrNone(&List(&OrMap(&Text, &LIMIT))), Default("[]"), NotWithAuthorize;
        /// Bounds the requests in flight.
        concurrency: Concurrency = OrNone(&Map(&CONCURRENCY)), Optional, NotWithAuthorize;
        /// The largest request body.
        max_body: Bytes = OrNone(&Size(0, 1 << 50)), Default("1GiB"), Always;
        /// The protocols that clients may switch to with `Upgrade`; `websocket` includes WebSocket over HTTP/2. A
        /// request for another protocol is forwarded without the upgrade ([http.md](http.md#upgrades)).
        upgrades: ValueOrMap<Vec<Located<String>>, BoundedUpgrades> = OrMap(&List(&Text), &UPGRADES), Default("[websocket]"), OnlyGateway;
        /// A path, such as `/.well-known/quota`, where a client reads its own limits of this route as JSON, on the host and
        /// with the header fields of `match`. It takes precedence over all routes
        /// ([http.md](http.md#quota-of-a-client)).
        quota: String = Text, Optional, NotWithAuthorize;
        /// Evaluates requests for a proxy instead of forwarding them. Not with `upstream`.
        authorize: Authorize = Map(&AUTHORIZE), Optional, Always;
        /// The pages of other origins that may use the route in browsers.
        cors: Cors = OrNone(&Map(&CORS)), Optional, Always;
        /// The response fields that report the remaining permits to clients.
        headers: Vec<Located<RateLimitFields>> = List(&Word(RateLimitFields::WORDS)), Default("[ietf]"), Always;
    }
}

shape! {
    /// The effect of a limit that refuses a request, in the place of a rejection: one of these keys.
    ON_LIMIT: OnLimit = "`on_limit`" {
        /// The name of the upstream to forward to. Not in a layer.
        upstream: String = Text, Optional;
        /// A field of the request that is forwarded, with the names of the limits, such as `X-Over-Limit`. The field of a client is
        /// always removed.
        mark: String = Text, Optional;
    }
}

shape! {
    /// Protocols that clients may switch to, with the bounds of switched connections.
    UPGRADES: BoundedUpgrades = "`upgrades`" {
        /// The protocols, as in the field `Upgrade`. HTTP is not allowed, because its requests would bypass the limits.
        protocols: Vec<Located<String>> = List(&Text), Default("[websocket]");
        /// The longest time without data in either direction.
        idle_timeout: Millis = Duration(1, 24 * HOUR), Default("1h");
        /// The longest lifetime of a switched connection. Unlimited by default.
        max_time: Millis = Duration(1, 30 * 24 * HOUR), Optional;
        /// The highest number of bytes in both directions together. Unlimited by default.
        max_bytes: Bytes = Size(0, 1 << 50), Optional;
    }
}

/// The value of a condition, or a pattern of values.
pub(crate) type TextOrPattern = ValueOrMap<String, Box<Pattern>>;

/// The conditions on values, by name.
pub(crate) type Values = Vec<(String, Located<OneOrList<TextOrPattern>>)>;

/// The kind of conditions on values.
const CONDITIONS: Kind = Kind::Conditions(&OrMap(&Text, &PATTERN), &Many(&OrMap(&Text, &PATTERN)));

/// The kind of conditions on values of JSON bodies, which can be numbers and booleans.
const JSON_CONDITIONS: Kind = Kind::Conditions(&OrMap(&Scalar, &PATTERN), &Many(&OrMap(&Scalar, &PATTERN)));

shape! {
    /// A request must meet all conditions. Without conditions, every request matches.
    MATCH: Match = "a `match`" {
        /// `api.example.com`, or `*.example.com` for all hosts below it.
        host: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// `/a/b` matches this path, `/a/{segment}` any value of a segment, `/a/**` the path `/a` and all
        /// paths below it, `/a/v*` all segments that start with `v`, and `/**/*.css` all paths whose last segment ends with `.css`.
        path: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// How `path`, `headers`, `query` and `cookies` compare letters, also in `not`. Names of cookies and methods have
        /// one case; hosts and names of header fields have none.
        case: Case = Word(Case::WORDS), Default("sensitive");
        /// The methods that match.
        methods: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// Header fields: each has exactly this value, matches this pattern, has one of these values, or is `present` or
        /// `absent`. In a list, these two words are values.
        headers: Values = CONDITIONS, Optional;
        /// Query parameters, with the same conditions ([http.md](http.md#values-that-select-routes)).
        query: Values = CONDITIONS, Optional;
        /// Cookies, with the same conditions.
        cookies: Values = CONDITIONS, Optional;
        /// Networks or addresses. One of them includes the client's address, which can come from a trusted proxy.
        clients: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// The scheme of the client's request: as a trusted proxy reports it in `X-Forwarded-Proto`, or of the connection.
        scheme: Scheme = Word(Scheme::WORDS), Optional;
        /// The names of listeners. One of them received the request. In a layer, no request meets this condition.
        listener: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// Values of verified credentials: `jwt:CLAIM`, `key:NAME` or `basic:user`. A request with missing or invalid
        /// credentials does not match, and the next routes are tried. Not in `not` and `when`.
        identity: IdentityConditions = IDENTITY_CONDITIONS, Optional;
        /// Excludes requests that meet all these conditions. A list excludes requests that match any of its items.
        not: Vec<Located<Match>> = OneOrMany(&Map(&NOT)), Optional;
    }
}

shape! {
    /// A pattern of a value, at least one key. A value must match all of them. For example
    /// `user-agent: [{ prefix: curl/ }, { regex: "bot|crawler" }]`.
    PATTERN: Pattern = "a pattern" {
        /// The start of the value.
        prefix: String = Text, Optional;
        /// The end of the value.
        suffix: String = Text, Optional;
        /// A text at any place in the value.
        contains: String = Text, Optional;
        /// A [regular expression](https://docs.rs/regex/latest/regex/#syntax) that matches at any place: `^` is the start,
        /// and `$$` the end, since the rule file needs two dollar signs for one. The classes are ASCII, and matching takes
        /// linear time. At most 1,000 bytes.
        regex: String = Text, Optional;
    }
}

/// The conditions of excluded requests.
pub(crate) static NOT: Shape = Shape {
    title: "a `not`",
    description: "Conditions of requests that a `match` excludes.",
    keys: &[],
    shared_keys: Some((&MATCH, |key| !matches!(key.name, "identity" | "not"))),
};

shape! {
    /// A rate limit; [algorithms.md](algorithms.md) describes the guarantees of each algorithm.
    LIMIT: Limit = "a limit" {
        /// The name of the limit in metrics, logs, keys and response fields. Required in a route; the name of a shared
        /// limit is its key.
        name: String = Name, Optional;
        /// Whether all clients share one bucket. Required unless `adopt` is set.
        mode: Mode = Word(Mode::WORDS), Optional;
        /// The parts of a request that identify its client: `ip`, `header:NAME`, `cookie:NAME`, `query:NAME`, `host`,
        /// `path`, `tls:subject`, `tls:san`, `json:POINTER`, `jwt:CLAIM`, `key:id`, `key:ATTRIBUTE`, `basic:user`, in a layer
        /// `extension` (the `ClientKey` in the request's extensions) and `extension:NAME` (of its `ClientKeys`), or a list of these. Required for `PER_CLIENT`.
        client: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// The requests that the limit counts; by default all requests of its routes.
        when: When = Map(&WHEN), Optional;
        /// Takes the rate, the interval and, for `gcra`, the burst from the tier of the client. Only for `PER_CLIENT`.
        tier: TierSource = Map(&TIER_SOURCE), Optional;
        /// Permits per interval, or the value of the request that contains them. Required unless `adopt` or `tier` is set.
        rate: ValueOrMap<u64, RateSource> = OrMap(&Integer(1, MAX_PERMITS), &RATE_SOURCE), Optional;
        /// The interval of the rate. Required unless `adopt` or `tier` is set. Calendar units are only for `fixed_window`.
        interval: Interval = IntervalKind(1, MAX_INTERVAL), Optional;
        /// When a permit becomes available again.
        algorithm: AlgorithmName = Word(AlgorithmName::WORDS), Default("token_bucket");
        /// Permits in a full bucket; only for `gcra`. By default, the rate.
        burst: u64 = Integer(1, MAX_PERMITS), Optional;
        /// After idle time, the rate rises from a third to the full rate within this time; only for `gcra`. By default, it
        /// does not fall.
        warm_up: Millis = Duration(MIN_WARM_UP, MAX_WARM_UP), Optional;
        /// The highest number of waiting requests. For `leaky_bucket` the default is the rate; with `max_wait` it is
        /// 100.
        queue: u64 = Integer(1, MAX_QUEUE), Optional;
        /// Segments per interval; only for `sliding_window`. By default, 10.
        segments: u64 = Integer(1, MAX_SEGMENTS as u64), Optional;
        /// The time zone of the calendar, such as `Europe/Rome`; only for `fixed_window`. By default, UTC.
        timezone: String = Text, Optional;
        /// The number of hash tags over which the clients of a `PER_CLIENT` limit are distributed, and so over the nodes
        /// of a Redis Cluster ([cluster.md](cluster.md)). By default 1; with `store.cluster` 64 if all limits of the
        /// route are `PER_CLIENT` with the same `client`.
        partitions: u64 = Integer(1, MAX_PARTITIONS), Optional;
        /// The number of buckets that share the rate of an `OVERALL` limit, which distributes it over the nodes of a
        /// Redis Cluster. Not for `leaky_bucket`. [cluster.md](cluster.md) describes the costs.
        shards: u64 = Integer(1, MAX_SHARDS), Optional;
        /// Permits per request.
        permits: ValueOrMap<u64, Permits> = OrMap(&Integer(1, MAX_PERMITS), &PERMITS), Default("1");
        /// The longest time that a request waits for permits; by default, it does not wait. For `leaky_bucket` the
        /// default is the interval. A request whose wait would end after its timeout is rejected at once.
        max_wait: Millis = Duration(1, HOUR), Optional;
        /// Charges a request only if its response has one of these statuses, such as `[401, 403]` or `500-599`. Other
        /// requests only have to find enough permits. Permits that the bucket lacks then are debt. Not with `max_wait`, and not for `leaky_bucket`
        /// ([algorithms.md](algorithms.md#charge-by-outcome)).
        charge_on: Vec<Located<String>> = OneOrMany(&Statuses), Optional;
        /// Charges a request before it is forwarded, and refunds it after a response with another status. So concurrent
        /// requests cannot exceed the rate, and clients that leave early are charged. Only with `charge_on`.
        reserve: bool = Flag, Default("false");
        /// How to decide while the store is unreachable. For a limit with `adopt` the default is `allow`, because its
        /// rate is unknown then.
        on_store_failure: OnStoreFailure = Word(OnStoreFailure::WORDS), Default("local");
        /// How to handle a request without a client key.
        on_missing_client: OnMissingClient = Word(OnMissingClient::WORDS), Default("deny");
        /// How to handle a request with several different values of a client key. Equal values are one value.
        duplicates: Duplicates = Word(Duplicates::WORDS), Default("reject");
        /// Evaluates and counts requests without rejecting any.
        shadow: bool = Flag, Default("false");
        /// The name of a Redisson limiter that is shared with Java services.
        key: String = Text, Optional;
        /// Takes the rate, the interval and the mode from the Java service.
        adopt: bool = Flag, Default("false");
        /// A second quota, evaluated as a shadow in addition to the live quota.
        candidate: Box<Limit> = Map(&CANDIDATE), Optional;
        unsupported headers;
    }
}

shape! {
    /// A tier of clients: the rate of limits with `tier`.
    TIER: Tier = "a tier" {
        /// Permits per interval.
        rate: u64 = Integer(1, MAX_PERMITS), Required("rate: 100");
        /// The interval of the rate. Calendar units are only for limits with `fixed_window`.
        interval: Interval = IntervalKind(1, MAX_INTERVAL), Required("interval: 1m");
        /// Permits in a full bucket of a `gcra` limit. By default, the rate.
        burst: u64 = Integer(1, MAX_PERMITS), Optional;
    }
}

shape! {
    /// The tier of a request.
    TIER_SOURCE: TierSource = "`tier` of a limit" {
        /// The value that names the tier: `jwt:CLAIM`, `key:tier`, `key:ATTRIBUTE`, `header:NAME` of a trusted proxy, or in a
        /// layer `extension:NAME` of its `ClientKeys`. Of an array in a token, the first item that is a tier counts.
        by: String = Text, Required("by: key:tier");
        /// The tier of requests without a value, or with an unknown tier.
        default: String = Text, Required("default: free");
    }
}

shape! {
    /// The rate of a request. With `gcra` and `leaky_bucket`, the burst and the queue change in proportion.
    RATE_SOURCE: RateSource = "`rate` of a limit" {
        /// The value with the rate: `jwt:CLAIM`, `key:ATTRIBUTE`, `header:NAME` of a trusted proxy, or in a layer
        /// `extension:NAME` of its `ClientKeys`.
        by: String = Text, Required("by: key:rate");
        /// The rate of requests without a value, or with a value that is not a whole number from 1.
        default: u64 = Integer(1, MAX_PERMITS), Required("default: 100");
        /// The largest rate. Larger values count as this rate.
        max: u64 = Integer(1, MAX_PERMITS), Optional;
    }
}

shape! {
    /// A limit counts only requests that meet all conditions.
    WHEN: When = "`when`" {
        /// The tiers that match: the tier of the limit's `tier`, or otherwise `key:tier`.
        tier: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// A span of each day by the store's clock, such as `"08:00-20:00"`. A span that ends before it starts, such as
        /// `"22:00-06:00"`, continues on the next day and belongs to the day of its start.
        time: String = Text, Optional;
        /// The days of the week: `mon`, `tue`, `wed`, `thu`, `fri`, `sat`, `sun`, or a range such as `mon-fri`.
        days: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// The time zone of `time` and `days`, such as `Europe/Rome`. By default, UTC.
        timezone: String = Text, Optional;
        /// Values of the JSON body by their pointers, with the same conditions as `headers`. Numbers and booleans are compared as
        /// text ([bodies.md](bodies.md)).
        json: Values = JSON_CONDITIONS, Optional;
        also matcher: Match = &MATCH, |key| key.name != "identity";
    }
}

shape! {
    /// The cost of a request: from a header field, from the JSON body ([bodies.md](bodies.md)), or from the usage that the response of a language model reports
    /// ([budgets.md](budgets.md)).
    PERMITS: Permits = "`permits`" {
        /// The header field with the cost.
        header: String = Text, Optional;
        /// The JSON pointer to the cost in the body, such as `/n`, instead of `header`. The value is a whole number.
        json: String = Text, Optional;
        /// The cost of a request without the field or the value. By default, 1.
        default: u64 = Integer(0, MAX_PERMITS), Optional;
        /// The highest cost. A request with a higher value is rejected with 400.
        max: u64 = Integer(1, MAX_PERMITS), Optional;
        /// The number in the response that is the cost, instead of `header` and `json`. The API of the upstream, whose responses report
        /// tokens: `openai`, `openai_responses`, `anthropic`, `gemini` or `bedrock`. Or `header:NAME`, a header field of the response;
        /// `bytes` of its body; `milliseconds` until its end; or members of its JSON body.
        usage: ValueOrMap<String, UsageMembers> = OrMap(&Form(USAGE), &USAGE_MEMBERS), Optional;
        /// The permits that a token costs, by kind. By default, each costs one. A number without kinds counts as output.
        weights: Weights = Map(&WEIGHTS), Optional;
        /// The path of a file with the prices of models, instead of `weights` ([budgets.md](budgets.md#prices)). A relative path
        /// starts at the folder of the rule file. With an API as `usage`.
        prices: String = Text, Optional;
        /// The bounds of requests that do not have them. Required with `usage`.
        reserve: Reserve = Map(&RESERVE), Optional;
        /// With an API as `usage`: the most tokens of input that the models of the upstream accept. Without it, requests are rejected with 400 that add
        /// input which they do not have, such as images, files, stored conversations and tools of the upstream.
        max_input: u64 = Integer(1, MAX_PERMITS), Optional;
        /// The effect on the reservations of a gateway that has died. By default, `charge`.
        on_lost: OnLost = Word(OnLost::WORDS), Optional;
        /// The action if a client leaves before the tokens of its request are known. By default, `drain`.
        on_disconnect: OnDisconnect = Word(OnDisconnect::WORDS), Optional;
    }
}

shape! {
    /// The members of a JSON body, or of the events of a stream, that have the usage. Of several values, the last one counts.
    USAGE_MEMBERS: UsageMembers = "`usage`" {
        /// The tokens of the input, such as `json:/usage/input`.
        input: String = Text, Optional;
        /// The tokens of the output.
        output: String = Text, Optional;
        /// All tokens. Those that `input` and `output` do not have count as output.
        total: String = Text, Optional;
    }
}

shape! {
    /// The permits that a token costs, in steps of a millionth. The kinds are disjoint.
    WEIGHTS: Weights = "`weights`" {
        /// A token of the input.
        input: f64 = Decimal(MAX_WEIGHT), Default("1");
        /// A token of the input that was read from a cache.
        cached_input: f64 = Decimal(MAX_WEIGHT), Default("1");
        /// A token of the input that was written to a cache.
        cache_write: f64 = Decimal(MAX_WEIGHT), Default("1");
        /// A token of the output, with hidden ones (reasoning).
        output: f64 = Decimal(MAX_WEIGHT), Default("1");
    }
}

shape! {
    /// The bounds of requests that do not have them.
    RESERVE: Reserve = "`reserve`" {
        /// With an API as `usage`: the bound of each output in tokens. It is written into requests without one.
        output: u64 = Integer(1, MAX_PERMITS), Optional;
        /// With any other `usage`: the most that a response reports. Each request reserves it.
        total: u64 = Integer(1, MAX_PERMITS), Optional;
        /// The tokens of output that a stream reserves at a time, ahead of the text that passes. If the budget has no more, the
        /// gateway ends the stream as if the output had reached its bound. By default, the whole bound is reserved. Only with
        /// `openai`, `openai_responses` and `anthropic`; requires `whole`.
        slice: u64 = Integer(16, MAX_PERMITS), Optional;
        /// The models with output that their streams do not show (reasoning), such as `["o1*", "o3*"]`: they reserve the whole
        /// bound. `*` stands for any characters. Required with `slice`; `[]` stands for no model.
        whole: Vec<Located<String>> = List(&Text), Optional;
    }
}

/// The texts that `usage` can be.
pub(crate) const USAGE: &str = "^(openai|openai_responses|anthropic|gemini|bedrock|bytes|milliseconds|header:.+)$";

/// The largest weight of a token.
pub(super) const MAX_WEIGHT: u32 = 1_000_000;

/// An item of `limits`: the name of a shared limit, or an own limit.
pub(super) type NamedLimit = ValueOrMap<String, Box<Limit>>;

/// The quota keys of a limit. To put a candidate into force, move its keys into the limit.
pub(crate) static CANDIDATE: Shape = Shape {
    title: "a `candidate`",
    description: "A second quota of the same limit, evaluated as a shadow.",
    keys: &[RATE, INTERVAL],
    shared_keys: Some((&LIMIT, |key| {
        matches!(key.name, "algorithm" | "burst" | "warm_up" | "queue" | "max_wait" | "segments" | "timezone")
    })),
};

/// The rate of a quota that has no other source.
pub(super) const RATE: Key = Key {
    name: "rate",
    kind: Integer(1, MAX_PERMITS),
    presence: Presence::Required("rate: 100"),
    description: "Permits per interval.",
    notes: &[],
};

/// The interval of a quota that has no other source.
pub(super) const INTERVAL: Key = Key {
    name: "interval",
    kind: IntervalKind(1, MAX_INTERVAL),
    presence: Presence::Required("interval: 1m"),
    description: "The interval of the rate. Calendar units are only for `fixed_window`.",
    notes: &[],
};
