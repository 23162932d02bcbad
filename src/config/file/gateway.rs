//! The keys of the file, and of what only the gateway has: where it listens, where buckets are, where requests go.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::limits::{CLIENTS, Clients, REQUESTS, ROUTE, Requests, Route};
use super::words::TlsVersion;
use super::{HOUR, Protocol, SECOND};
use crate::config::keys::Kind::{
    Address, Duration, Flag, Many, Map, Name, Named, OneOrMany, OrMap, Secret, Short, Size, Text, Whole,
};
use crate::config::keys::shape;
use crate::config::units::{Bytes, Millis};

const MAX_CONNECTIONS: u64 = 1_000_000;

shape! {
    /// One file has all there is to say. A layer in somebody's own service looks at `store`, `clients`, `requests` and `routes`.
    FILE: File = "the rule file" {
        /// Where clients connect. The gateway needs it.
        listen: Vec<Option<Listen>> = OneOrMany(&Short("address", &LISTEN)), Optional;
        /// Client connections over all of `listen`. Beyond this many, one that waits for its client makes room, or the next is
        /// turned away.
        max_connections: u64 = Whole(1, MAX_CONNECTIONS), Default("50000");
        /// Where operators connect, or `off`. A Unix socket, `unix:/path`, is the gateway's user's alone.
        admin: String = Address, Default("127.0.0.1:9901");
        /// Where the gateway writes a line for each request: `off`, `stdout`, or a path. A relative path starts at the folder of the rule
        /// file, and the folder of the log must exist.
        access_log: String = Text, Default("off");
        /// Where buckets are kept.
        store: Store = Short("url", &STORE), Default("memory");
        /// How a client's address is found.
        clients: Clients = Map(&CLIENTS), Optional;
        /// How requests are read.
        requests: Requests = Map(&REQUESTS), Optional;
        /// Where requests go, by names of yours.
        upstreams: BTreeMap<String, Option<Upstream>> = Named(&Map(&UPSTREAM)), Optional;
        /// Which requests go where, and with which limits. The first that matches counts.
        routes: Vec<Option<Route>> = Many(&Map(&ROUTE)), Needed("routes: [{ name: all, match: { path: /** } }]");
    }
}

shape! {
    /// An address that clients connect to, and what holds for their connections there.
    LISTEN: Listen = "an entry of `listen`" {
        /// An address with a port: `127.0.0.1:8080`, `[::1]:8080`, or `0.0.0.0:8080` for all interfaces. Or a Unix socket: `unix:/path`.
        /// Its clients count as connecting from 127.0.0.1.
        address: String = Address, Needed("address: 0.0.0.0:8080");
        /// Of a Unix socket, the mode of its file, in quotes: it says who may connect. `"0660"` without it: its user and its group.
        mode: String = Text, Optional;
        /// Connections here. Beyond this many, one that waits for its client makes room, or the next is turned away.
        max_connections: u64 = Whole(1, MAX_CONNECTIONS), Default("10000");
        /// Connections of one client beyond this many are turned away; those of trusted proxies are not counted.
        max_connections_per_client: u64 = Whole(1, MAX_CONNECTIONS), Default("1000");
        /// Requests that one connection may bring.
        max_requests: u64 = Whole(1, 1_000_000_000), Default("10000");
        /// Requests that one connection of HTTP/2 may have open at a time.
        max_streams: u64 = Whole(1, 10_000), Default("100");
        /// The longest until the first byte of a connection, and from there to the end of a request's head.
        header_timeout: Millis = Duration(1, HOUR), Default("10s");
        /// The longest that a connection stays open between requests.
        idle_timeout: Millis = Duration(1, 24 * HOUR), Default("75s");
        /// The longest that a body waits for its client without any progress.
        body_timeout: Millis = Duration(1, HOUR), Default("30s");
        /// Bytes that a client must send, or take, in a second of such waiting.
        min_rate: Bytes = Size(0, 1 << 20), Default("240B");
        /// Header fields of a request.
        max_fields: u64 = Whole(1, 1000), Default("100");
        /// Bytes of all header fields of a request.
        max_field_bytes: Bytes = Size(1 << 10, 1 << 20), Default("16KiB");
        /// Bytes of a target.
        max_target: Bytes = Size(1 << 8, 1 << 15), Default("8KiB");
        /// TLS, which is spoken here instead of HTTP in clear.
        tls: ListenTls = Map(&LISTEN_TLS), Optional;
        /// Whether HTTP/2 is spoken beside HTTP/1.1: over TLS with clients that ask for it (ALPN), in clear with those that begin
        /// with it.
        http2: bool = Flag, Default("true");
        /// Whether each connection begins with a header of the PROXY protocol, version 1 or 2. Only `trusted_proxies` may connect then,
        /// and the address in the header is the client. A map switches it on as well.
        proxy_protocol: ProxyProtocol = OrMap(&Flag, &PROXY_PROTOCOL), Default("false");
    }
}

