//! Measures the steps of a request in the gateway one by one: `cargo bench -p tidegate-steps --bench request -- --quick`.
//!
//! `layer` measures all of them together, around a service that responds immediately.

use std::convert::Infallible;
use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BatchSize, Criterion};
use http::{HeaderMap, HeaderName, Method, Request, Response, Uri, Version};
use http_body_util::Full;
use tidegate::internals::{RateLimitFieldBuilder, ban_many, limited_response, recording_layer, write_redis_keys};
use tidegate::redisson::Mode;
use tidegate::{Peer, RateLimitLayer};
use tidegate_limit::{Algorithm, Quota, Wait};
use tidegate_rules::charge::{Charge, ClientId, Decision, Limiter};
use tidegate_rules::client::{AddressRules, ClientSource};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::facts::{Facts, Requests};
use tidegate_rules::settings::store::KeySecret;
use tower::{Layer, Service, ServiceExt, service_fn};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    facts(&mut criterion)?;
    clients(&mut criterion)?;
    keys(&mut criterion)?;
    responses(&mut criterion)?;
    layer(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn headers() -> Result<HeaderMap, Box<dyn Error>> {
    let fields = [
        ("host", "api.example.com"),
        ("user-agent", "curl/8.5.0"),
        ("accept", "*/*"),
        ("cookie", "theme=dark; session=0123456789abcdef0123456789abcdef; lang=en"),
        ("x-api-key", "0123456789abcdef0123456789abcdef"),
        ("x-forwarded-for", "198.51.100.7, 10.1.2.3, 10.4.5.6"),
    ];
    fields.into_iter().map(|(name, value)| Ok((HeaderName::from_static(name), value.parse()?))).collect()
}

fn facts(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let (headers, requests) = (headers()?, Requests::default());
    for (name, uri) in [("plain", "/api/v1/things/7?page=2"), ("encoded", "/api//v1/./%74hings/7?page=2")] {
        let uri: Uri = uri.parse()?;
        criterion.bench_function(&format!("facts/{name} path"), |bench| {
            bench.iter(|| {
                Facts::read(&Method::GET, black_box(&uri), Version::HTTP_11, &headers, CLIENT, &requests).is_ok()
            });
        });
    }
    Ok(())
}

fn clients(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let (headers, uri) = (headers()?, Uri::from_static("/api/v1/things/7?page=2"));
    let rules = AddressRules { trusted_proxies: vec!["10.0.0.0/8".parse()?], ..AddressRules::default() };
    let header = || ClientSource::Header(HeaderName::from_static("x-api-key"));
    let cookie = || ClientSource::Cookie("session".into());
    for (name, source, peer) in [
        ("ip", ClientSource::Ip, CLIENT),
        ("ip behind three proxies", ClientSource::Ip, PROXY),
        ("header", header(), CLIENT),
        ("cookie", cookie(), CLIENT),
        ("list", ClientSource::All(vec![header(), cookie(), ClientSource::Ip]), CLIENT),
    ] {
        let facts = Facts::read(&Method::GET, &uri, Version::HTTP_11, &headers, peer, &Requests::default())?;
        criterion.bench_function(&format!("client/{name}"), |bench| {
            bench.iter(|| source.identify(black_box(&facts), &rules));
        });
    }
    Ok(())
}

fn keys(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let secret = KeySecret::derive(b"a secret of this benchmark");
    for (name, client) in [
        ("overall", None),
        ("address", Some(ClientId::Address(CLIENT.into()))),
        ("value", Some(ClientId::Value(b"0123456789abcdef0123456789abcdef".as_slice().into()))),
    ] {
        let limiter = limiter(if client.is_some() { Mode::PerClient } else { Mode::Overall })?;
        let charge = Charge::new(limiter, client, 1);
        let mut key = String::new();
        criterion.bench_function(&format!("keys/{name}"), |bench| {
            bench.iter(|| write_redis_keys(black_box(&charge), &secret, &mut key));
        });
    }
    Ok(())
}

fn responses(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let limit =
        |name: &str| -> Result<Limit, Box<dyn Error>> { Ok(Limit::new(name.into(), limiter(Mode::PerClient)?)) };
    let decision = Decision::new(4_711, Wait::Now, 59_001);
    let field = RateLimitFieldBuilder::new(&[limit("per-minute")?, limit("per-day")?], &[decision, decision]);
    criterion.bench_function("response/ratelimit of two limits", |bench| bench.iter(|| black_box(&field).write()));
    criterion.bench_function("response/429", |bench| bench.iter(|| limited_response(black_box(&["per-minute"]), 60)));
    Ok(())
}

fn limiter(mode: Mode) -> Result<Arc<Limiter>, Box<dyn Error>> {
    let quota = Quota::new(1_000, 60_000, Algorithm::TokenBucket)?;
    Ok(Arc::new(Limiter::new("{tidegate:bench}:limit".into(), mode, quota)))
}

fn layer(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let unlimited = "{ name: total, mode: OVERALL, rate: 1000000000, interval: 1s }";
    let per_ip = "{ name: per-ip, mode: PER_CLIENT, client: ip, rate: 1000000000, interval: 1s }";
    let tight = "{ name: tight, mode: PER_CLIENT, client: ip, rate: 1, interval: 24h }";
    let key = "{ name: per-key, mode: PER_CLIENT, client: 'header:x-api-key', rate: 1000000000, interval: 1s }";
    let by_value = "{ name: tight, mode: PER_CLIENT, client: 'header:x-api-key', rate: 1, interval: 24h }";
    // The overrides concern other clients.
    for (name, limits, overrides) in [
        ("no limits", String::new(), 0),
        ("overall and per_client, granted", format!("{unlimited}, {per_ip}"), 0),
        ("overall and per_client, granted, 2000 overrides", format!("{unlimited}, {per_ip}"), 1_000),
        ("per_client by header, granted", key.to_owned(), 0),
        ("per_client by header, granted, 2000 overrides", key.to_owned(), 1_000),
        ("per_client, rejected", tight.to_owned(), 0),
        ("per_client, rejected and recorded", tight.to_owned(), 0),
        ("per_client by value, rejected", by_value.to_owned(), 0),
        ("per_client by value, rejected and recorded", by_value.to_owned(), 0),
        ("overall and per_client, rejected", format!("{unlimited}, {tight}"), 0),
    ] {
        let rules = format!("routes: [{{ name: all, match: {{ path: /** }}, limits: [{limits}] }}]");
        let hello = async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()));
        let layer =
            if name.ends_with("recorded") { recording_layer(&rules)? } else { RateLimitLayer::from_yaml(&rules)? };
        runtime.block_on(ban_many(&layer, overrides))?;
        let limited = layer.layer(service_fn(hello));
        let headers = headers()?;
        criterion.bench_function(&format!("layer/{name}"), |bench| {
            bench.iter_batched(
                || request(&headers),
                |request| {
                    runtime
                        .block_on(async { limited.clone().ready().await.map(|service| service.call(request))?.await })
                },
                BatchSize::SmallInput,
            );
        });
    }
    Ok(())
}

fn request(headers: &HeaderMap) -> Request<()> {
    let mut request = Request::new(());
    *request.uri_mut() = Uri::from_static("/api/v1/things/7?page=2");
    *request.headers_mut() = headers.clone();
    request.extensions_mut().insert(Peer(CLIENT));
    request
}
