//! Backends: the services that paths lead to.

use std::time::Duration;

use tidegate_rules::route::HostPattern;

use super::Conversion;
use super::manifest::{Ingress, PathRule};
use crate::draft::value::{Map, Value};
use crate::draft::{Target, Upstream, millis};
use crate::nginx::upstreams::settings::retried;
use crate::report::Verdict;
use crate::tree::Node;

/// The longest timeout, in seconds.
const MAX_TIMEOUT: u64 = 3_600;

impl Conversion<'_> {
    /// Returns the name of the upstream of a backend. Returns `None` if it is no service.
    pub(super) fn upstream(&mut self, ingress: &Ingress<'_>, rule: &PathRule<'_>) -> Option<String> {
        let place = ingress.resource.place(rule.line);
        let (is_tls, protocol) = self.protocol(ingress)?;
        let service = rule.backend.and_then(service);
        let url = service.as_ref().and_then(|(service, port)| url(&ingress.namespace, service, port, is_tls));
        let (Some(url), Some((service, port))) = (url, service) else {
            let reason = "its backend is not a service with a port";
            self.notes.add(&place, format!("path: {}", rule.path), Verdict::Lost, reason);
            return None;
        };
        let more = self.upstream_keys(ingress, is_tls, protocol);
        let key = format!("{url} {more:?}");
        if let Some(name) = self.upstreams.get(&key) {
            return Some(name.clone());
        }
        let name = self.draft.upstream_name(&format!("{service}-{port}"));
        let targets = vec![Target { url, weight: 1 }];
        self.draft.upstreams.push(Upstream {
            name: name.clone(),
            targets,
            more,
            place: Some(place),
            ..Upstream::default()
        });
        self.upstreams.insert(key, name.clone());
        Some(name)
    }

    /// Returns whether the backend uses TLS, and the protocol of the rule file. Returns `None` if it is not supported.
    fn protocol(&mut self, ingress: &Ingress<'_>) -> Option<(bool, Option<&'static str>)> {
        let text = ingress.text("backend-protocol").unwrap_or("HTTP").to_ascii_uppercase();
        let found = match text.as_str() {
            "HTTP" | "AUTO_HTTP" => (false, None),
            "HTTPS" => (true, None),
            "GRPC" => (false, Some("http2")),
            "GRPCS" => (true, Some("http2")),
            _ => {
                self.lost(ingress, "backend-protocol", "only HTTP, HTTPS, GRPC and GRPCS: its routes respond with 502");
                return None;
            }
        };
        self.same(ingress, "backend-protocol", "the scheme and `protocol` of the upstream");
        Some(found)
    }

    fn upstream_keys(&mut self, ingress: &Ingress<'_>, is_tls: bool, protocol: Option<&str>) -> Map {
        let mut more = Map::of([("balance", self.balance(ingress))]);
        more.set_some("protocol", protocol);
        let connect = self.timeout(ingress, "proxy-connect-timeout").unwrap_or(self.defaults.connect);
        let read = self.timeout(ingress, "proxy-read-timeout").unwrap_or(self.defaults.read);
        let send = self.timeout(ingress, "proxy-send-timeout").unwrap_or(read);
        match send.cmp(&read) {
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Less => {
                self.note(ingress, "proxy-send-timeout", Verdict::Looser, "`timeouts.response` bounds both directions");
            }
            std::cmp::Ordering::Greater => self.note(
                ingress,
                "proxy-send-timeout",
                Verdict::Stricter,
                "`timeouts.response` bounds both directions",
            ),
        }
        let keys = [("connect", millis(connect)), ("response", millis(read)), ("idle", millis(read))];
        more.set("timeouts", Map::of(keys.map(|(key, value)| (key, Value::from(value)))));
        self.retries(ingress, &mut more);
        if is_tls {
            let verifies = ingress.text("proxy-ssl-verify") == Some("on");
            self.same(ingress, "proxy-ssl-verify", "`tls.verify`");
            more.set_some("tls", (!verifies).then(|| Map::of([("verify", false.into())])));
        }
        more
    }

    /// Returns how requests are distributed. The controller does not use the address of the service, but its pods.
    fn balance(&mut self, ingress: &Ingress<'_>) -> Value {
        if let Some(text) = ingress.text("upstream-hash-by") {
            let key = match text {
                "$binary_remote_addr" | "$remote_addr" => Some("client".to_owned()),
                "$request_uri" | "$uri" => Some("path".to_owned()),
                text => text.strip_prefix("$http_").map(|name| format!("header:{}", name.replace('_', "-"))),
            };
            let reason = "`hash`, which needs a headless service: other services have one address";
            match key {
                Some(key) => {
                    self.same(ingress, "upstream-hash-by", reason);
                    return Map::of([("hash", key.into())]).into();
                }
                None => self.lost(ingress, "upstream-hash-by", "the key has no equivalent"),
            }
        }
        "round_robin".into()
    }

    fn retries(&mut self, ingress: &Ingress<'_>, more: &mut Map) {
        let mut retry = Map::default();
        if let Some(text) = ingress.text("proxy-next-upstream") {
            let Some((on, others)) = retried(text.split_whitespace()) else {
                self.same(ingress, "proxy-next-upstream", "`retry: off`");
                more.set("retry", "off");
                return;
            };
            let verdict = if others.is_empty() { Verdict::Same } else { Verdict::Lost };
            self.note(ingress, "proxy-next-upstream", verdict, "`retry`");
            retry.set_some("on", (!on.is_empty()).then_some(on));
        }
        if let Some(tries) = ingress.number("proxy-next-upstream-tries") {
            self.same(ingress, "proxy-next-upstream-tries", "`retry.attempts`");
            retry.set_some("attempts", (tries > 1).then(|| (tries - 1).min(10)));
        }
        more.set_some("retry", (!retry.is_empty()).then_some(retry));
    }

    /// Returns a timeout in seconds, which may have a unit.
    fn timeout(&mut self, ingress: &Ingress<'_>, name: &str) -> Option<Duration> {
        let text = ingress.text(name)?;
        let time = crate::nginx::values::units::time(text).filter(|time| !time.is_zero());
        match time {
            Some(time) if time <= Duration::from_secs(MAX_TIMEOUT) => self.same(ingress, name, "`timeouts`"),
            Some(_) => self.note(ingress, name, Verdict::Stricter, "the timeout is at most 1h"),
            None => self.lost(ingress, name, "not a number of seconds"),
        }
        time.map(|time| time.min(Duration::from_secs(MAX_TIMEOUT)))
    }
}