/// Whether a listener reads the PROXY protocol.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum ProxyProtocol {
    Flag(bool),
    Settings(ProxySettings),
}

shape! {
    /// The PROXY protocol of a listener, switched on.
    PROXY_PROTOCOL: ProxySettings = "`proxy_protocol`" {
        /// Whether forwarded fields are trusted, as `X-Forwarded-For`, if the header names no client (`UNKNOWN`, `LOCAL`, `UNSPEC`,
        /// a Unix socket). Set it only if the proxy writes these fields itself: it decides whether a client can choose its address.
        trust_unknown: bool = Flag, Default("false");
    }
}

shape! {
    /// TLS to clients: 1.2 and 1.3, with forward secrecy and AEAD alone. Files are PEM, not encrypted. A relative path starts at the folder of the rule file.
    LISTEN_TLS: ListenTls = "`tls` of a listener" {
        /// The certificates. A client is shown the one with the name that it asks for (SNI), else the first.
        certificates: Vec<Option<Certificate>> =
            OneOrMany(&Map(&CERTIFICATE)), Needed("certificates: [{ cert: api.pem, key: api.key }]");
        /// The oldest version that is spoken, in quotes.
        min_version: TlsVersion = TlsVersion::KIND, Default("1.2");
        /// Whether clients show a certificate of their own.
        client_auth: ClientAuth = Map(&CLIENT_AUTH), Optional;
        /// TLS handshakes of one client in a second, as an average of ten seconds; further connections are closed. 0 does not
        /// limit them. Trusted proxies are not counted.
        max_handshake_rate: u64 = Whole(0, 1_000_000), Default("100");
    }
}

shape! {
    /// A certificate that clients are shown. Its names are read from it; `*.example.com` stands for any one label before the dot.
    CERTIFICATE: Certificate = "a certificate" {
        /// The file with it, and after it those that lead to its authority.
        cert: String = Text, Needed("cert: api.pem");
        /// The file with its private key.
        key: String = Text, Needed("key: api.key");
        /// The file with what its authority says of it (OCSP, in DER), to be shown with it.
        ocsp: String = Text, Optional;
    }
}

shape! {
    /// How clients show who they are. What limits know them by then is `client: tls:subject`, the subject of their certificate as
    /// in `CN=alice,O=Example` (RFC 4514), or `tls:san`, its first alternative name that is a URI, a host's or an address of mail.
    CLIENT_AUTH: ClientAuth = "`client_auth`" {
        /// The file with the authorities, one of which has signed a client's certificate.
        ca: String = Text, Needed("ca: clients.pem");
        /// Whether a client without a certificate is turned away.
        required: bool = Flag, Default("true");
    }
}

shape! {
    /// Where buckets are kept: in the process, or in a Redis that gateways share.
    STORE: Store = "the store" {
        /// `memory`, or `redis://[user:password@]host[:port][/database]` with special characters percent-encoded; the same with
        /// `rediss://` for TLS; or `unix:///path?user=NAME&db=NUMBER`, where all from `?` on may be left out.
        url: String = Secret, Optional;
        /// Instead of `url`: Redis Sentinel, which knows where the master is.
        sentinel: Sentinel = Map(&SENTINEL), Optional;
        /// Instead of `url`: some nodes of a Redis Cluster, any of which tells of all: `redis://[user:password@]host[:port]`, or
        /// `rediss://` for TLS. The user and the password of the first hold for all nodes.
        cluster: Vec<Option<String>> = OneOrMany(&Secret), Optional;
        /// The user at the master. Only with `sentinel`; otherwise it is part of `url`.
        user: String = Text, Optional;
        /// The password at the master. Only with `sentinel`; otherwise it is part of `url`.
        password: String = Secret, Optional;
        /// The number of the master's database; 0 without it. Only with `sentinel`; otherwise it is part of `url`.
        database: u64 = Whole(0, u16::MAX as u64), Optional;
        /// Whom TLS trusts, and what it shows of itself. TLS is used if `url` begins with `rediss://`; with `sentinel`, if this key is
        /// there, if only as `{}`.
        tls: Tls = Map(&TLS), Optional;
        /// The file with the password, where none is written: read for each connection, without the end of its last line.
        /// A relative path starts at the folder of the rule file. Not with `memory`.
        password_file: String = Text, Optional;
        /// The longest that a decision may take: queueing, connecting and the reply together. Not with `memory`.
        timeout: Millis = Duration(1, 60 * SECOND), Default("50ms");
        /// Put before every key. Not with `memory`.
        prefix: String = Name, Optional;
        /// Connections for decisions that each worker keeps open. Not with `memory`.
        pool_size: u64 = Whole(1, 1024), Default("1");
        /// Whether `/readyz` fails while the store is away, so that a load balancer sends requests elsewhere: to gateways that can
        /// reach it, if there are any. Not with `memory`.
        fail_readiness: bool = Flag, Default("false");
        /// The fewest gateways that share the store. While Redis does not decide, a gateway grants no more than one of so many
        /// parts of each limit, even if Redis has counted fewer gateways or none yet. Not with `memory`.
        min_gateways: u64 = Whole(1, 65536), Default("1");
        /// The secret under which clients are hashed, of at least 16 bytes and the same for all gateways. Without it, one
        /// is made up, and kept in Redis.
        key_secret: String = Secret, Optional;
    }
}

