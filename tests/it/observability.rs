//! The alert rules and the dashboard of examples/observability name only metrics and labels that a gateway exports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::support::control_plane::ControlPlane;
use crate::support::gateway::TestGateway;
use crate::support::pages;
use crate::support::redis::RedisServer;
use crate::support::service::TestService;
use crate::support::tls::{Authority, listener};
use crate::support::wire::soon;
use crate::support::wire::upstream::Origin;

/// The prefix of the metrics of reloads.
const RELOADS: &str = "tidegate_config_";

/// The labels of each exported name.
type Exported = BTreeMap<String, BTreeSet<String>>;

/// A metric with the labels that select its series.
#[derive(Debug, PartialEq, Eq)]
struct Selector {
    name: String,
    labels: Vec<String>,
}

fn read(file: &str) -> String {
    fs::read_to_string(pages::root().join("examples/observability").join(file)).expect("a file")
}

/// Returns the selectors in an expression.
fn selectors(expression: &str) -> Vec<Selector> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices("tidegate_") {
        let rest = &expression[at..];
        let (name, after) = rest.split_at(rest.bytes().position(|byte| !is_name(byte)).unwrap_or(rest.len()));
        let matchers = after.strip_prefix('{').and_then(|after| after.split('}').next()).unwrap_or_default();
        // Every matcher ends with a quoted value.
        let labels = matchers.split('"').step_by(2).filter(|matcher| !matcher.is_empty());
        let labels = labels.map(|label| label.trim_matches([',', ' ', '=', '!', '~']).to_owned()).collect();
        found.push(Selector { name: name.to_owned(), labels });
    }
    found
}

/// Returns the labels after each `by`, and those in templates such as `{{ $labels.route }}` or `{{route}}`.
fn grouped(expression: &str) -> Vec<String> {
    let by = expression.split(" by (").skip(1).filter_map(|rest| rest.split(')').next());
    by.flat_map(|labels| labels.split(',')).map(|label| label.trim().to_owned()).collect()
}

fn templates(text: &str) -> Vec<String> {
    let all = text.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()).map(str::trim);
    let labels = all.filter_map(|name| match name.strip_prefix('$') {
        Some(variable) => variable.strip_prefix("labels."),
        None => Some(name),
    });
    labels.map(str::to_owned).collect()
}

/// Returns each expression of the alert rules, with the texts that show its labels.
fn alerts() -> Vec<(String, String)> {
    let rules: Value = serde_yaml::from_str(&read("alerts.yml")).expect("YAML");
    let rules = rules["groups"].as_array().expect("groups").iter().flat_map(|group| group["rules"].as_array());
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    rules.flatten().map(|rule| (text(&rule["expr"]), text(&rule["annotations"]["summary"]))).collect()
}

/// Returns each expression of the dashboard, with its legend. Variables are expressions, too.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut expressions: Vec<_> =
        targets.map(|target| (text(&target["expr"]), text(&target["legendFormat"]))).collect();
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        let query = text(&variable["query"]);
        if let Some((metric, label)) = query.strip_prefix("label_values(").and_then(|query| query.split_once(", ")) {
            expressions.push((metric.to_owned(), format!("{{{{{}}}}}", label.trim_end_matches(')'))));
        }
    }
    expressions
}

/// Returns the faults of the expressions. Prometheus adds `instance` and `job` to all series.
fn faults(expressions: &[(String, String)], exported: &Exported) -> Vec<String> {
    let mut faults = Vec::new();
    for (expression, texts) in expressions {
        let mut known: BTreeSet<&str> = ["instance", "job"].into();
        for Selector { name, labels } in selectors(expression) {
            let Some(exported) = exported.get(&name) else {
                faults.push(format!("{name} is not exported: {expression}"));
                continue;
            };
            known.extend(exported.iter().map(String::as_str));
            let strange = labels.iter().filter(|label| *label != "instance" && !exported.contains(*label));
            faults.extend(strange.map(|label| format!("{name} has no label {label}: {expression}")));
        }
        let used = grouped(expression).into_iter().chain(templates(texts));
        let used = used.filter(|label| !known.contains(label.as_str()) && !label.starts_with("$value"));
        faults.extend(used.map(|label| format!("no metric has the label {label}: {expression}, {texts}")));
    }
    faults
}

/// Reads the series of `/metrics`.
fn series(text: &str) -> Exported {
    let mut exported = Exported::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split('"').step_by(2);
        let labels = labels.map(|label| label.trim_matches([',', '=']).to_owned()).filter(|label| !label.is_empty());
        exported.entry(name.to_owned()).or_default().extend(labels);
    }
    exported
}

