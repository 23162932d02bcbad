//! Small manifests, and the decisions of their rule files.

use std::net::IpAddr;

use tidegate_config::Config;
use tidegate_replay::verdicts::{TracedRequest, of_trace};

use crate::testing::{converted, converted_with, shown};
use crate::{Conversion, Format, Options};

/// An Ingress with these annotations and paths, as YAML.
fn ingress(annotations: &[(&str, &str)], paths: &[(&str, &str)]) -> String {
    let mut text =
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: app\n  annotations:\n    a: b\n"
            .to_owned();
    for (name, value) in annotations {
        text.push_str(&format!("    nginx.ingress.kubernetes.io/{name}: \"{value}\"\n"));
    }
    text.push_str("spec:\n  ingressClassName: nginx\n  rules:\n    - host: a.example\n      http:\n        paths:\n");
    for (path, kind) in paths {
        let backend = "backend: { service: { name: web, port: { number: 80 } } }";
        text.push_str(&format!("          - {{ path: \"{path}\", pathType: {kind}, {backend} }}\n"));
    }
    text
}

fn convert(text: &str) -> Conversion {
    converted(Format::IngressNginx, [("ingress.yaml", text)])
}

fn limited(annotations: &[(&str, &str)]) -> Conversion {
    convert(&ingress(annotations, &[("/", "Prefix")]))
}

fn findings(conversion: &Conversion, setting: &str) -> Vec<String> {
    let findings = conversion.report.findings.iter().filter(|finding| finding.setting.starts_with(setting));
    findings.map(|finding| format!("{}: {}", finding.verdict, finding.reason)).collect()
}

/// Returns the number of admitted requests of each client, if each sends this many at once.
fn admitted(conversion: &Conversion, clients: &[&str], count: usize) -> Vec<usize> {
    let config = Config::parse(&conversion.rules).unwrap();
    let mut trace = Vec::new();
    for client in clients {
        let client: IpAddr = client.parse().unwrap();
        let request = TracedRequest { time: 1_760_000_000_000, client, target: "http://a.example/", status: 200 };
        trace.extend(std::iter::repeat_n(request, count));
    }
    let decisions = of_trace(&config.rules, &trace);
    decisions.chunks(count).map(|chunk| chunk.iter().filter(|admitted| **admitted).count()).collect()
}

#[test]
fn rates_have_a_burst_of_five_times_the_rate() {
    let conversion = limited(&[("limit-rps", "2")]);
    assert_eq!(admitted(&conversion, &["10.0.0.1", "10.0.0.2"], 20), [11, 11]);
    let conversion = limited(&[("limit-rps", "2"), ("limit-burst-multiplier", "1")]);
    assert_eq!(admitted(&conversion, &["10.0.0.1"], 20), [3]);
    let conversion = limited(&[("limit-rpm", "60")]);
    assert!(conversion.rules.contains("burst: 301"), "{}", conversion.rules);
    let conversion = limited(&[("limit-rps", "0")]);
    assert!(!conversion.rules.contains("limits"));
}

#[test]
fn listed_clients_have_no_limit() {
    for name in ["limit-whitelist", "limit-allowlist"] {
        let conversion = limited(&[("limit-rps", "1"), (name, "10.0.0.0/8, 192.0.2.1")]);
        assert_eq!(admitted(&conversion, &["10.0.0.1", "192.0.2.1", "192.0.2.2"], 20), [20, 20, 6], "{name}");
    }
}

#[test]
fn replicas_multiply_rates_and_connections() {
    let options = Options { format: Some(Format::IngressNginx), replicas: 3.try_into().unwrap(), ..Options::default() };
    let text = ingress(&[("limit-rps", "2"), ("limit-connections", "4")], &[("/", "Prefix")]);
    let conversion = converted_with(&options, [("ingress.yaml", &text)]);
    for part in ["rate: 6", "burst: 33", "per_client: 12"] {
        assert!(conversion.rules.contains(part), "{part}\n{}", conversion.rules);
    }
    assert!(findings(&conversion, "limit-rps")[0].starts_with("looser"));
}

#[test]
fn paths_of_an_ingress_share_its_limits() {
    let text = ingress(&[("limit-rps", "1")], &[("/a", "Prefix"), ("/", "Prefix")]);
    let conversion = convert(&text);
    assert_eq!(conversion.rules.matches("limits: [app-rps]").count(), 2, "{}", conversion.rules);
    assert_eq!(conversion.rules.matches("rate: 1").count(), 1);
}

