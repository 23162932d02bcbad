//! Takes the domains of the service from a control plane, over xDS (state of the world): the client of envoyproxy/ratelimit,
//! which Envoy Gateway serves.

mod backoff;
mod messages;
mod resources;
mod session;
mod size;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::sleep;

use self::backoff::Backoff;
use self::messages::Any;
use self::resources::TYPE_URL;
use self::session::Session;
use tidegate_config::ControlPlane;
use tidegate_config::built::Part;
use tidegate_proxy::upstream::HostLookup;
use tidegate_proxy::upstream::settings::{Timeouts, UpstreamSettings};

/// The longest time for each step of an attempt to connect: for the name, the connection with TLS, and HTTP/2.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest pause before the next attempt to connect.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The resources of a configuration.
#[derive(Debug)]
pub(crate) struct SentResources {
    /// The keys of each domain.
    pub(crate) parts: Vec<Part>,
    /// The encoded messages.
    pub(crate) encoded: Vec<Bytes>,
}

impl SentResources {
    /// Reads the resources that a control plane has sent to an earlier process.
    ///
    /// # Errors
    /// Returns the message of each resource that cannot be read.
    pub(crate) fn from_encoded(encoded: Vec<Bytes>) -> Result<Self, Vec<String>> {
        let any = |value: &Bytes| Any { type_url: TYPE_URL.to_owned(), value: value.clone() };
        let resources: Vec<_> = encoded.iter().map(any).collect();
        Ok(Self { parts: resources::read(&resources)?, encoded })
    }
}

/// Uses what a control plane sends.
pub(crate) trait DomainSink: Send + Sync + 'static {
    /// Replaces the domains of the control plane by the domains in these resources. Blocks until all workers use them.
    ///
    /// # Errors
    /// All errors of the resources, as a text for the control plane. The previous domains stay in use.
    fn apply(&self, version: &str, resources: SentResources) -> Result<(), String>;

    /// Records that resources cannot be read. Returns the errors as a text for the control plane.
    fn reject(&self, version: &str, errors: Vec<String>) -> String;

    /// Records the state of the stream.
    fn report(&self, state: StreamState);
}

/// The state of the stream to a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// No stream was opened: there is no control plane, or another one than before.
    New,
    /// The stream is open.
    Connected,
    /// The stream has ended after it was open, for example because the control plane restarts.
    Ended(String),
    /// No stream can be opened.
    Failed(String),
}

/// Follows the control plane that `planes` has last, until its sender is dropped.
pub(crate) async fn run(
    mut planes: watch::Receiver<Option<ControlPlane>>,
    hosts: HostLookup,
    sink: Arc<dyn DomainSink>,
) {
    loop {
        let plane = planes.borrow_and_update().clone();
        sink.report(StreamState::New);
        let changed = match plane {
            None => planes.changed().await,
            Some(plane) => tokio::select! {
                () = follow(&plane, &hosts, &sink) => return,
                changed = planes.changed() => changed,
            },
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Opens one stream after the other.
async fn follow(plane: &ControlPlane, hosts: &HostLookup, sink: &Arc<dyn DomainSink>) {
    let settings = UpstreamSettings::new("xds".into(), vec![plane.target.clone()]);
    let timeouts = Timeouts { connect: CONNECT_TIMEOUT, ..settings.timeouts };
    let upstream = UpstreamSettings { tls: plane.tls.clone(), timeouts, ..settings };
    let mut pauses = Backoff::up_to(MAX_PAUSE);
    loop {
        let (node, accepted, has_response) = (plane.node.as_str(), String::new(), false);
        let mut session = Session { upstream: &upstream, node, hosts, sink, has_response, accepted };
        let end = session.run().await;
        if session.has_response {
            pauses.reset();
            sink.report(StreamState::Ended(end.to_string()));
        } else {
            sink.report(StreamState::Failed(end.to_string()));
        }
        sleep(pauses.pause()).await;
    }
}
