//! The top-level keys of the rule file, and the keys of listeners, the store and upstreams.

use std::collections::BTreeMap;

use super::actions::{BANS, Respond};
use super::defaults::DEFAULTS;
use super::identities::{IDENTITIES, Identities};
use super::include::{INCLUDE, Include};
use super::keys::Kind::{
    Address, Decimal, Duration, Flag, Integer, List, Many, Map, Name, Named, OneOrMany, OrMap, Prefix, Secret, Short,
    Size, Statuses, Text, Word,
};
use super::limits::{CLIENTS, Clients, LIMIT, Limit, REQUESTS, ROUTE, Requests, Route, TIER, Tier};
use super::listen_tls::{LISTEN_TLS, ListenTls};
use super::located::{Located, ValueOrMap};
use super::service::{SERVICE, Service};
use super::shape::shape;
use super::upstream_tls::{UPSTREAM_TLS, UpstreamTls};
use super::{HOUR, SECOND};
use crate::values::access_log::AccessLogFormat;
use crate::values::dashboard::DashboardMode;
use crate::values::units::{Bytes, Millis};
use tidegate_rules::settings::upstream::{BalanceMethod, EjectMode, Protocol, RetryMode};

const MAX_CONNECTIONS: u64 = 1_000_000;

shape! {
    /// A Tower layer uses only `store`, `metrics`, `clients`, `requests`, `identities`, `include`, `defaults`, `tiers`, `limits`
    /// and `routes`.
    FILE: File = "the rule file" {
        /// The addresses that clients connect to. Required for the gateway, unless it has only a `service`.
        listen: Vec<Located<Listen>> = OneOrMany(&Short("address", &LISTEN)), Optional;
        /// The highest number of client connections over all entries of `listen`. If it is reached, a new connection
        /// replaces one that waits for its client. If no connection waits, the gateway rejects the new one.
        max_connections: u64 = Integer(1, MAX_CONNECTIONS), Default("50000");
        /// The admin listener: health checks, metrics, and the API of operators.
        admin: Admin = Short("address", &ADMIN), Default("127.0.0.1:9901");
        /// The access log with one line for each request.
        access_log: AccessLog = Short("path", &ACCESS_LOG), Default("off");
        /// The store for rate limit buckets.
        store: Store = Short("url", &STORE), Default("memory");
        /// The metrics. Applies from the start of the process.
        metrics: Metrics = Map(&METRICS), Optional;
        /// How to find the address of a client.
        clients: Clients = Map(&CLIENTS), Optional;
        /// How to interpret paths and header fields of requests.
        requests: Requests = Map(&REQUESTS), Optional;
        /// The response to clients that an operator has [banned](overrides.md).
        bans: Respond = Map(&BANS), Optional;
        /// API keys and tokens that identify clients.
        identities: Identities = Map(&IDENTITIES), Optional;
        /// Files with more `upstreams` and `routes`, and `defaults` for these routes; they have no other keys. A path, a map for
        /// the file of a team, or a list of these. A `*` in the file name matches any characters, also no file at all. A missing
        /// folder or file is an error, unless the path starts with `?`: `"?conf.d/*.yaml"`. Files are read in the order of this list, and of their names. Their routes
        /// come after the routes of the rule file. Relative paths, also in these files, start at the folder of the rule
        /// file. Each file has at most 1 MiB, all together 16 MiB, and there are at most 1,000. The rule file and all
        /// included files have at most 250,000 values together. The gateway notices changed, new and removed files.
        include: Vec<Located<Include>> = OneOrMany(&Short("path", &INCLUDE)), Optional;
        /// Values of all routes that do not set these keys. The `defaults` of an included file extend them for its routes.
        defaults: Box<Route> = Map(&DEFAULTS), Optional;
        /// How to resolve the names of upstreams, key sets and the collector of traces.
        dns: Dns = Map(&DNS), Optional;
        /// The servers that requests are forwarded to, by name.
        upstreams: BTreeMap<String, Located<Upstream>> = Named(&Map(&UPSTREAM)), Optional;
        /// The tiers of clients, by name. Limits with `tier` take their rates from them.
        tiers: BTreeMap<String, Located<Tier>> = Named(&Map(&TIER)), Optional;
        /// Shared limits, by name. All routes that name a shared limit use the same buckets. In metrics its `route` is
        /// empty; the admin API and the commands use the route `@`, as in `@/daily`.
        limits: BTreeMap<String, Located<Limit>> = Named(&Map(&LIMIT)), Optional;
        /// A rate limit service that proxies ask over gRPC or HTTP.
        service: Service = Map(&SERVICE), Optional;
        /// The routes with their upstreams and limits. The first route that matches a request applies. With `service`, a file may
        /// have neither `routes` nor `listen`.
        routes: Vec<Located<Route>> = Many(&Map(&ROUTE)), Required("routes: [{ name: all, match: { path: /** } }]");
    }
}