#[test]
fn kinds_of_paths_have_their_patterns_and_order() {
    let paths = [("/", "Prefix"), ("/a", "Prefix"), ("/a/b", "Exact"), ("/a/b", "ImplementationSpecific")];
    insta::assert_snapshot!(convert(&ingress(&[], &paths)).rules);
}

#[test]
fn rewrites_of_regexes_strip_prefixes() {
    let conversion = convert(&ingress(&[("rewrite-target", "/$2")], &[("/api(/|$)(.*)", "ImplementationSpecific")]));
    assert!(conversion.rules.contains("rewrite: { strip_prefix: /api }"), "{}", conversion.rules);
    assert!(conversion.rules.contains("case: insensitive"));
    let conversion = convert(&ingress(&[("rewrite-target", "/")], &[("/api", "Prefix")]));
    assert!(findings(&conversion, "rewrite-target")[0].starts_with("lost"));
}

#[test]
fn common_annotations_are_converted() {
    let annotations = [
        ("force-ssl-redirect", "true"),
        ("backend-protocol", "HTTPS"),
        ("proxy-body-size", "8m"),
        ("proxy-read-timeout", "120"),
        ("proxy-send-timeout", "120"),
        ("whitelist-source-range", "10.0.0.0/8"),
        ("enable-cors", "true"),
        ("cors-allow-origin", "https://app.example"),
        ("configuration-snippet", "more_set_headers 'a: b';"),
        ("auth-url", "http://auth.example"),
        ("limit-connections", "10"),
        ("proxy-buffering", "on"),
        ("custom-thing", "x"),
    ];
    insta::assert_snapshot!(shown(&convert(&ingress(&annotations, &[("/", "Prefix")]))));
}

#[test]
fn canaries_are_routes_with_conditions() {
    let canary =
        ingress(&[("canary", "true"), ("canary-by-header", "X-Canary"), ("canary-weight", "10")], &[("/", "Prefix")]);
    let canary = canary.replace("name: app", "name: canary").replace("name: web", "name: next");
    let text = format!("{}---\n{canary}", ingress(&[("limit-rps", "1")], &[("/", "Prefix")]));
    let conversion = convert(&text);
    assert!(findings(&conversion, "canary-weight")[0].starts_with("same"));
    insta::assert_snapshot!(conversion.rules);
}

#[test]
fn config_map_sets_defaults() {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: ingress-nginx-controller }\ndata:\n  limit-req-status-code: \"420\"\n\
         \u{20} proxy-body-size: 0\n  use-forwarded-headers: \"true\"\n  proxy-real-ip-cidr: 10.0.0.0/8\n  worker-processes: \"2\"\n  server-snippet: x\n";
    let text = format!("{map}---\n{}", ingress(&[("limit-rps", "1")], &[("/", "Prefix")]));
    let conversion = convert(&text);
    for part in ["status: 420", "max_body: none", "trusted_proxies"] {
        assert!(conversion.rules.contains(part), "{part}\n{}", conversion.rules);
    }
    assert_eq!(findings(&conversion, "server-snippet"), ["lost: not supported"]);
    assert!(findings(&conversion, "worker-processes").is_empty());
}

#[test]
fn lists_and_certificates_are_read() {
    let items = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: networking.k8s.io/v1\n  kind: Ingress\n  metadata: { name: a, namespace: shop }\n  \
         spec:\n    tls: [{ hosts: [a.example], secretName: a-tls }]\n    rules:\n    - host: a.example\n      http: { paths: [{ path: /, pathType: Prefix, \
         backend: { service: { name: web, port: { name: http } } } }] }\n    - host: '*.example'\n      http: { paths: [{ path: /, pathType: Prefix, \
         backend: { service: { name: web, port: { number: 8080 } } } }] }\n    defaultBackend: { service: { name: web, port: { number: 1 } } }\n";
    insta::assert_snapshot!(shown(&convert(items)));
}

#[test]
fn other_classes_are_left_out() {
    let text = ingress(&[("limit-rps", "1")], &[("/", "Prefix")])
        .replace("ingressClassName: nginx", "ingressClassName: traefik");
    let conversion = convert(&text);
    assert!(!conversion.rules.contains("web"));
    assert_eq!(findings(&conversion, "ingressClassName"), ["same: another controller serves it"]);
}

#[test]
fn manifests_are_recognized() {
    use super::recognizes;
    assert!(recognizes("a", &ingress(&[], &[("/", "Prefix")])));
    assert!(!recognizes("a", "apiVersion: v1\nkind: Service\n"));
    assert!(!recognizes("a", "http { server { } }"));
}
