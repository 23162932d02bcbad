//! A gRPC call that both sides hold open, with its own connection. A PING detects a server that no longer responds.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Poll, ready};

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture};
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, TE};
use http::{Request, StatusCode};
use prost::Message;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::address::Address;
use super::super::dialer::Dialer;
use super::super::dns::HostLookup;
use super::super::settings::{Protocol, UpstreamSettings};
use super::super::tls::UpstreamTlsConfig;
use super::connection::handshake;
use super::grpc_end::{CallEnd, GRPC_STATUS};
use super::keep_alive::KeepAlive;
use crate::http::grpc::frame;
use crate::http::grpc_messages::Messages;
use crate::transport::Transport;

/// A call that both sides hold open. Dropping it closes its connection.
#[derive(Debug)]
pub struct GrpcCall {
    request: SendStream<Bytes>,
    response: Response,
    messages: Messages,
    /// Counts events from the server.
    received: Arc<AtomicU64>,
    _connection: Driver,
}

/// The response, which may begin long after the request.
#[derive(Debug)]
enum Response {
    Awaited(ResponseFuture),
    Open(RecvStream),
}

/// The task that reads and writes for the call.
#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl GrpcCall {
    /// Opens a call of the method at `path` to the first target of `settings`, whose host is looked up with `hosts`. Messages of
    /// the server have at most `max_message` bytes.
    ///
    /// # Errors
    /// No address of the host accepts the connection, or the server does not use HTTP/2.
    pub async fn open(
        settings: &UpstreamSettings,
        path: &str,
        max_message: usize,
        hosts: &HostLookup,
    ) -> Result<Self, CallEnd> {
        let connect = |error: io::Error| CallEnd::Connect(error.to_string());
        let (stream, url) = connect_to_target(settings, hosts).await?;
        let max_head = u32::try_from(settings.max_field_bytes).unwrap_or(u32::MAX);
        let started = timeout(settings.timeouts.connect, handshake(stream, max_head)).await;
        let (sender, connection) = started.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(connect)?;
        let received = Arc::new(AtomicU64::new(0));
        let driver = Driver(tokio::spawn(drive(connection, Arc::clone(&received))));
        let request = Request::post(format!("{url}{path}")).header(TE, "trailers");
        let request = request.header(CONTENT_TYPE, "application/grpc").body(()).map_err(io::Error::other);
        let (response, request) = sender.ready().await?.send_request(request.map_err(connect)?, false)?;
        let (response, messages) = (Response::Awaited(response), Messages::new(max_message));
        Ok(Self { request, response, messages, received, _connection: driver })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection broke, or the server has ended the call.
    pub fn send(&mut self, message: &impl Message) -> Result<(), CallEnd> {
        Ok(self.request.send_data(frame(message).into(), false)?)
    }

    /// Waits for the next message of the server.
    ///
    /// # Errors
    /// The call has ended: see [`CallEnd`].
    pub async fn next(&mut self) -> Result<Bytes, CallEnd> {
        loop {
            if let Some(message) = self.messages.next_message()? {
                return Ok(message);
            }
            let body = match &mut self.response {
                Response::Open(body) => body,
                Response::Awaited(response) => {
                    let (head, body) = response.await?.into_parts();
                    self.received.fetch_add(1, Relaxed);
                    if head.status != StatusCode::OK {
                        return Err(CallEnd::Status(head.status));
                    }
                    if head.headers.contains_key(GRPC_STATUS) {
                        return Err(CallEnd::from_fields(&head.headers));
                    }
                    self.response = Response::Open(body);
                    continue;
                }
            };
            match body.data().await {
                Some(data) => {
                    let data = data?;
                    self.received.fetch_add(1, Relaxed);
                    body.flow_control().release_capacity(data.len())?;
                    self.messages.push(&data);
                }
                None => {
                    let fields = body.trailers().await?.unwrap_or_default();
                    return Err(CallEnd::from_fields(&fields));
                }
            }
        }
    }
}

/// Opens a connection to the target. Returns it with the URL of the target.
async fn connect_to_target(settings: &UpstreamSettings, hosts: &HostLookup) -> Result<(Transport, String), CallEnd> {
    let no_host = || CallEnd::Connect("the target has no host".to_owned());
    let target = settings.targets.first().ok_or_else(no_host)?;
    let authority = target.authority().ok_or_else(no_host)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(if target.uses_tls() { 443 } else { 80 });
    let looked_up = timeout(settings.timeouts.connect, hosts.addresses(host, port)).await;
    let addresses = looked_up.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let addresses = addresses.map_err(|error| CallEnd::Connect(format!("`{host}`: {error}")))?;
    // The files are read for each connection, so that renewed certificates are used.
    let tls = target.uses_tls().then(|| Arc::new(UpstreamTlsConfig::new(settings.tls.clone().unwrap_or_default())));
    let mut end = CallEnd::Connect(format!("`{host}` has no address"));
    for address in addresses.into_iter().map(Address::Ip) {
        let dialer = match &tls {
            Some(tls) => Dialer::tls(address, &authority, settings, Arc::clone(tls)),
            None => Dialer::plaintext(address, Some(&authority), settings),
        };
        match dialer.open(Protocol::Http2).await {
            Ok((stream, _)) => return Ok((stream, format!("{}://{authority}", dialer.scheme()))),
            Err(error) => end = CallEnd::Connect(error.error),
        }
    }
    Err(end)
}

/// Reads and writes for the call, until the connection closes or the server does not respond to a PING.
async fn drive(mut connection: Connection<Transport, Bytes>, received: Arc<AtomicU64>) {
    let mut keep_alive = KeepAlive::new(connection.ping_pong());
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(ended.map_err(io::Error::other));
        }
        _ = ready!(keep_alive.poll(1, received.load(Relaxed), cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "HTTP/2 connection of a call broke");
    }
}

/// Closes the connection.
impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}