shape! {
    /// The admin listener.
    ADMIN: Admin = "`admin`" {
        /// The address, or `off`. Only the gateway's user can connect to a Unix socket, `unix:/path`.
        address: String = Address, Default("127.0.0.1:9901");
        /// The operators who may change things, such as reset a client. Over TCP every change needs a token; on a Unix
        /// socket its file mode decides.
        tokens: Tokens = Map(&TOKENS), Optional;
        /// Whether lists of rejected clients show values, such as API keys, instead of only hashes. The gateway keeps at most
        /// 2,048 in memory, of each the first 128 bytes.
        show_clients: bool = Flag, Default("false");
        /// Whether the gateway counts the requests, bytes and permits of each client for `tidegate top --talkers`, the API
        /// and the dashboard. It uses up to 5 MB.
        talkers: bool = Flag, Default("false");
        /// The dashboard at `/` of the admin listener.
        dashboard: DashboardMode = Word(DashboardMode::WORDS), Default("on");
    }
}

shape! {
    /// The tokens of operators.
    TOKENS: Tokens = "`tokens`" {
        /// A file with a line `name:token` for each operator. A token has at least 16 characters. The gateway reads the
        /// file for each change that an operator requests. A relative path starts at the folder of the rule file.
        file: String = Text, Required("file: tokens.txt");
    }
}

shape! {
    /// The access log. [operations.md](operations.md#access-log) lists the fields.
    ACCESS_LOG: AccessLog = "`access_log`" {
        /// `off`, `stdout`, or the path of a file. A relative path starts at the folder of the rule file. The folder of
        /// the log must exist.
        path: String = Text, Required("path: stdout");
        /// The format of the lines. By default `json` with `--log-format json`, otherwise `text`.
        format: AccessLogFormat = Word(AccessLogFormat::WORDS), Optional;
        /// The share of the lines that are written. All requests that are rejected or fail are logged.
        sample: f64 = Decimal(1), Default("1");
    }
}

shape! {
    /// The metrics that the gateway or the layer counts.
    METRICS: Metrics = "`metrics`" {
        /// The upper bounds of the histograms of durations: at most 30, in ascending order. Without this key, there are
        /// 13 bounds from 0.5 ms to 10 s. A program that gives its own `Metrics` to the layer sets them with
        /// `Metrics::with_buckets`.
        buckets: Vec<Located<Millis>> = Many(&Duration(1, HOUR)), Optional;
    }
}

shape! {
    /// An address that clients connect to, with the settings of its connections.
    LISTEN: Listen = "an entry of `listen`" {
        /// An address with a port: `127.0.0.1:8080`, `[::1]:8080`, or `0.0.0.0:8080` for all interfaces. Or a Unix
        /// socket, `unix:/path`: its clients have the address 127.0.0.1.
        address: String = Address, Required("address: 0.0.0.0:8080");
        /// The name for `listener` of a `match`.
        name: String = Name, Optional;
        /// The file mode of a Unix socket, in quotes; it decides which users may connect. The default is `"0660"`: the
        /// socket's user and group.
        mode: String = Text, Optional;
        /// The highest number of connections. If it is reached, a new connection replaces one that waits for its client.
        /// If no connection waits, the gateway rejects the new one.
        max_connections: u64 = Integer(1, MAX_CONNECTIONS), Default("10000");
        /// The highest number of connections of one client. Connections of trusted proxies are not counted.
        max_connections_per_client: u64 = Integer(1, MAX_CONNECTIONS), Default("1000");
        /// The highest number of requests on one connection.
        max_requests: u64 = Integer(1, 1_000_000_000), Default("10000");
        /// The highest number of concurrent requests on an HTTP/2 connection.
        max_streams: u64 = Integer(1, 10_000), Default("100");
        /// The longest time until the first byte of a connection, and from the first byte to the end of a request head.
        header_timeout: Millis = Duration(1, HOUR), Default("10s");
        /// The longest time that a connection stays open between requests.
        idle_timeout: Millis = Duration(1, 24 * HOUR), Default("75s");
        /// The longest time that a body waits for its client without progress.
        body_timeout: Millis = Duration(1, HOUR), Default("30s");
        /// The bytes per second that a client must send or receive while a body waits for it.
        min_rate: Bytes = Size(0, 1 << 20), Default("240B");
        /// The highest number of header fields in a request.
        max_fields: u64 = Integer(1, 1000), Default("100");
        /// The largest size of all header fields of a request together.
        max_field_bytes: Bytes = Size(1 << 10, 1 << 20), Default("16KiB");
        /// The longest request target.
        max_target: Bytes = Size(1 << 8, 1 << 15), Default("8KiB");
        /// Serves TLS instead of plaintext HTTP.
        tls: ListenTls = Map(&LISTEN_TLS), Optional;
        /// Whether to serve HTTP/2 in addition to HTTP/1.1. Over TLS the client selects it with ALPN; in plaintext it
        /// starts with the HTTP/2 preface.
        http2: bool = Flag, Default("true");
        /// Whether each connection starts with a PROXY protocol header, version 1 or 2. Only `trusted_proxies` may
        /// connect then, and the header names the client address. A map enables it as well.
        proxy_protocol: ValueOrMap<bool, ProxySettings> = OrMap(&Flag, &PROXY_PROTOCOL), Default("false");
    }
}

