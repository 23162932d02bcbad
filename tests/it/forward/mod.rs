//! Forwarding on real sockets: clients, a gateway without limits, and scripted origins.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use tidegate::Config;
use tidegate::internals::LocalGateway;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::upstream::{Origin, OriginConnection};
use crate::support::wire::{soon, until, until_within};

mod bodies;
mod connections;
mod failures;
mod grpc;
mod heads;
mod http2_client;
mod http2_origin;
mod informational;
mod odd_responses;
mod queue;
mod relays;
mod repeats;
mod smuggling;
mod tls_origin;
mod uploads;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A gateway without limits, on the runtime of the test.
struct Gateway {
    local: LocalGateway,
    address: SocketAddr,
}

/// The settings of a gateway with one upstream, `api`, whose timeouts are long.
struct Settings {
    listen: &'static str,
    trusted_proxies: &'static str,
    targets: Vec<String>,
    /// The keys and values of the upstream.
    upstream: BTreeMap<&'static str, String>,
    /// The keys and values of its `timeouts`.
    timeouts: BTreeMap<&'static str, &'static str>,
}

impl Settings {
    fn to(address: SocketAddr) -> Self {
        Self::to_all([address])
    }

    fn to_all(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self::with_targets(addresses.into_iter().map(|address| format!("http://{address}")))
    }

    fn with_targets(targets: impl IntoIterator<Item = String>) -> Self {
        let upstream = [("balance", "round_robin"), ("retry", "{ on: [connect, unsent] }")];
        let upstream = upstream.map(|(key, value)| (key, value.to_owned())).into();
        let timeouts = [("connect", "5s"), ("response", "1m")].into();
        Self { listen: "", trusted_proxies: "", targets: targets.into_iter().collect(), upstream, timeouts }
    }

    /// Sets a key of the upstream.
    fn set(mut self, key: &'static str, value: &str) -> Self {
        self.upstream.insert(key, value.to_owned());
        self
    }

    /// Sets a timeout of the upstream.
    fn timeout(mut self, key: &'static str, value: &'static str) -> Self {
        self.timeouts.insert(key, value);
        self
    }

    /// Adds keys to the listener.
    fn listen(self, listen: &'static str) -> Self {
        Self { listen, ..self }
    }

    /// Makes all clients trusted proxies.
    fn trust_clients(self) -> Self {
        Self { trusted_proxies: "127.0.0.0/8", ..self }
    }

    fn start(self) -> Gateway {
        Gateway::new(&self.config())
    }

    fn config(self) -> Config {
        let upstream: String = self.upstream.iter().map(|(key, value)| format!("{key}: {value}, ")).collect();
        let timeouts: Vec<_> = self.timeouts.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        let text = format!(
            "listen: {{ address: '127.0.0.1:0', header_timeout: 1m, idle_timeout: 1m{} }}
clients: {{ trusted_proxies: [{}] }}
upstreams: {{ api: {{ targets: ['{}'], {upstream}timeouts: {{ {} }} }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: api }}]",
            self.listen,
            self.trusted_proxies,
            self.targets.join("', '"),
            timeouts.join(", "),
        );
        tidegate::Gateway::parse_config(&text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
    }
}

impl Gateway {
    fn new(config: &Config) -> Self {
        let local = LocalGateway::start(config).unwrap();
        Self { address: local.address, local }
    }

    async fn client(&self) -> Raw {
        Raw::connect(self.address).await
    }

    /// Sends a request on a new connection, and returns the response.
    async fn ask(&self, request: impl AsRef<[u8]>) -> Message {
        self.client().await.ask(request).await
    }

    /// Returns `true` if the metrics contain this text.
    fn has_metric(&self, text: &str) -> bool {
        self.local.metrics.render().contains(text)
    }

    /// Returns `true` if the metrics contain this line.
    fn has_line(&self, line: &str) -> bool {
        self.local.metrics.render().lines().any(|other| other == line)
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}
