//! A gateway on the current Tokio runtime, for tests in virtual time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use http::{HeaderValue, Response};
use tokio::runtime;
use tower::Service;

use crate::authorization::{AnswerCache, services};
use tidegate_config::Config;
use tidegate_layer::layer::{LayerError, NotSent, RateLimitLayer, Stores};
use tidegate_metrics::Metrics;
use tidegate_proxy::access::AccessLogLayer;
use tidegate_proxy::forward::find_in;
use tidegate_proxy::server::{Drain, DrainTrigger, GatewayConnections, Server, bind};
use tidegate_proxy::service::{BoxedService, gateway_service, serve_boxed};
use tidegate_proxy::transport::tls::CertificateWatcher;
use tidegate_proxy::upstream::tls::UpstreamTlsConfigs;
use tidegate_proxy::upstream::{Resolver, TargetStates, Upstreams};
use tidegate_rules::request::sanitize::NextHop;

/// The first listener of a gateway, with one worker on the current Tokio runtime. Ends on drop.
#[derive(Debug)]
pub struct LocalGateway {
    /// The address of the listener.
    pub address: SocketAddr,
    /// The metrics of the gateway.
    pub metrics: Arc<Metrics>,
    watchers: Vec<CertificateWatcher>,
    _resolver: Resolver,
    _trigger: DrainTrigger,
}

impl LocalGateway {
    /// Starts a gateway.
    ///
    /// # Errors
    /// See [`LayerError`].
    ///
    /// # Panics
    /// The gateway has no TCP listener, or cannot listen on its address.
    #[expect(clippy::expect_used, reason = "only tests use it")]
    pub fn start(config: &Config) -> Result<Self, LayerError> {
        let metrics = Arc::new(Metrics::of_gateway(&[]));
        let settings = || config.upstreams.values();
        let (targets, tls_configs) = (TargetStates::default(), UpstreamTlsConfigs::read(settings()));
        let (resolver, names) = Resolver::new(&config.dns_servers);
        let upstreams = Upstreams::with_shared_state(settings(), 1, &metrics, &tls_configs, &targets, &resolver);
        if !names.is_empty() {
            // In real time, and on a thread, so that the names are resolved before the first request.
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            thread::spawn(move || runtime.block_on(names.run()));
            resolver.wait_for_names();
        }
        let layer =
            RateLimitLayer::builder().next(NextHop::Origin).metrics(Arc::clone(&metrics)).from_config(config)?;
        let upstreams = [upstreams];
        let services = services(&upstreams, &Arc::new(AnswerCache::new()));
        layer.replace_all(config, Stores::new(layer.store(), 0), &find_in(&upstreams), services);
        let service = gateway_service(AccessLogLayer::default(), &layer);
        let service = BoxedService::new(move |request| {
            let response = service.clone().call(request);
            async move { response.await.map_or_else(|never| match never {}, mark_not_sent) }
        });

        let listen = &config.listen[0];
        let address = listen.address.tcp().expect("a TCP address");
        let socket = bind(address, 1, Vec::new()).expect("a free port").remove(0);
        let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("an address");
        let (trigger, drain) = Drain::new();
        let connections = GatewayConnections::new(usize::MAX, config.rules.addresses.clone(), Arc::clone(&metrics));
        let server = Server::with_connections(&connections, listen, None, drain, |_| {});
        tokio::spawn(serve_boxed(server, socket, service));
        Ok(Self { address, watchers: tls_configs.watchers(&metrics), metrics, _resolver: resolver, _trigger: trigger })
    }

    /// Reloads changed certificate files of upstreams.
    pub fn check_certificates(&mut self) {
        self.watchers.iter_mut().for_each(CertificateWatcher::check);
    }
}

/// Adds the field `x-not-sent` to the responses to requests that were not sent to an upstream.
fn mark_not_sent<B>(mut response: Response<B>) -> Response<B> {
    if response.extensions().get::<NotSent>().is_some() {
        response.headers_mut().insert("x-not-sent", HeaderValue::from_static("yes"));
    }
    response
}