shape! {
    /// Enables the PROXY protocol on a listener.
    PROXY_PROTOCOL: ProxySettings = "`proxy_protocol`" {
        /// Whether to trust fields such as `X-Forwarded-For` if the header names no client (`UNKNOWN`, `LOCAL`,
        /// `UNSPEC`, a Unix socket). Set it only if the proxy overwrites these fields; otherwise clients can choose
        /// their address.
        trust_unknown: bool = Flag, Default("false");
    }
}

shape! {
    /// The store for rate limit buckets: in memory, or in a Redis that several gateways share.
    STORE: Store = "the store" {
        /// `memory`, or `redis://[user:password@]host[:port][/database]` with special characters percent-encoded; the
        /// same with `rediss://` for TLS; or `unix:///path?user=NAME&db=NUMBER`, where the part from `?` on is
        /// optional.
        url: String = Secret, Optional;
        /// Instead of `url`: finds the Redis master with Redis Sentinel.
        sentinel: Sentinel = Map(&SENTINEL), Optional;
        /// Instead of `url`: some nodes of a Redis Cluster, each `redis://[user:password@]host[:port]`, or `rediss://`
        /// for TLS. The gateway discovers the other nodes. The user and password of the first node are used for all
        /// nodes.
        cluster: Vec<Located<String>> = OneOrMany(&Secret), Optional;
        /// The user at the master. Only with `sentinel`; otherwise put it into `url`.
        user: String = Text, Optional;
        /// The password at the master. Only with `sentinel`; otherwise put it into `url`.
        password: String = Secret, Optional;
        /// The database number at the master; 0 by default. Only with `sentinel`; otherwise put it into `url`.
        database: u64 = Integer(0, u16::MAX as u64), Optional;
        /// Trust anchors and client certificate for TLS. TLS is used if `url` starts with `rediss://`; with `sentinel`,
        /// if this key is present, even as `{}`.
        tls: Tls = Map(&TLS), Optional;
        /// A file with the password, instead of a password in the rule file. It is read for each connection, without
        /// its final line break. A relative path starts at the folder of the rule file. Not with `memory`.
        password_file: String = Text, Optional;
        /// The longest time for one decision, including queueing, connecting and the reply. In a file with `service` and without
        /// `routes`, the default is `timeout` of `service`. Not with `memory`.
        timeout: Millis = Duration(1, 60 * SECOND), Default("50ms");
        /// A prefix of all keys, such as `billing:`. Not with `memory`.
        prefix: String = Prefix, Optional;
        /// The connections for decisions that each worker keeps open. Not with `memory`.
        pool_size: u64 = Integer(1, 1024), Default("1");
        /// Whether `/readyz` fails while the store is unreachable, so that a load balancer uses gateways that can reach
        /// the store. Not with `memory`.
        fail_readiness: bool = Flag, Default("false");
        /// The lowest number of gateways to assume. While Redis is unreachable, a gateway grants at most its share of
        /// each limit among this many gateways, even if Redis has counted fewer. Not with `memory`.
        min_gateways: u64 = Integer(1, 65536), Default("1");
        /// The secret for hashing client keys: at least 16 bytes, identical on all gateways. By default, a random
        /// secret that is stored in Redis.
        key_secret: String = Secret, Optional;
    }
}

