//! Tests of Traefik: the traps of its configuration, and decisions about traces by its own law.

use crate::format::Format;
use crate::options::Options;
use crate::sources::texts::Texts;
use crate::testing::{converted, converted_with, finding, shown};
use crate::tests::laws::traefik::Limiter;
use crate::tests::laws::{Request, at, decisions};
use crate::{Conversion, Verdict, convert};

fn traefik(text: &str) -> Conversion {
    converted(Format::Traefik, [("dynamic.yaml", text)])
}

/// Returns a configuration with two routers, `/a` and `/b`, that have this middleware.
fn with_limit(middleware: &str) -> String {
    format!(
        "http:\n  routers:\n    a: {{ rule: 'PathPrefix(`/a`)', service: s, middlewares: [m] }}\n    b: {{ rule: \
         'PathPrefix(`/b`)', service: s, middlewares: [m@file] }}\n  services:\n    s: {{ loadBalancer: {{ servers: [{{ \
         url: 'http://s:9000' }}] }} }}\n  middlewares:\n    m: {{ rateLimit: {{ {middleware} }} }}\n"
    )
}

/// Returns requests at irregular times.
fn irregular<const N: usize>(target: &'static str, step: u64) -> Vec<Request> {
    at(
        target,
        std::array::from_fn::<u64, N, _>(|number| {
            let number = number as u64;
            number * step + (number * number * 37) % step.max(2)
        }),
    )
}

#[test]
fn buckets_refill_and_delay_as_in_traefik() {
    for (average, period, burst) in [(5, "1s", 1), (10, "1s", 5), (60, "1m", 1), (3, "10s", 1), (200, "1s", 50)] {
        let conversion = traefik(&with_limit(&format!("average: {average}, period: {period}, burst: {burst}")));
        let millis = super::model::duration(period).unwrap();
        let mut law = Limiter::new(average, millis, burst);
        for step in [millis / average / 3 + 1, millis / average - 1, millis / average + 1] {
            let mut trace = irregular::<200>("/a", step);
            trace.sort_by_key(|request| request.time);
            let expected: Vec<_> = trace.iter().map(|request| law.admits("", request.time)).collect();
            let own = decisions(&conversion, &trace);
            let differing = own.iter().zip(&expected).filter(|(own, expected)| own != expected).count();
            // Waits are rounded to milliseconds.
            assert!(differing <= 4, "{average} {period} {burst} {step}: {differing}");
            law = Limiter::new(average, millis, burst);
        }
        assert_eq!(finding(&conversion, "m.burst").0, Verdict::Same, "{average}");
    }
}

#[test]
fn idle_clients_get_their_burst_back_in_traefik() {
    let conversion = traefik(&with_limit("average: 1, burst: 4"));
    let trace = at("/a", [0, 0, 0, 0, 2_501, 2_501, 2_501, 2_501]);
    let mut law = Limiter::new(1, 1_000, 4);
    assert!(trace.iter().all(|request| law.admits("", request.time)));
    assert_eq!(decisions(&conversion, &trace)[4..], [true, true, true, false]);
    assert_eq!(finding(&conversion, "m.burst").0, Verdict::Stricter);
}

#[test]
fn routers_share_buckets_only_in_redis() {
    let mut trace = at("/a", [0, 0]);
    trace.extend(at("/b", [0, 0]));
    let memory = traefik(&with_limit("average: 1, burst: 2"));
    assert_eq!(decisions(&memory, &trace), [true; 4]);
    let redis = traefik(&with_limit("average: 1, burst: 2, redis: { endpoints: ['redis:6379'] }"));
    assert!(redis.rules.contains("store: redis://redis:6379"), "{}", redis.rules);
    let shared = redis.rules.replace("store: redis://redis:6379\n", "");
    assert_eq!(decisions(&Conversion { rules: shared, ..redis }, &trace), [true, true, false, false]);
}

#[test]
fn alternatives_of_a_router_share_buckets() {
    let conversion = traefik(
        "http:\n  routers:\n    r: { rule: 'PathPrefix(`/a`) || Method(`GET`) && Path(`/b`)', service: s, middlewares: [m] \
         }\n  services: { s: { loadBalancer: { servers: [{ url: 'http://s' }] } } }\n  middlewares: { m: { rateLimit: { \
         average: 1, burst: 2 } } }\n",
    );
    let mut trace = at("/a", [0, 0]);
    trace.extend(at("/b", [0]));
    assert_eq!(decisions(&conversion, &trace), [true, true, false], "{}", conversion.rules);
}

