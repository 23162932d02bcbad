//! Permits for programs: `POST /v1/take` of the rate limit service.

mod access;
mod cluster;
mod decisions;
mod errors;
mod ids;
mod law;
mod overrides;
mod page;
mod waiting;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::{Config, Gateway, ListenAddress};

use crate::support::wire::raw::{Message, Raw};

/// The limits of the tests: of a route, of a shared limit, and of a domain.
const RULES: &str = "
upstreams: { api: { targets: ['builtin:echo'] } }
limits: { daily: { mode: OVERALL, rate: 20, interval: 1h } }
routes:
  - name: orders
    match: { path: /orders }
    upstream: api
    limits:
      - daily
      - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 5, interval: 1h }
      - { name: per-key, mode: PER_CLIENT, client: ['header:x-api-key', 'query:tenant'], rate: 5, interval: 1h, on_missing_client: skip }
      - { name: seen, mode: OVERALL, rate: 1, interval: 1h, shadow: true }
  - name: jobs
    match: { path: /jobs }
    upstream: api
    limits:
      - { name: total, mode: OVERALL, rate: 5, interval: 1h }
      - { name: safe, mode: OVERALL, rate: 5, interval: 1h, on_store_failure: deny }
  - name: short
    match: { path: /short }
    upstream: api
    limits:
      - { name: soon, mode: OVERALL, rate: 1, interval: 300ms }
      - { name: slots, mode: OVERALL, rate: 1, interval: 300ms, algorithm: leaky_bucket, max_wait: 1h, queue: 10 }
";

const DOMAIN: &str = "
  domains:
    - name: edge
      limits:
        - { name: per-user, match: { user: '*' }, mode: PER_CLIENT, rate: 5, interval: 1h }
        - { name: total, match: { all: 'yes' }, mode: OVERALL, rate: 5, interval: 1h }
    - name: jobs
      limits: [{ name: total, match: { all: 'yes' }, mode: OVERALL, rate: 3, interval: 1h }]
";

/// A gateway with a rate limit service. Dropping it drains it.
struct TakeService {
    gateway: Option<Gateway>,
    /// The address for requests to routes.
    proxy: SocketAddr,
    admin: SocketAddr,
    http: SocketAddr,
}

impl TakeService {
    /// Starts a service with this store.
    fn start(store: &str) -> Self {
        Self::start_with(store, "127.0.0.1:0", "admin: 127.0.0.1:0\n")
    }

    /// Starts a service with this store and address, and more keys of the rule file.
    fn start_with(store: &str, http: &str, more: &str) -> Self {
        let gateway = Gateway::start(config(store, http, more, RULES), 2).expect("a gateway");
        let tcp = |address: Option<ListenAddress>| address.and_then(|address| address.tcp()).expect("an address");
        let (proxy, admin) = (tcp(gateway.addresses().pop()), tcp(gateway.admin_address().cloned()));
        let http = tcp(gateway.service_http_address());
        Self { gateway: Some(gateway), proxy, admin, http }
    }

    /// Replaces the routes and their limits.
    fn reload(&self, store: &str, rules: &str) {
        let config = config(store, "127.0.0.1:0", "admin: 127.0.0.1:0\n", rules);
        drop(self.gateway.as_ref().expect("a gateway").reload(config).expect("a reload"));
    }

    /// Sends a body with these header lines to a path.
    async fn post(&self, path: &str, headers: &str, body: &str) -> Message {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: service\r\nContent-Length: {length}\r\n{headers}\r\n");
        Raw::connect(self.http).await.ask(head + body).await
    }

    /// Takes permits. Returns the status and the body.
    async fn take(&self, body: &Value) -> (u16, Value) {
        let response = self.post("/v1/take", "", &body.to_string()).await;
        (response.status(), json_of(&response))
    }

    /// Takes permits of one limit. Returns the status, and the permits that remain.
    async fn take_one(&self, limit: &str, client: impl Into<Value>, permits: u32) -> (u16, Value) {
        let (status, body) = self.take(&one(limit, client, permits)).await;
        (status, body["limits"][0]["remaining"].clone())
    }

    /// Returns the value of a counter. `/metrics` omits counters that are zero.
    async fn counter(&self, series: &str) -> u64 {
        let text = Raw::connect(self.admin).await.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0, |value| value.trim().parse().expect("a number"))
    }

    /// Sends a request to the route `orders`. Returns the status.
    async fn order(&self, target: &str, headers: &str) -> u16 {
        let request = format!("GET {target} HTTP/1.1\r\nHost: gateway\r\n{headers}\r\n");
        Raw::connect(self.proxy).await.ask(request).await.status()
    }
}

fn config(store: &str, http: &str, more: &str, rules: &str) -> Config {
    let rules = format!("listen: 127.0.0.1:0\nstore: {store}\n{more}{rules}service:\n  http: {http}{DOMAIN}");
    Gateway::parse_config(&rules).unwrap_or_else(|problems| panic!("{problems}"))
}

impl Drop for TakeService {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.drain(Duration::from_millis(10)).expect("drained");
        }
    }
}

/// Returns the body of a request for permits of one limit.
fn one(limit: &str, client: impl Into<Value>, permits: u32) -> Value {
    json!({ "limits": [{ "limit": limit, "client": client.into(), "permits": permits }] })
}

fn json_of(response: &Message) -> Value {
    serde_json::from_slice(&response.body).unwrap_or_else(|error| panic!("{error}: {}", response.text()))
}
