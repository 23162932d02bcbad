//! The way there and back: a server, this service, and origins on real sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

mod bodies;
mod connections;
mod early;
mod echo;
mod expect;
mod failures;
mod grpc;
mod heads;
mod http2;
mod http2_hints;
mod informational;
mod permit;
mod queue;
mod rewriting;
mod room;
mod silence;
mod slow;
mod smuggling;
mod stale;
mod to_http2;
mod to_tls;

use super::*;
use crate::admission::admit_unlimited;
use crate::config::Listen;
use crate::facts::BadRequest;
use crate::metrics::Metrics;
use crate::sanitize::{FieldFilter, NextHop, RequestContext};
use crate::server::testing::HandlerService;
use crate::server::{Drain, DrainTrigger, Server, bind_one};
use crate::upgrade::Upgrades;
use crate::upstream::TargetStates;
use crate::upstream::settings::{Protocol, Target, UpstreamSettings, UpstreamTls};
use crate::upstream::tls::UpstreamTlsConfigs;
use crate::wire::raw::{Message, Raw};
use crate::wire::upstream::{Origin, OriginConnection};
use crate::wire::{soon, until, until_within};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LONG: Duration = Duration::from_secs(60);

/// A gateway without rules.
struct Gateway {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    _trigger: DrainTrigger,
}

struct Settings {
    targets: Vec<Target>,
    response_timeout: Duration,
    adjust: fn(&mut UpstreamSettings),
    trusted_peer: bool,
    spoken: Option<(Protocol, UpstreamTls)>,
    tls_configs: UpstreamTlsConfigs,
}

impl Settings {
    fn to(address: SocketAddr) -> Self {
        Self::targets(vec![target(address)])
    }

    fn targets(targets: Vec<Target>) -> Self {
        Self {
            targets,
            response_timeout: LONG,
            adjust: |_| {},
            trusted_peer: false,
            spoken: None,
            tls_configs: UpstreamTlsConfigs::default(),
        }
    }

    fn start(self) -> Gateway {
        self.start_at(&listen())
    }

    fn start_at(self, listen: &Listen) -> Gateway {
        let mut upstream = UpstreamSettings {
            connect_timeout: Duration::from_secs(5),
            response_timeout: self.response_timeout,
            ..UpstreamSettings::new("api".into(), self.targets)
        };
        if let Some((protocol, tls)) = self.spoken {
            (upstream.protocol, upstream.tls) = (protocol, Some(tls));
        }
        (self.adjust)(&mut upstream);
        let metrics = Arc::new(Metrics::new());
        let targets = TargetStates::new([&upstream], &metrics);
        let upstreams = Upstreams::with_shared_state([&upstream], 1, &metrics, &self.tls_configs, &targets);
        let forward = Forward::new(Arc::new(upstreams));
        let trusted_peer = self.trusted_peer;
        let handler = move |request, peer| with_permit(forward.clone(), request, peer, trusted_peer);
        let listener = bind_one(&listen.address);
        let address = listener.local_addr().unwrap();
        let (trigger, drain) = Drain::new();
        tokio::spawn(Server::new(listen, metrics.clone(), drain).serve(listener, HandlerService(handler)));
        Gateway { address, metrics, _trigger: trigger }
    }
}

fn listen() -> Listen {
    Listen { header_timeout: LONG, idle_timeout: LONG, ..Listen::new("127.0.0.1:0".parse().unwrap()) }
}

/// What the layer does, with every request allowed. What the layer would learn is shown in a field.
async fn with_permit(
    forward: Forward,
    mut request: Request<RequestBody>,
    peer: SocketAddr,
    trusted_peer: bool,
) -> Response<ResponseBody> {
    let field_filter = Arc::new(FieldFilter::default());
    let context = RequestContext { version: request.version(), trusted: trusted_peer, next: NextHop::Origin };
    let kinds = match field_filter.apply(request.headers_mut(), context) {
        Ok(kinds) => kinds,
        Err(bad) => return local_response(BadRequest::from(bad).into(), None),
    };
    let context = ForwardContext {
        _permit: admit_unlimited().permit,
        upstream: Some("api".into()),
        peer: peer.ip(),
        trusted_peer,
        over_tls: false,
        client: Some(peer.ip().into()),
        max_body: u64::MAX,
        kinds,
        field_filter: Some(field_filter),
        upgrade: request.extensions().get().and_then(|offer| Upgrades::default().choose(offer)).map(Box::new),
    };
    request.extensions_mut().insert(context);
    let mut forward = forward;
    let mut response = forward.call(request).await.unwrap_or_else(|never| match never {});
    if response.extensions().get::<NotSent>().is_some() {
        response.headers_mut().insert("x-not-sent", HeaderValue::from_static("yes"));
    }
    response
}

fn target(address: SocketAddr) -> Target {
    Target::Http(Authority::try_from(address.to_string()).unwrap())
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

impl Gateway {
    async fn client(&self) -> Raw {
        Raw::connect(self.address).await
    }

    async fn ask(&self, request: impl AsRef<[u8]>) -> Message {
        self.client().await.ask(request).await
    }
}