shape! {
    /// Finds the Redis master with Redis Sentinel.
    SENTINEL: Sentinel = "`sentinel`" {
        /// The sentinels, each `redis://[user:password@]host:port`, or `rediss://` for TLS. One reachable sentinel is
        /// enough.
        urls: Vec<Located<String>> =
            OneOrMany(&Secret), Required("urls: [redis://s1:26379, redis://s2:26379, redis://s3:26379]");
        /// The name of the master in the configuration of the sentinels.
        master: String = Name, Required("master: mymaster");
        /// A file with the password of the sentinels, if their URLs contain none. It is read like the store's
        /// `password_file`.
        password_file: String = Text, Optional;
        /// TLS to the sentinels. By default, the store's `tls`.
        tls: Tls = Map(&TLS), Optional;
    }
}

shape! {
    /// Files are PEM and are read for each connection. A relative path starts at the folder of the rule file. The host
    /// name in the URL is always verified.
    TLS: Tls = "TLS of the store" {
        /// The authorities that may sign Redis's certificate. By default, the authorities that the system trusts.
        ca: String = Text, Optional;
        /// The client certificate for Redis, followed by its intermediate certificates. Requires `key`.
        cert: String = Text, Optional;
        /// The private key of `cert`, not encrypted.
        key: String = Text, Optional;
    }
}

shape! {
    /// How to resolve the names of upstreams, key sets and the collector of traces.
    DNS: Dns = "`dns`" {
        /// The DNS servers, as IP addresses with an optional port. By default, the servers of `/etc/resolv.conf`. The
        /// search list of that file and `/etc/hosts` always apply.
        servers: Vec<Located<String>> = OneOrMany(&Text), Optional;
    }
}

shape! {
    /// A group of servers that requests are forwarded to.
    UPSTREAM: Upstream = "an upstream" {
        /// The servers of the upstream.
        targets: Vec<Located<Target>> = OneOrMany(&Short("url", &TARGET)), Required("targets: [http://127.0.0.1:9000]");
        /// How requests are distributed to the targets ([upstreams.md](upstreams.md#balancing)).
        balance: ValueOrMap<BalanceMethod, HashBalance> =
            OrMap(&Word(BalanceMethod::WORDS), &HASH_BALANCE), Default("least_requests");
        /// When a failing target is ejected: it gets no requests for a while ([upstreams.md](upstreams.md#ejection)). `off`
        /// never ejects.
        eject: ValueOrMap<EjectMode, Eject> = OrMap(&Word(EjectMode::WORDS), &EJECT), Optional;
        /// The time in which the share of a target grows from 10 % to all of its weight, after the target has become
        /// usable. By default, it gets its full share at once.
        slow_start: Millis = Duration(1, HOUR), Optional;
        /// The protocol between the gateway and the targets.
        protocol: Protocol = Word(Protocol::WORDS), Default("auto");
        /// TLS to targets with `https://`.
        tls: UpstreamTls = Map(&UPSTREAM_TLS), Optional;
        /// The deadlines of a request.
        timeouts: Timeouts = Map(&TIMEOUTS), Optional;
        /// Active health checks: the gateway requests a path from each target at intervals. Off without this key.
        health: Health = Short("path", &HEALTH), Optional;
        /// The retries of requests, or `off`: a request is then sent to one target only.
        retry: ValueOrMap<RetryMode, Retry> = OrMap(&Word(RetryMode::WORDS), &RETRY), Optional;
        /// The highest number of connections to each target, in use or idle; with HTTP/2, of concurrent requests. Each
        /// worker has an equal share, at least one. Some of them are reserved for clients that use none
        /// ([security.md](security.md#bounds-on-upstreams)).
        max_connections: u64 = Integer(1, 1_000_000), Default("1024");
        /// The highest number of requests that wait for a connection to each target. Each worker has an equal share.
        queue: u64 = Integer(0, 1_000_000), Default("1024");
        /// The longest time that a request waits for a connection.
        queue_timeout: Millis = Duration(1, HOUR), Default("1s");
        /// The highest number of header fields in a response.
        max_fields: u64 = Integer(1, 1000), Default("100");
        /// The largest head of a response; over HTTP/2, each field counts with 32 bytes more.
        max_field_bytes: Bytes = Size(1 << 10, 1 << 20), Default("64KiB");
    }
}