#[test]
fn sources_without_the_header_share_a_bucket() {
    let conversion = traefik(&with_limit("average: 1, sourceCriterion: { requestHeaderName: X-Team }"));
    let with = |team: Option<&'static str>, client| Request {
        client,
        headers: team.map(|team| ("x-team", team)).into_iter().collect(),
        ..at("/a", [0]).remove(0)
    };
    let trace = [with(Some("red"), 1), with(Some("red"), 2), with(Some("blue"), 1), with(None, 1), with(None, 2)];
    let mut law = Limiter::new(1, 1_000, 1);
    let source = |request: &Request| request.headers.first().map_or("", |(_, team)| *team);
    let expected: Vec<_> = trace.iter().map(|request| law.admits(source(request), request.time)).collect();
    assert_eq!(decisions(&conversion, &trace), expected);
}

#[test]
fn depth_of_addresses_is_lost() {
    let depth = traefik(&with_limit("average: 1, sourceCriterion: { ipStrategy: { depth: 2 } }"));
    assert_eq!(finding(&depth, "m.depth").0, Verdict::Lost);
    let excluded = traefik(&with_limit("average: 1, sourceCriterion: { ipStrategy: { excludedIPs: [10.0.0.0/8] } }"));
    assert!(excluded.rules.contains("trusted_proxies: [10.0.0.0/8]"), "{}", excluded.rules);
    assert_eq!(finding(&excluded, "m.excludedIPs").0, Verdict::Stricter);
}

#[test]
fn replicas_add_up_in_memory() {
    let options = Options { replicas: 3.try_into().unwrap(), ..Options::default() };
    let text = with_limit("average: 10, burst: 5");
    let conversion = converted_with(&options, [("dynamic.yaml", &text)]);
    assert!(conversion.rules.contains("rate: 30") && conversion.rules.contains("burst: 15"), "{}", conversion.rules);
    assert_eq!(finding(&conversion, "m.burst").0, Verdict::Looser);
}

#[test]
fn nothing_is_limited_without_an_average() {
    let conversion = traefik(&with_limit("average: 0, burst: 5"));
    assert!(!conversion.rules.contains("limits"), "{}", conversion.rules);
}

#[test]
fn each_prefix_is_removed_by_its_own_route() {
    let conversion = traefik(
        "http:\n  routers: { r: { rule: 'Host(`a.example.com`)', service: s, middlewares: [m, l] } }\n  services: { s: { \
         loadBalancer: { servers: [{ url: 'http://s' }] } } }\n  middlewares: { m: { stripPrefix: { prefixes: [/v1, /v2] } \
         }, l: { rateLimit: { average: 1 } } }\n",
    );
    for route in
        ["path: /v1/**", "strip_prefix: /v1", "path: /v2/**", "strip_prefix: /v2", "path: /**", "limits: [r-l]"]
    {
        assert!(conversion.rules.contains(route), "{route}: {}", conversion.rules);
    }
}

#[test]
fn routers_and_middlewares_are_converted() {
    let conversion = traefik(
        r"
entryPoints:
  web: { address: ':80', forwardedHeaders: { trustedIPs: [10.0.0.0/8] } }
  websecure: { address: '0.0.0.0:443', http: { middlewares: [secure], tls: {} } }
  dns: { address: ':53/udp' }
http:
  routers:
    api:
      rule: Host(`api.example.com`) && (PathPrefix(`/v1`) || PathPrefix(`/v2`)) && !Method(`DELETE`)
      entryPoints: [websecure]
      middlewares: [all]
      service: canary
      tls: { certResolver: le }
    exact: { rule: 'Path(`/health`)', priority: 1000, service: api, middlewares: [https, inside] }
    host: { rule: 'Host(`a.example.com`) || Host(`b.example.com`) || HostRegexp(`^.+\.example\.org$`)', service: api }
    v2: { rule: 'Path(`/users/{id:[0-9]+}`) && Headers(`X-Env`, `prod`) && Query(`debug=1`) && ClientIP(`10.1.0.0/16`)', service: api }
    odd: { rule: 'Unknown(`x`)', service: api }
    broken: { rule: 'Host(', service: api }
    internal: { rule: 'PathPrefix(`/dashboard`)', service: api@internal }
  services:
    api:
      loadBalancer:
        servers: [{ url: 'http://10.0.0.1:9000/ignored' }, { url: 'http://10.0.0.2:9000', weight: 3 }]
        passHostHeader: false
        healthCheck: { path: /healthz, interval: 10s, timeout: 3s }
        sticky: { cookie: {} }
        serversTransport: unsafe
    next: { loadBalancer: { servers: [{ url: 'https://next:8443' }] } }
    canary: { weighted: { services: [{ name: api, weight: 3 }, { name: next, weight: 1 }] } }
  serversTransports: { unsafe: { insecureSkipVerify: true, forwardingTimeouts: { dialTimeout: 2s } } }
  middlewares:
    all: { chain: { middlewares: [strip, add, inflight, auth, size] } }
    strip: { stripPrefix: { prefixes: [/v1, /v2] } }
    add: { addPrefix: { prefix: /base } }
    inflight: { inFlightReq: { amount: 7, sourceCriterion: { ipStrategy: {} } } }
    auth: { forwardAuth: { address: 'http://auth:4181/check', authResponseHeaders: [X-User] } }
    size: { buffering: { maxRequestBodyBytes: 1000 } }
    https: { redirectScheme: { scheme: https, permanent: true } }
    inside: { ipAllowList: { sourceRange: [10.0.0.0/8, 192.168.1.7] } }
    secure:
      headers:
        stsSeconds: 3600
        frameDeny: true
        customRequestHeaders: { X-Remove: '', X-Set: 'a {route}' }
        accessControlAllowOriginList: ['https://app.example.com']
        accessControlMaxAge: 100
        sslRedirect: true
    basic: { basicAuth: { users: ['a:b'] } }
tcp: { routers: {} }
",
    );
    insta::assert_snapshot!("traefik", shown(&conversion));
}

