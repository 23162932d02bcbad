//! Gateways with a rate limit service, and its clients: gRPC by the crate `h2`, with messages by the crate `prost`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderName, Request};
use prost::Message;
use tidegate::{Gateway, ListenAddress};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::gateway::get;
use super::wire::raw::Raw;
use super::wire::soon;

pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The values of `RateLimitResponse.Code`.
pub const OK: i32 = 1;
pub const OVER_LIMIT: i32 = 2;

// === the messages of envoy/service/ratelimit/v3/rls.proto and envoy/extensions/common/ratelimit/v3/ratelimit.proto ===

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<UInt64Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub unit: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct UInt64Value {
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    pub overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderField>,
    #[prost(bytes = "vec", tag = "5")]
    pub raw_body: Vec<u8>,
    /// The encoded message.
    #[prost(bytes = "vec", optional, tag = "6")]
    pub dynamic_metadata: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Seconds>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub unit: i32,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Seconds {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct HeaderField {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct HealthCheck {
    #[prost(string, tag = "1")]
    pub service: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct HealthStatus {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

impl RateLimitResponse {
    /// Returns the value of a field for the client of the proxy.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.response_headers_to_add.iter().find(|field| field.key == name).map(|field| field.value.as_str())
    }

    /// Returns the code and the remaining requests of each descriptor.
    pub fn remaining(&self) -> Vec<(i32, u32)> {
        self.statuses.iter().map(|status| (status.code, status.limit_remaining)).collect()
    }
}

/// Returns a descriptor from `KEY=VALUE` entries, separated by commas.
pub fn descriptor(text: &str) -> RateLimitDescriptor {
    let entries = text.split(',').filter_map(|entry| entry.split_once('='));
    let entry = |(key, value): (&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
    RateLimitDescriptor { entries: entries.map(entry).collect(), ..RateLimitDescriptor::default() }
}

/// Returns a call to the domain `edge`.
pub fn call(descriptors: impl IntoIterator<Item = RateLimitDescriptor>) -> RateLimitRequest {
    let descriptors = descriptors.into_iter().collect();
    RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 }
}

/// A gateway with a rate limit service on both protocols. Dropping it drains it.
pub struct TestService {
    pub gateway: Option<Gateway>,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
}

impl TestService {
    /// Starts a service with the domain `edge`, whose limits are in the syntax of the rule file, and this `store`.
    pub fn start(store: &str, limits: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", store, limits)
    }

    /// Starts a service with this `grpc` in the rule file.
    pub fn start_at(grpc: &str, store: &str, limits: &[&str]) -> Self {
        Self::from_rules(&rules(grpc, store, limits))
    }

    /// Starts a service with further keys of `service`, in the syntax of a map in one line.
    pub fn start_with(keys: &str, store: &str, limits: &[&str]) -> Self {
        let limits: String = limits.iter().map(|limit| format!("{{ {limit} }}, ")).collect();
        let domains = format!("[{{ name: edge, limits: [{limits}] }}]");
        let service = format!("{{ grpc: '127.0.0.1:0', http: '127.0.0.1:0', {keys}, domains: {domains} }}");
        Self::from_rules(&format!("admin: 127.0.0.1:0\nstore: {store}\nservice: {service}\n"))
    }

    /// Starts a service with this rule file.
    pub fn from_rules(rules: &str) -> Self {
        let config = Gateway::parse_config(rules).unwrap_or_else(|problems| panic!("{problems}"));
        let gateway = Gateway::start(config, 2).expect("a gateway");
        let tcp = |address: Option<ListenAddress>| address.and_then(|address| address.tcp()).expect("an address");
        let (grpc, http) = (tcp(gateway.service_grpc_address()), tcp(gateway.service_http_address()));
        Self { gateway: Some(gateway), grpc, http }
    }

    /// Reloads the service with other limits.
    pub fn reload(&self, store: &str, limits: &[&str]) {
        let config = Gateway::parse_config(&rules("127.0.0.1:0", store, limits)).expect("a rule file");
        self.running().reload(config).expect("a reload");
    }

    pub fn running(&self) -> &Gateway {
        self.gateway.as_ref().expect("a running gateway")
    }

    /// Opens a gRPC connection.
    pub async fn client(&self) -> GrpcClient {
        GrpcClient::connect(self.grpc).await
    }

    /// Returns all metrics.
    pub async fn metrics(&self) -> String {
        let admin = self.running().admin_address().and_then(ListenAddress::tcp).expect("an admin address");
        let mut client = Raw::connect(admin).await;
        client.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.text()
    }

    /// Returns the value of a counter. `/metrics` omits counters that are zero.
    pub async fn counter(&self, series: &str) -> u64 {
        let text = self.metrics().await;
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0, |value| value.trim().parse().expect("a number"))
    }

    /// Returns `/api/v1/status`.
    pub async fn status(&self) -> serde_json::Value {
        let admin = self.running().admin_address().and_then(ListenAddress::tcp).expect("an admin address");
        let request = "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let status = Raw::connect(admin).await.ask(request).await.text();
        serde_json::from_str(&status).expect("JSON")
    }

    /// Returns the problems that operators see.
    pub async fn problems(&self) -> Vec<serde_json::Value> {
        self.status().await["problems"].as_array().cloned().expect("a list")
    }

    /// Returns the status of the health check over HTTP.
    pub async fn http_health(&self) -> u16 {
        get(&mut Raw::connect(self.http).await, "/healthcheck", "").await.status()
    }
}

impl Drop for TestService {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.drain(Duration::from_millis(10)).expect("drained");
        }
    }
}

fn rules(grpc: &str, store: &str, limits: &[&str]) -> String {
    let limits: String = limits.iter().map(|limit| format!("        - {{ {limit} }}\n")).collect();
    format!(
        "admin: 127.0.0.1:0\nstore: {store}\nservice:\n  grpc: {grpc}\n  http: 127.0.0.1:0\n  domains:\n    \
         - name: edge\n      limits:\n{limits}"
    )
}

/// A connection of a gRPC client, and the task that drives it.
pub struct GrpcClient {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
    /// The field `grpc-timeout` of calls.
    timeout: Option<&'static str>,
}

/// The error of a call: its gRPC status and message.
pub type GrpcError = (u16, String);

impl GrpcClient {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::on(soon(TcpStream::connect(address)).await.expect("should connect")).await
    }

    /// Starts HTTP/2 on a stream.
    pub async fn on(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (requests, connection) = soon(h2::client::handshake(stream)).await.expect("a handshake");
        Self { requests, connection: tokio::spawn(connection), timeout: None }
    }

    /// Sends `grpc-timeout` with all calls.
    pub fn with_timeout(self, timeout: Option<&'static str>) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the head of a call.
    fn head(&self, path: &str) -> Request<()> {
        let request = Request::post(format!("http://service{path}")).header("content-type", "application/grpc");
        let mut request = request.header("te", "trailers").body(()).expect("a request");
        let timeout =
            self.timeout.map(|timeout| (HeaderName::from_static("grpc-timeout"), timeout.parse().expect("a field")));
        request.headers_mut().extend(timeout);
        request
    }

    /// Waits until the connection is closed. Returns `true` then.
    pub async fn closed(self) -> bool {
        self.connection.await.is_ok()
    }

    /// Asks the service.
    pub async fn should_rate_limit(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, GrpcError> {
        self.unary(SHOULD_RATE_LIMIT, request).await
    }

    /// Makes a call with one message in each direction.
    pub async fn unary<R: Message + Default>(&self, path: &str, message: &impl Message) -> Result<R, GrpcError> {
        let response = self.send(path, framed(message)).await?;
        Ok(R::decode(&response[5..]).expect("a message"))
    }

    /// Opens a stream. Its response may begin before its first message.
    pub async fn open(&self, path: &str) -> GrpcStream {
        let mut requests = soon(self.requests.clone().ready()).await.expect("a usable connection");
        let (response, outgoing) = requests.send_request(self.head(path), false).expect("should send");
        let response = soon(response).await.expect("a response");
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/grpc".parse().unwrap())
        );
        GrpcStream { outgoing, incoming: response.into_body(), received: Vec::new() }
    }

    /// Opens a stream with one message, whose response has many.
    pub async fn watch(&self, path: &str, message: &impl Message) -> Result<GrpcStream, GrpcError> {
        let mut requests = soon(self.requests.clone().ready()).await.expect("a usable connection");
        let (response, mut outgoing) = requests.send_request(self.head(path), false).expect("should send");
        outgoing.send_data(framed(message).into(), true).expect("should send");
        let response = soon(response).await.expect("a response");
        if response.headers().contains_key("grpc-status") {
            return Err(status(response.headers()));
        }
        Ok(GrpcStream { outgoing, incoming: response.into_body(), received: Vec::new() })
    }

    /// Sends a body. Returns the body of the response.
    pub async fn send(&self, path: &str, body: Vec<u8>) -> Result<Vec<u8>, GrpcError> {
        let mut requests = soon(self.requests.clone().ready()).await.expect("a usable connection");
        let (response, mut stream) = requests.send_request(self.head(path), false).expect("should send");
        stream.send_data(body.into(), true).expect("should send");
        let response = soon(response).await.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let (head, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        while let Some(data) = soon(incoming.data()).await {
            let data = data.expect("data");
            _ = incoming.flow_control().release_capacity(data.len());
            body.extend_from_slice(&data);
        }
        let trailers = soon(incoming.trailers()).await.expect("trailers");
        match status(trailers.as_ref().unwrap_or(&head.headers)) {
            (0, _) => Ok(body),
            error => Err(error),
        }
    }
}

/// An open stream of messages in both directions.
pub struct GrpcStream {
    outgoing: h2::SendStream<Bytes>,
    incoming: h2::RecvStream,
    received: Vec<u8>,
}

impl GrpcStream {
    /// Sends a message, and waits for the next one from the service.
    pub async fn ask<R: Message + Default>(&mut self, message: &impl Message) -> R {
        self.outgoing.send_data(framed(message).into(), false).expect("should send");
        self.next().await
    }

    /// Returns the next message.
    pub async fn next<R: Message + Default>(&mut self) -> R {
        let length = loop {
            if let Some([_, length @ ..]) = self.received.first_chunk::<5>() {
                let length = 5 + u32::from_be_bytes(*length) as usize;
                if self.received.len() >= length {
                    break length;
                }
            }
            let data = soon(self.incoming.data()).await.expect("an answer").expect("data");
            _ = self.incoming.flow_control().release_capacity(data.len());
            self.received.extend_from_slice(&data);
        };
        let answer = self.received.drain(..length).skip(5).collect::<Vec<_>>();
        R::decode(&*answer).expect("a message")
    }

    /// Ends the stream. Returns the status.
    pub async fn end(mut self) -> u16 {
        self.outgoing.send_data(Bytes::new(), true).expect("should send");
        self.ended().await
    }

    /// Waits for the end of the response. Returns the status.
    pub async fn ended(mut self) -> u16 {
        assert!(soon(self.incoming.data()).await.is_none());
        let trailers = soon(self.incoming.trailers()).await.expect("trailers");
        status(&trailers.expect("trailers")).0
    }
}

/// Returns a message with its prefix.
fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a length");
    [&[0], &length.to_be_bytes()[..], &message].concat()
}

fn status(fields: &HeaderMap) -> GrpcError {
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    (text("grpc-status").parse().expect("a status"), text("grpc-message").to_owned())
}
