//! Small configurations: their rule files decide as nginx's own algorithm does, and their reports name each setting.

mod decisions;
mod hostile;
mod keys;
mod law;
mod locations;
mod reports;
mod servers;

use std::collections::HashMap;
use std::net::IpAddr;

use tidegate_config::Config;
use tidegate_limit::clock::Timestamp;
use tidegate_replay::explain::{ExplainedRequest, Explanation};
use tidegate_replay::verdicts::{TracedRequest, of_trace};
use tidegate_rules::route::Action;
use tidegate_rules::rules::LimitCheck;

use self::law::{Charge, LimitReq};
use crate::testing::converted;
use crate::{Conversion, Format};

/// The time of the first request of a trace.
const START: u64 = 1_760_000_000_000;

/// A request of a trace: its time in milliseconds after the start, its client and its target.
#[derive(Clone, Debug)]
struct Request {
    time: u64,
    client: IpAddr,
    target: String,
}

fn convert(text: &str) -> Conversion {
    converted(Format::Nginx, [("nginx.conf", text)])
}

/// Returns an `http` block with these directives, and a server that forwards all requests with `limits`.
fn with_limits(http: &str, limits: &str) -> String {
    format!(
        "http {{ {http} server {{ listen 80; server_name a.example; location / {{ {limits} proxy_pass http://127.0.0.1:9000; }} }} }}"
    )
}

fn request(time: u64, client: &str, target: &str) -> Request {
    Request { time, client: client.parse().unwrap(), target: target.to_owned() }
}

/// Returns the decisions of a rule file about a trace.
fn decisions(conversion: &Conversion, trace: &[Request]) -> Vec<bool> {
    let config = Config::parse(&conversion.rules).unwrap();
    let traced = |request: &Request| (START + request.time, request.client, request.target.clone());
    let traced: Vec<_> = trace.iter().map(traced).collect();
    let requests: Vec<_> = traced
        .iter()
        .map(|(time, client, target)| TracedRequest { time: *time, client: *client, target, status: 200 })
        .collect();
    of_trace(&config.rules, &requests)
}

/// Passes the explanation of a request to `read`.
fn explained<T>(
    conversion: &Conversion,
    (method, url): (&str, &str),
    headers: &[(&str, &str)],
    read: impl FnOnce(&Explanation<'_>) -> T,
) -> T {
    let config = Config::parse(&conversion.rules).unwrap();
    let headers: HashMap<String, String> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request = ExplainedRequest {
        method: method.parse().unwrap(),
        url: url.parse().unwrap(),
        headers: (&headers).try_into().unwrap(),
        body: None,
        version: Default::default(),
        peer: "192.0.2.1".parse().unwrap(),
        tls: Default::default(),
        listener: None,
    };
    request.explain(&config, Timestamp::default(), |explanation| read(explanation.unwrap()))
}

/// Returns the upstream of a request, or the status of its response.
fn upstream(conversion: &Conversion, url: &str) -> String {
    explained(conversion, ("GET", url), &[], |explanation| match &explanation.route().unwrap().action {
        Action::Forward(name) => name.as_deref().unwrap_or("none").to_owned(),
        Action::Redirect(redirect) => format!("{} {}", redirect.status.as_u16(), redirect.to),
        Action::Respond(fixed) => fixed.status.as_u16().to_string(),
    })
}

/// Returns the names of the limits that count a request.
fn counting(conversion: &Conversion, method: &str, headers: &[(&str, &str)]) -> Vec<String> {
    explained(conversion, (method, "http://a.example/"), headers, |explanation| {
        let counts = explanation.checks.iter().filter(|(_, check)| matches!(check, LimitCheck::Charge(_)));
        counts.map(|(limit, _)| limit.name.clone()).collect()
    })
}

/// Returns the decisions of nginx about a trace. `charges` returns the zones and keys of a request.
fn of_nginx(trace: &[Request], charges: impl Fn(&Request) -> Vec<Charge>) -> Vec<bool> {
    let mut nginx = LimitReq::default();
    trace.iter().map(|request| nginx.admits(START + request.time, &charges(request))).collect()
}

/// Returns the findings about the settings that start with a text: `verdict: reason`.
fn findings(conversion: &Conversion, setting: &str) -> Vec<String> {
    let findings = conversion.report.findings.iter().filter(|finding| finding.setting.starts_with(setting));
    findings.map(|finding| format!("{}: {}", finding.verdict, finding.reason)).collect()
}

/// Returns the lines of the rule file that contain a text, without their indentation.
fn lines(conversion: &Conversion, text: &str) -> Vec<String> {
    conversion.rules.lines().filter(|line| line.contains(text)).map(|line| line.trim().to_owned()).collect()
}