shape! {
    /// The same target for equal keys.
    HASH_BALANCE: HashBalance = "`balance`" {
        /// The part of a request that selects its target: `client` (its address), `header:NAME`, `cookie:NAME` or `path`.
        /// Requests without it use `least_requests`.
        hash: String = Text, Required("hash: client");
    }
}

shape! {
    /// When a target is ejected, and for how long.
    EJECT: Eject = "`eject`" {
        /// The consecutive failures after which a target is ejected: no response, or one of the statuses 500,
        /// 502, 503 and 504. An invalid response does not count. If no connection can be opened, two failures are enough.
        after: u64 = Integer(1, 1_000_000), Default("5");
        /// The time of an ejection. Each further ejection in a row is longer by this time, up to 5 minutes.
        r#for: Millis = Duration(1, 24 * HOUR), Default("30s");
        /// The highest share of the targets that are ejected at a time. One target of two or more can always be
        /// ejected, and the last usable target never is.
        most: String = Text, Default("50%");
    }
}

shape! {
    /// The longest times of the phases of a request to the upstream.
    TIMEOUTS: Timeouts = "`timeouts`" {
        /// The longest time to open a connection, including the TLS handshake.
        connect: Millis = Duration(1, HOUR), Default("1s");
        /// The longest time until the response starts, from the start of the attempt, the request for the body (100), or
        /// the last progress of the request body.
        response: Millis = Duration(1, 24 * HOUR), Default("30s");
        /// The longest time without data in a response body, while the client waits for data and the upstream takes
        /// no data of the request body either.
        idle: Millis = Duration(1, 24 * HOUR), Default("60s");
        /// The longest time from the receipt of the request until the end of the response, including the time in queues.
        /// Unlimited by default.
        total: Millis = Duration(1, 24 * HOUR), Optional;
    }
}

shape! {
    /// When a request is sent again ([http.md](http.md#retries)).
    RETRY: Retry = "`retry`" {
        /// How many times a request is sent again, in addition to the attempts that opened no connection.
        attempts: u64 = Integer(1, 10), Default("1");
        /// The failures after which a request is sent again: `connect` (no connection), `unsent` (no part was sent, or
        /// the target reported that it did not process it), `reset` (the connection was closed before the response),
        /// `timeout` (no response within `timeouts.response`), and the statuses `500`, `502`, `503`, `504`.
        on: Vec<Located<String>> = List(&Address), Default("[connect, unsent, reset, timeout]");
        /// The highest share of retries among the requests of the last ten seconds; ten in each second are always
        /// allowed.
        budget: String = Text, Default("20%");
        /// The longest body that is kept until a response begins, to send it again.
        body: Bytes = Size(0, 1 << 24), Default("64KiB");
    }
}

shape! {
    /// Active health checks. Each gateway process checks each target, with a new connection for each check. A target
    /// that fails its checks gets no requests. `builtin:echo` is not checked.
    HEALTH: Health = "`health`" {
        /// The path of the check, which may have a query. Either `path` or `grpc` is required.
        path: String = Text, Optional;
        /// Instead of `path`: calls `grpc.health.v1.Health/Check` over HTTP/2 for this service; `"*"` means the
        /// whole server. `SERVING` passes.
        grpc: String = Text, Optional;
        /// The time between two checks of a target. The gateway varies it by up to 10 %.
        interval: Millis = Duration(100, HOUR), Default("5s");
        /// The longest time for a check, including the connection; at most `interval`.
        timeout: Millis = Duration(1, HOUR), Default("1s");
        /// How many checks in a row a failed target must pass.
        rise: u64 = Integer(1, 100), Default("2");
        /// How many checks in a row a target must fail.
        fall: u64 = Integer(1, 100), Default("3");
        /// The statuses that pass. Not with `grpc`.
        expect: Vec<Located<String>> = OneOrMany(&Statuses), Default("[200-399]");
        /// If more than this share of the targets fails its checks, requests use all of them
        /// ([upstreams.md](upstreams.md#panic)). `0%` turns that off.
        panic: String = Text, Default("50%");
    }
}

shape! {
    /// A server of an upstream.
    TARGET: Target = "a target" {
        /// `http://host`, `http://host:port`, the same with `https://` for TLS, `srv://_service._proto.name` or
        /// `srv+https://` for SRV records, `unix:/path` for a Unix socket, or `builtin:echo`, which returns the request as
        /// the response.
        url: String = Text, Required("url: http://127.0.0.1:9000");
        /// The share of the requests, in proportion to the weights of the other targets.
        weight: u64 = Integer(1, 1000), Default("1");
    }
}
