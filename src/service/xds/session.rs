//! One stream of discovery: requests a configuration, and accepts or rejects each that the control plane sends.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::backoff::Backoff;
use super::messages::{DiscoveryRequest, DiscoveryResponse, Node, Status};
use super::resources::{self, TYPE_URL};
use super::size::{BadSize, MessageKind};
use super::{DomainSink, SentResources, StreamState};
use tidegate_proxy::upstream::settings::UpstreamSettings;
use tidegate_proxy::upstream::{CallEnd, GrpcCall, HostLookup};

/// The method of the stream, as of envoyproxy/ratelimit.
const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// The largest response, in bytes.
const MAX_RESPONSE: usize = 16 << 20;

/// The longest version or nonce, in bytes. The stream sends them back.
const MAX_TOKEN: usize = 1_024;

/// The longest text of an error that the control plane receives, in bytes.
const MAX_REJECTION: usize = 16 << 10;

/// The longest pause before a version is rejected again. Control planes send a rejected version again at once, and a new one
/// only after the rejection.
const MAX_REJECTION_PAUSE: Duration = Duration::from_secs(5);

/// The time after which a stream without a response counts as usable: a control plane without a configuration sends nothing.
const USABLE_AFTER: Duration = Duration::from_secs(3);

/// `INVALID_ARGUMENT` of google.rpc.Code.
const INVALID_ARGUMENT: i32 = 3;

/// A stream of discovery.
pub(super) struct Session<'c> {
    pub(super) upstream: &'c UpstreamSettings,
    pub(super) node: &'c str,
    pub(super) hosts: &'c HostLookup,
    pub(super) sink: &'c Arc<dyn DomainSink>,
    /// Whether the control plane has sent a response.
    pub(super) has_response: bool,
    /// The version that was accepted last. Empty at the start of each stream: the version of an earlier stream may come from a
    /// control plane that has restarted, and counts its versions from 1 again.
    pub(super) accepted: String,
}

/// Why a stream has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionEnd {
    #[error(transparent)]
    Call(#[from] CallEnd),
    #[error("a response cannot be read: {0}")]
    BadResponse(#[from] BadSize),
    #[error("a response has a version or a nonce of more than {MAX_TOKEN} bytes")]
    LongToken,
}

impl Session<'_> {
    /// Follows the configurations until the stream ends.
    pub(super) async fn run(&mut self) -> SessionEnd {
        let Err(end) = self.follow().await;
        end
    }

    async fn follow(&mut self) -> Result<Infallible, SessionEnd> {
        let mut call = GrpcCall::open(self.upstream, METHOD, MAX_RESPONSE, self.hosts).await?;
        call.send(&self.request(String::new(), None))?;
        let (mut rejected, mut pauses) = (None, Backoff::up_to(MAX_REJECTION_PAUSE));
        loop {
            let response = self.next_response(&mut call).await?;
            let (version, nonce) = (response.version_info.clone(), response.nonce.clone());
            match self.apply(response).await {
                Ok(()) => {
                    self.accepted = version;
                    rejected = None;
                    call.send(&self.request(nonce, None))?;
                }
                Err(error) => {
                    if rejected.as_ref() == Some(&version) {
                        sleep(pauses.pause()).await;
                    } else {
                        pauses.reset();
                    }
                    rejected = Some(version);
                    call.send(&self.request(nonce, Some(error)))?;
                }
            }
        }
    }

    /// Waits for the next response.
    async fn next_response(&mut self, call: &mut GrpcCall) -> Result<DiscoveryResponse, SessionEnd> {
        let message = {
            let mut next = std::pin::pin!(call.next());
            match timeout(USABLE_AFTER, &mut next).await {
                Ok(message) => message?,
                Err(_) => {
                    self.sink.report(StreamState::Connected);
                    next.await?
                }
            }
        };
        MessageKind::Response.count(&message, &mut 0, 0)?;
        let response = DiscoveryResponse::decode(message).map_err(BadSize::Malformed)?;
        if response.version_info.len().max(response.nonce.len()) > MAX_TOKEN {
            return Err(SessionEnd::LongToken);
        }
        self.sink.report(StreamState::Connected);
        self.has_response = true;
        Ok(response)
    }

    /// Applies a configuration.
    ///
    /// # Errors
    /// Returns all errors of an invalid configuration.
    async fn apply(&self, response: DiscoveryResponse) -> Result<(), String> {
        let sink = Arc::clone(self.sink);
        // A reload waits for the threads of the gateway, and this one is one of them.
        let applied = spawn_blocking(move || {
            let version = response.version_info;
            match resources::read(&response.resources) {
                Ok(parts) => {
                    let encoded = response.resources.into_iter().map(|resource| resource.value).collect();
                    sink.apply(&version, SentResources { parts, encoded })
                }
                Err(errors) => Err(sink.reject(&version, errors)),
            }
        });
        applied.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Returns a request that accepts the response with this nonce, or rejects it because of an error.
    fn request(&self, nonce: String, error: Option<String>) -> DiscoveryRequest {
        let node = Node {
            id: self.node.to_owned(),
            user_agent_name: "tidegate".to_owned(),
            user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        DiscoveryRequest {
            version_info: self.accepted.clone(),
            node: Some(node),
            type_url: TYPE_URL.to_owned(),
            response_nonce: nonce,
            error_detail: error.map(|text| Status { code: INVALID_ARGUMENT, message: shortened(text) }),
        }
    }
}

/// Shortens a text to [`MAX_REJECTION`] bytes.
fn shortened(mut text: String) -> String {
    if text.len() > MAX_REJECTION {
        let end = (0..=MAX_REJECTION - 3).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str("...");
    }
    text
}