/// Causes traffic of every kind that the rules and the dashboard observe, and returns the exported series.
async fn observe() -> Option<Exported> {
    let redis = RedisServer::start()?;
    let origin = TestGateway::start(
        "upstreams: { echo: { targets: [builtin:echo] } }\nroutes: [{ name: all, match: {}, upstream: echo }]",
    );
    let authority = Authority::new();
    authority.sign("api.example", &["api.example"]);
    authority.revoke("clients.crl", &[], 2900);
    let (ca, crl) = (authority.path("ca.pem"), authority.path("clients.crl"));
    let auth = format!(", client_auth: {{ ca: '{ca}', crl: '{crl}' }}");
    let listen = format!("[127.0.0.1:0, {}]", listener(&authority, &["api.example"], &auth));
    let gateway = TestGateway::start_at(
        &listen,
        &format!(
            "store: {}
include: {{ path: tests/fixtures/teams/e.yaml }}
upstreams:
  echo: {{ targets: [builtin:echo] }}
  real: {{ targets: ['http://{}'] }}
  gone: {{ targets: ['http://{}'] }}
routes:
  - {{ name: retries, match: {{ path: /retries }}, upstream: gone }}
  - name: waits
    match: {{ path: /waits }}
    upstream: real
    limits: [{{ name: all, mode: OVERALL, rate: 1, interval: 100ms, max_wait: 1s }}]
  - name: rejects
    match: {{ path: /** }}
    upstream: echo
    limits: [{{ name: all, mode: OVERALL, rate: 2, interval: 1h }}]
",
            redis.rule(),
            origin.address,
            Origin::closed_port(),
        ),
    );
    assert_eq!(gateway.get("/retries", "").await.status(), 502);
    let statuses = [gateway.get("/", "").await, gateway.get("/", "").await, gateway.get("/", "").await];
    assert_eq!(statuses.map(|response| response.status()), [200, 200, 429]);
    let has_waited = async || gateway.admin_get("/metrics").await.text().contains("tidegate_permit_wait_seconds_count");
    soon(async {
        while !has_waited().await {
            // Two of these find no permit, and wait.
            tokio::join!(gateway.get("/waits", ""), gateway.get("/waits", ""), gateway.get("/waits", ""));
        }
    })
    .await;
    gateway.client().await.ask("GET / HTTP/1.1\r\nbad field: 1\r\n\r\n").await;
    redis.signal("STOP");
    soon(async { while gateway.get("/waits", "").await.field("ratelimit").is_some() {} }).await;
    Some(series(&(gateway.admin_get("/metrics").await.text() + &metrics_of_control_plane().await)))
}

/// Returns the metrics of a service whose control plane has sent a configuration.
async fn metrics_of_control_plane() -> String {
    let mut plane = ControlPlane::start().await;
    let (url, address) = (format!("http://{}", plane.address), "127.0.0.1:0");
    let rules =
        format!("admin: {address}\nservice: {{ grpc: {address}, http: {address}, descriptors: {{ xds: '{url}' }} }}\n");
    let started = tokio::task::spawn_blocking(move || TestService::from_rules(&rules));
    let mut stream = plane.stream().await;
    stream.request().await;
    stream.push_and_wait("1", "a", &[]).await;
    started.await.expect("a service").metrics().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_and_dashboard_name_exported_metrics() {
    let Some(exported) = observe().await else { return };
    let (alerts, panels) = (alerts(), panels());
    assert!(alerts.len() > 10 && panels.len() > 25, "{} alerts, {} panels", alerts.len(), panels.len());
    let mut expressions = [alerts, panels].concat();
    // A gateway without reloads has none of their metrics.
    if !exported.keys().any(|name| name.starts_with(RELOADS)) {
        expressions.retain(|(expression, _)| !expression.contains(RELOADS));
    }
    let faults = faults(&expressions, &exported);
    assert!(faults.is_empty(), "{}\nexported: {exported:#?}", faults.join("\n"));
}

#[test]
fn unknown_metrics_and_labels_are_faults() {
    let exported = series("# TYPE tidegate_a counter\ntidegate_a_total{route=\"r\",code=\"200\"} 1\ntidegate_b 1\n");
    let found = |expression: &str, text: &str| faults(&[(expression.to_owned(), text.to_owned())], &exported).len();
    let good = "sum by (route) (rate(tidegate_a_total{code=~\"5..\", instance=~\"$i\"}[5m])) / tidegate_b > 1";
    assert_eq!(found(good, "{{ $labels.route }} {{code}} {{ $value | humanize }}"), 0);
    assert_eq!(found("tidegate_c", ""), 1);
    assert_eq!(found("tidegate_a_total{status!=\"429\"}", ""), 1);
    assert_eq!(found("tidegate_b{code=\"429\"}", ""), 1);
    assert_eq!(found("sum by (limit, route) (tidegate_a_total)", ""), 1);
    assert_eq!(found("tidegate_b", "{{ $labels.route }}"), 1);
}
