//! A control plane for the rate limit service, by the crates `h2` and `prost`. A test reads each request of a stream, and sends
//! each response.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use prost::Message;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::tls::Authority;
use super::wire::soon;

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The values of `RateLimitUnit`.
pub const UNKNOWN: i32 = 0;
pub const HOUR: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub struct DiscoveryRequest {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(message, optional, tag = "2")]
    pub node: Option<Node>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Any>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitConfig {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub domain: String,
    #[prost(message, repeated, tag = "3")]
    pub descriptors: Vec<RateLimitDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(message, optional, tag = "3")]
    pub rate_limit: Option<RateLimitPolicy>,
    #[prost(message, repeated, tag = "4")]
    pub descriptors: Vec<Self>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitPolicy {
    #[prost(int32, tag = "1")]
    pub unit: i32,
    #[prost(uint32, tag = "2")]
    pub requests_per_unit: u32,
}

/// Returns a descriptor with this limit.
pub fn limited(key: &str, unit: i32, requests_per_unit: u32) -> RateLimitDescriptor {
    let rate_limit = Some(RateLimitPolicy { unit, requests_per_unit });
    RateLimitDescriptor { key: key.to_owned(), rate_limit, ..RateLimitDescriptor::default() }
}

/// Returns the configuration of a domain.
pub fn config(domain: &str, descriptors: impl IntoIterator<Item = RateLimitDescriptor>) -> RateLimitConfig {
    let descriptors = descriptors.into_iter().collect();
    RateLimitConfig { name: format!("resource-{domain}"), domain: domain.to_owned(), descriptors }
}

/// A control plane. Dropping it closes its socket.
pub struct ControlPlane {
    pub address: SocketAddr,
    streams: UnboundedReceiver<Stream>,
    accept: JoinHandle<()>,
}

/// A stream of a service.
pub struct Stream {
    requests: UnboundedReceiver<DiscoveryRequest>,
    head: Option<SendResponse<Bytes>>,
    responses: Option<SendStream<Bytes>>,
    connection: JoinHandle<()>,
}

impl ControlPlane {
    /// Starts a control plane without TLS.
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0").await
    }

    /// Starts a control plane at this address.
    pub async fn start_at(address: impl tokio::net::ToSocketAddrs) -> Self {
        let listener = TcpListener::bind(address).await.expect("a socket");
        let (address, (found, streams)) = (listener.local_addr().expect("an address"), unbounded_channel());
        let accept = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                serve(socket, found.clone());
            }
        });
        Self { address, streams, accept }
    }

    /// Starts a control plane with the certificate `plane`, which requires a certificate of the authority.
    pub async fn start_with_tls(authority: &Authority) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(server_config(authority)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let (address, (found, streams)) = (listener.local_addr().expect("an address"), unbounded_channel());
        let accept = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                if let Ok(socket) = acceptor.accept(socket).await {
                    serve(socket, found.clone());
                }
            }
        });
        Self { address, streams, accept }
    }

    /// Waits for the next stream.
    pub async fn stream(&mut self) -> Stream {
        soon(self.streams.recv()).await.expect("a stream")
    }
}

fn server_config(authority: &Authority) -> ServerConfig {
    let file = |name: &str| authority.path(name);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem")).expect("an authority")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_client_cert_verifier(verifier.build().expect("a verifier"));
    let chain = vec![CertificateDer::from_pem_file(file("plane.pem")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(file("plane.key")).expect("a key");
    let mut config = config.with_single_cert(chain, key).expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Serves the streams of a connection. Closes the connection when the stream is dropped.
fn serve(socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, found: UnboundedSender<Stream>) {
    let (sent, connection) = tokio::sync::oneshot::channel::<JoinHandle<()>>();
    let task = tokio::spawn(async move {
        let connection = connection.await.expect("a task");
        let mut connection = Some(connection);
        let Ok(mut served) = h2::server::handshake(socket).await else { return };
        while let Some(Ok((request, head))) = served.accept().await {
            assert_eq!(request.uri().path(), METHOD);
            let (seen, requests) = unbounded_channel();
            tokio::spawn(read(request, seen));
            let connection = connection.take().expect("one stream for each connection");
            _ = found.send(Stream { requests, head: Some(head), responses: None, connection });
        }
    });
    sent.send(task).expect("a connection");
}

/// Reads the requests of a stream.
async fn read(request: Request<RecvStream>, seen: UnboundedSender<DiscoveryRequest>) {
    let (mut body, mut data) = (request.into_body(), Vec::new());
    while let Some(Ok(piece)) = body.data().await {
        _ = body.flow_control().release_capacity(piece.len());
        data.extend_from_slice(&piece);
        while let Some(length) = data.get(1..5).map(|length| u32::from_be_bytes(length.try_into().expect("4 bytes"))) {
            let end = 5 + usize::try_from(length).expect("a length");
            if data.len() < end {
                break;
            }
            let message: Vec<_> = data.drain(..end).skip(5).collect();
            if seen.send(DiscoveryRequest::decode(&*message).expect("a message")).is_err() {
                return;
            }
        }
    }
}

impl Stream {
    /// Waits for the next request.
    pub async fn request(&mut self) -> DiscoveryRequest {
        soon(self.requests.recv()).await.expect("a request")
    }

    /// Sends all configurations.
    pub fn push(&mut self, version: &str, nonce: &str, configs: &[RateLimitConfig]) {
        let any = |config: &RateLimitConfig| Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() };
        self.push_resources(version, nonce, configs.iter().map(any).collect());
    }

    /// Sends a response with these resources.
    pub fn push_resources(&mut self, version: &str, nonce: &str, resources: Vec<Any>) {
        let (version_info, nonce, type_url) = (version.to_owned(), nonce.to_owned(), TYPE_URL.to_owned());
        let message = DiscoveryResponse { version_info, resources, type_url, nonce }.encode_to_vec();
        let length = u32::try_from(message.len()).expect("a length");
        self.push_bytes([&[0], &length.to_be_bytes()[..], &message].concat());
    }

    /// Sends these bytes of the response's body.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        self.responses().send_data(bytes.into(), false).expect("an open stream");
    }

    /// Sends all configurations, and returns the request that accepts or rejects them.
    pub async fn push_and_wait(&mut self, version: &str, nonce: &str, configs: &[RateLimitConfig]) -> DiscoveryRequest {
        self.push(version, nonce, configs);
        let answer = self.request().await;
        assert_eq!(answer.response_nonce, nonce);
        answer
    }

    /// Ends the stream with this status.
    pub fn end(mut self, status: &str, message: &str) {
        let fields = [("grpc-status", status), ("grpc-message", message)];
        let fields = fields.map(|(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a value")));
        self.responses().send_trailers(fields.into_iter().collect()).expect("an open stream");
    }

    fn responses(&mut self) -> &mut SendStream<Bytes> {
        if let Some(mut head) = self.head.take() {
            let response = Response::builder().header("content-type", "application/grpc").body(()).expect("a response");
            self.responses = Some(head.send_response(response, false).expect("an open stream"));
        }
        self.responses.as_mut().expect("a response")
    }

    /// Closes the connection.
    pub fn close(self) {
        self.connection.abort();
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.accept.abort();
    }
}