#[test]
fn labels_and_manifests_are_converted() {
    let compose = r#"
services:
  shop:
    image: shop
    labels:
      - traefik.enable=true
      - "traefik.http.routers.shop.rule=Host(`shop.example.com`)"
      - traefik.http.routers.shop.middlewares=shop-limit@docker
      - traefik.http.middlewares.shop-limit.ratelimit.average=100
      - traefik.http.middlewares.shop-limit.ratelimit.burst=50
      - traefik.http.middlewares.shop-limit.ratelimit.sourcecriterion.ipstrategy.depth=1
      - traefik.http.services.shop.loadbalancer.server.port=8080
  off:
    labels: { traefik.enable: "false", traefik.http.routers.off.rule: "Host(`off`)" }
  plain:
    labels: { traefik.http.routers.plain.rule: "Host(`plain.example.com`)" }
"#;
    let manifests = r"
apiVersion: traefik.io/v1alpha1
kind: Middleware
metadata: { name: limit, namespace: prod }
spec: { rateLimit: { average: 10, period: 1m } }
---
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: { name: web, namespace: prod }
spec:
  routes:
  - match: Host(`web.example.com`)
    kind: Rule
    services: [{ name: web, port: 80, weight: 2 }, { name: web-next, port: http }]
    middlewares: [{ name: limit }]
---
kind: ConfigMap
";
    let conversion = converted(Format::Traefik, [("compose.yaml", compose), ("k8s.yaml", manifests)]);
    insta::assert_snapshot!("labels", shown(&conversion));
}

#[test]
fn toml_is_converted_as_yaml_is() {
    let toml = "[http.routers.a]\nrule = \"PathPrefix(`/a`)\"\nservice = 's'\nmiddlewares = [ 'm' ]\n\
                [http.middlewares.m.rateLimit]\naverage = 10\nburst = 2_0\n\
                [[http.services.s.loadBalancer.servers]]\nurl = \"http://10.0.0.1:9000\"\n\
                [[http.services.s.loadBalancer.servers]]\nurl = \"http://10.0.0.2:9000\"\n";
    let yaml = "http:\n  routers: { a: { rule: 'PathPrefix(`/a`)', service: s, middlewares: [m] } }\n  middlewares: { m: { \
                rateLimit: { average: 10, burst: 20 } } }\n  services: { s: { loadBalancer: { servers: [{ url: \
                'http://10.0.0.1:9000' }, { url: 'http://10.0.0.2:9000' }] } } }\n";
    let rules = |name: &str, text: &str| {
        let files = Texts::from([(name, text)]);
        let found = convert(&[name.into()], &files, &Options::default()).unwrap();
        let lines = found.rules.lines().skip(1).map(|line| line.split(" # ").next().unwrap_or_default().to_owned());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(rules("traefik.toml", toml), rules("traefik.yaml", yaml));
}

#[test]
fn cycles_of_chains_end() {
    let conversion = traefik(
        "http:\n  routers: { r: { rule: 'Path(`/`)', service: s, middlewares: [a] } }\n  middlewares: { a: { chain: { \
         middlewares: [b, b] } }, b: { chain: { middlewares: [a, a] } } }\n",
    );
    assert!(conversion.report.has_lost());
}
