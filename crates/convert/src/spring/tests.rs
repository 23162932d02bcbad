//! Tests of Spring Cloud Gateway: the traps of its configuration, and decisions about traces by its own law.

use crate::format::Format;
use crate::testing::{converted, shown};
use crate::tests::laws::spring::TokenBucket;
use crate::tests::laws::{Request, at, decisions};
use crate::{Conversion, Verdict};

fn spring(text: &str) -> Conversion {
    converted(Format::Spring, [("application.yml", text)])
}

/// Returns a configuration with two routes, `/a/**` and `/b/**`, with this filter.
fn with_limit(args: &str) -> String {
    let route = |id: &str| {
        format!(
            "      - {{ id: {id}, uri: 'http://{id}:8080', predicates: [Path=/{id}/**], filters: [{{ name: \
             RequestRateLimiter, args: {{ {args}, key-resolver: '#{{@ipKeyResolver}}' }} }}] }}\n"
        )
    };
    format!("spring:\n  cloud:\n    gateway:\n      routes:\n{}{}", route("a"), route("b"))
}

fn limit(rate: u64, burst: u64, requested: u64) -> String {
    with_limit(&format!(
        "redis-rate-limiter.replenishRate: {rate}, redis-rate-limiter.burstCapacity: {burst}, \
         redis-rate-limiter.requestedTokens: {requested}"
    ))
}

