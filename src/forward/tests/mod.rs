//! The way there and back: a server, this service, and origins on real sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderName, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

mod bodies;
mod connections;
mod echo;
mod expect;
mod failures;
mod heads;
mod http2;
mod permit;

use super::*;
use crate::config::Listen;
use crate::metrics::Metrics;
use crate::server::{Drain, DrainTrigger, Server, bind};
use crate::upstream::settings::{Target, UpstreamSettings};
use crate::wire::raw::{Message, Raw};
use crate::wire::upstream::{Origin, Visit};
use crate::wire::{soon, until};

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
    trusted_peer: bool,
}

impl Settings {
    fn to(address: SocketAddr) -> Self {
        Self::targets(vec![target(address)])
    }

    fn targets(targets: Vec<Target>) -> Self {
        Self { targets, response_timeout: LONG, trusted_peer: false }
    }

    fn start(self) -> Gateway {
        let upstream = UpstreamSettings {
            name: "api".into(),
            targets: self.targets,
            connect_timeout: Duration::from_secs(5),
            response_timeout: self.response_timeout,
        };
        let metrics = Arc::new(Metrics::new());
        let forward = Forward::new(Arc::new(Upstreams::new([&upstream], &metrics)));
        let trusted_peer = self.trusted_peer;
        let handler = move |request, peer| with_permit(forward.clone(), request, peer, trusted_peer);
        let listen = Listen {
            address: "127.0.0.1:0".parse().unwrap(),
            max_connections: 100,
            header_timeout: LONG,
            idle_timeout: LONG,
        };
        let listener = bind(listen.address, 1).unwrap().remove(0);
        let address = listener.local_addr().unwrap();
        let (trigger, drain) = Drain::new();
        tokio::spawn(Server::new(&listen, metrics.clone(), drain).serve(listener, handler));
        Gateway { address, metrics, _trigger: trigger }
    }
}

/// What the layer does, with every request allowed. What the layer would learn is shown in a field.
async fn with_permit(
    forward: Forward,
    request: Request<RequestBody>,
    peer: SocketAddr,
    trusted_peer: bool,
) -> Response<ResponseBody> {
    let permit = Permit { upstream: Some("api".into()), peer: peer.ip(), trusted_peer };
    let mut parcel = Some(request);
    let mut response = forward.forward(&mut parcel, permit).await.unwrap_or_else(|never| match never {});
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