shape! {
    /// Redis Sentinel, which knows where the master is.
    SENTINEL: Sentinel = "`sentinel`" {
        /// The sentinels: `redis://[user:password@]host:port` each, or `rediss://` for TLS. One that answers is enough.
        urls: Vec<Option<String>> = OneOrMany(&Secret), Needed("urls: [redis://s1:26379, redis://s2:26379, redis://s3:26379]");
        /// The name of the master, as in their configuration.
        master: String = Name, Needed("master: mymaster");
        /// The file with the password of the sentinels, if their URLs have none. It is read like the store's.
        password_file: String = Text, Optional;
        /// TLS to the sentinels. Without it, the store's `tls` is used for them, too.
        tls: Tls = Map(&TLS), Optional;
    }
}

shape! {
    /// Files in PEM, read for each connection. A relative path starts at the folder of the rule file. The name in the
    /// URL is always verified.
    TLS: Tls = "TLS of the store" {
        /// The authorities, one of which has signed Redis's certificate. Without it, those that the system trusts.
        ca: String = Text, Optional;
        /// The certificate that is shown to Redis, and after it those that lead to its authority. It needs `key`.
        cert: String = Text, Optional;
        /// The private key of `cert`, not encrypted.
        key: String = Text, Optional;
    }
}

shape! {
    /// Where requests go.
    UPSTREAM: Upstream = "an upstream" {
        /// The places that serve it, in turn.
        targets: Vec<Option<Target>> = OneOrMany(&Short("url", &TARGET)), Needed("targets: [http://127.0.0.1:9000]");
        /// What is spoken to them.
        protocol: Protocol = Protocol::KIND, Default("auto");
        /// How TLS is spoken to targets with `https://`.
        tls: UpstreamTls = Map(&UPSTREAM_TLS), Optional;
        /// The longest that a connection may take to open, TLS and all.
        connect_timeout: Millis = Duration(1, HOUR), Default("1s");
        /// The longest until an answer begins, once the request is on its way.
        response_timeout: Millis = Duration(1, 24 * HOUR), Default("30s");
        /// The longest silence in an answer that has begun.
        body_timeout: Millis = Duration(1, 24 * HOUR), Default("30s");
        /// Connections to each target, in use or idle; with HTTP/2, requests at a time. A client that holds some takes another only while it holds fewer than are free, and more are free than are reserved ([security.md](security.md#bounds-on-upstreams)).
        max_connections: u64 = Whole(1, 1_000_000), Default("1024");
        /// Requests that wait for a connection to each target.
        queue: u64 = Whole(0, 1_000_000), Default("1024");
        /// The longest that a request waits for one.
        queue_timeout: Millis = Duration(1, HOUR), Default("1s");
    }
}

shape! {
    /// Files are PEM, read when the gateway starts. A relative path starts at the folder of the rule file.
    UPSTREAM_TLS: UpstreamTls = "`tls` of an upstream" {
        /// The authorities, one of which has signed the certificates of the targets. Without it, those that the system trusts.
        ca: String = Text, Optional;
        /// The name that their certificates have to be for, and that they are asked for (SNI). Without it, the host of the target.
        server_name: String = Text, Optional;
        /// The certificate that targets are shown, and after it those that lead to its authority. It needs `key`.
        cert: String = Text, Optional;
        /// The private key of `cert`, not encrypted.
        key: String = Text, Optional;
        /// Whether certificates are verified. `false` lets anybody on the way read and change everything.
        verify: bool = Flag, Default("true");
    }
}

shape! {
    /// One of the places that serve an upstream.
    TARGET: Target = "a target" {
        /// `http://host`, `http://host:port`, the same with `https://` for TLS, `unix:/path` for a Unix socket, or `builtin:echo`, which
        /// answers with the request.
        url: String = Text, Needed("url: http://127.0.0.1:9000");
        unbuilt weight;
    }
}