#[test]
fn properties_are_converted_as_yaml_is() {
    let lines = "spring.cloud.gateway.routes[0].id=a\nspring.cloud.gateway.routes[0].uri=http://a:8080\n\
                 spring.cloud.gateway.routes[0].predicates[0]=Path=/a/**\n\
                 spring.cloud.gateway.routes[0].filters[0].name=RequestRateLimiter\n\
                 spring.cloud.gateway.routes[0].filters[0].args.redis-rate-limiter.replenishRate=10\n\
                 spring.cloud.gateway.routes[0].filters[0].args.redis-rate-limiter.burstCapacity: 20\n";
    let yaml = "spring.cloud.gateway.routes:\n- id: a\n  uri: http://a:8080\n  predicates: [Path=/a/**]\n  filters:\n  \
                - name: RequestRateLimiter\n    args: { redis-rate-limiter: { replenishRate: 10, burstCapacity: 20 } }\n";
    let rules = |name: &str, text: &str| {
        let found = converted(Format::Spring, [(name, text)]);
        let lines = found.rules.lines().skip(1).map(|line| line.split(" # ").next().unwrap_or_default().to_owned());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(rules("application.properties", lines), rules("application.yml", yaml));
}

#[test]
fn tokens_are_permits_of_a_continuous_bucket() {
    for (rate, burst, requested) in [(10, 20, 1), (1, 60, 60), (3, 6, 2), (5, 7, 3), (1, 1, 1), (7, 100, 10)] {
        let conversion = spring(&limit(rate, burst, requested));
        for step in [91, 333, 1_001, 7_777] {
            let times = std::array::from_fn::<u64, 200, _>(|number| number as u64 * step);
            let trace = at("/a/x", times);
            let mut law = TokenBucket::new(rate, burst, requested);
            let expected: Vec<_> = trace.iter().map(|request| law.admits("1", request.time)).collect();
            assert_eq!(
                decisions(&conversion, &trace),
                expected,
                "{rate} {burst} {requested} {step}\n{}",
                conversion.rules
            );
        }
    }
}

#[test]
fn sixty_tokens_of_sixty_are_one_a_minute() {
    let conversion = spring(&limit(1, 60, 60));
    assert!(conversion.rules.contains("rate: 1") && conversion.rules.contains("interval: 1m"), "{}", conversion.rules);
    assert!(conversion.rules.contains("burst: 1") && conversion.rules.contains("on_store_failure: allow"));
    assert_eq!(decisions(&conversion, &at("/a", [0, 1, 59_999, 60_000])), [true, false, false, true]);
}

#[test]
fn routes_have_separate_buckets() {
    let conversion = spring(&limit(1, 1, 1));
    let mut trace = at("/a", [0, 0]);
    trace.extend(at("/b", [0]));
    trace.push(Request { client: 2, ..trace[0].clone() });
    assert_eq!(decisions(&conversion, &trace), [true, false, true, true]);
}

#[test]
fn small_bursts_limit_nothing_in_spring() {
    let conversion = spring(&limit(10, 4, 1));
    let trace = at("/a", [0; 6]);
    let mut law = TokenBucket::new(10, 4, 1);
    assert!(trace.iter().all(|request| law.admits("1", request.time)));
    assert_eq!(decisions(&conversion, &trace).iter().filter(|admitted| **admitted).count(), 4);
    let findings =
        conversion.report.findings.iter().filter(|finding| finding.setting.starts_with("RequestRateLimiter"));
    assert!(findings.map(|finding| finding.verdict).eq([Verdict::Stricter; 2]));
}

#[test]
fn beans_are_lost_with_a_hint() {
    let args =
        "redis-rate-limiter: { replenishRate: 1 }, deny-empty-key: false, empty-key-status: 401, statusCode: 503";
    let conversion = spring(&with_limit(args).replace("ipKeyResolver", "userKeyResolver"));
    let bean = conversion.report.findings.iter().find(|finding| finding.setting.contains("userKeyResolver")).unwrap();
    assert_eq!(bean.verdict, Verdict::Lost);
    assert!(bean.reason.starts_with("by address"), "{}", bean.reason);
    assert!(conversion.rules.contains("on_missing_client: skip"), "{}", conversion.rules);
    assert!(conversion.rules.contains("status: 503"), "{}", conversion.rules);
}

#[test]
fn routes_are_converted() {
    let conversion = spring(
        r"
server.port: ${PORT:9090}
spring:
  data.redis: { host: '${REDIS_HOST:redis}', port: 6380 }
  cloud:
    gateway:
      httpclient: { connect-timeout: 1000, response-timeout: 5s }
      server.webflux:
        default-filters:
        - AddRequestHeader=X-Gateway, spring
        - name: RequestRateLimiter
          args: { redis-rate-limiter.replenishRate: 100, redis-rate-limiter.burstCapacity: 200, key-resolver: '#{@pathKeyResolver}' }
        globalcors: { cors-configurations: { '[/**]': { allowedOrigins: 'https://app.example.com', allowedMethods: [GET, POST] } } }
        routes:
        - id: second
          uri: lb://USER-SERVICE
          order: 1
          predicates:
          - Path=/api/users/{id},/api/users/*/posts/**
          - Method=GET,POST
          - Header=X-Request-Id, \d+
          - Query=debug
          - Host=**.example.org,{tenant}.example.net
          filters: [StripPrefix=1, PreserveHostHeader, 'RemoveRequestHeader=Cookie', 'SetPath=/{segment}']
        - id: first
          uri: https://orders.example.com/ignored
          predicates: [{ name: Path, args: { patterns: [/orders/**] } }, RemoteAddr=10.0.0.0/8, 'Cookie=chocolate, ch.p']
          filters:
          - RewritePath=/orders/?(?<rest>.*), /v2/$\{rest}
          - name: CircuitBreaker
            args: { name: cb, fallbackUri: forward:/fallback }
          - { name: RequestSize, args: { maxSize: 5MB } }
        - { id: moved, uri: 'https://example.com', predicates: [Path=/old], filters: ['RedirectTo=302, https://example.com/new'] }
        - { id: timed, uri: 'http://t', predicates: ['After=2017-01-20T17:42:47.789-07:00[America/Denver]', 'Path=/t'] }
        - { id: custom, uri: 'http://t', predicates: [Custom=1] }
---
spring.config.activate.on-profile: dev
spring.cloud.gateway.routes: [{ id: dev, uri: 'http://dev', predicates: [Path=/dev] }]
",
    );
    insta::assert_snapshot!("spring", shown(&conversion));
}