/// Returns the name and the port of a service, also of the older form `serviceName`.
fn service(backend: &Node) -> Option<(String, String)> {
    let text = |path: &[&str]| backend.at(path).and_then(Node::text).map(str::to_owned);
    let name = text(&["service", "name"]).or_else(|| text(&["serviceName"]))?;
    let port = text(&["service", "port", "number"])
        .or_else(|| text(&["service", "port", "name"]))
        .or_else(|| text(&["servicePort"]))?;
    Some((name, port))
}

/// Returns the URL of a service. The port of a name is found with SRV records.
fn url(namespace: &str, service: &str, port: &str, is_tls: bool) -> Option<String> {
    let host = format!("{service}.{namespace}.svc.cluster.local");
    let is_named = port.parse::<u16>().is_err();
    let is_port = if is_named { HostPattern::parse(port).is_ok() } else { port != "0" };
    if !is_port || !matches!(HostPattern::parse(&host), Ok(HostPattern::Exact(_))) {
        return None;
    }
    Some(match (is_named, is_tls) {
        (false, false) => format!("http://{host}:{port}"),
        (false, true) => format!("https://{host}:{port}"),
        (true, false) => format!("srv://_{port}._tcp.{host}"),
        (true, true) => format!("srv+https://_{port}._tcp.{host}"),
    })
}
