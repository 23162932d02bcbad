//! The ConfigMap of the controller: the defaults of all Ingresses.

use std::time::Duration;

use super::annotations::setting;
use super::manifest::Resource;
use super::{Conversion, guards};
use crate::draft::value::Map;
use crate::nginx::client::network;
use crate::nginx::values::units;
use crate::report::Verdict;
use crate::tree::Entry;

/// The keys of logs, buffers and processes, or their starts.
const OTHERS: [&str; 22] = [
    "access-log",
    "allow-snippet-annotations",
    "annotations-risk-level",
    "brotli",
    "client-body-buffer",
    "client-header-buffer",
    "disable-access-log",
    "enable-brotli",
    "enable-opentelemetry",
    "enable-opentracing",
    "error-log",
    "gzip",
    "hide-headers-none",
    "load-balance-none",
    "log-format",
    "map-hash",
    "max-worker",
    "proxy-buffer",
    "reuse-port",
    "server-name-hash",
    "use-gzip",
    "worker-",
];

/// The defaults of all Ingresses.
#[derive(Clone, Debug)]
pub(super) struct Defaults {
    /// The status of rejected requests.
    pub(super) limit_status: Option<u32>,
    /// The largest request body, in bytes. 0 means no limit.
    pub(super) max_body: u64,
    pub(super) connect: Duration,
    pub(super) read: Duration,
    /// Whether plaintext requests to hosts with TLS are redirected.
    pub(super) redirects: bool,
    pub(super) forces_redirects: bool,
    pub(super) has_proxy_protocol: bool,
    /// The names of settings that reject requests to all Ingresses, and their texts for comments.
    pub(super) guards: Vec<(String, String)>,
}

/// Which peers the controller trusts.
#[derive(Clone, Copy, Debug)]
struct Trust {
    /// Whether it reads the address of a client from a proxy.
    forwards: bool,
    /// Whether it trusts only some networks.
    has_networks: bool,
}

impl Default for Defaults {
    /// The defaults of the controller.
    fn default() -> Self {
        Self {
            limit_status: None,
            max_body: 1 << 20,
            connect: Duration::from_secs(5),
            read: Duration::from_secs(60),
            redirects: true,
            forces_redirects: false,
            has_proxy_protocol: false,
            guards: Vec::new(),
        }
    }
}

impl Conversion<'_> {
    /// Reads the ConfigMaps of the controller.
    pub(super) fn config_maps(&mut self, maps: &[&Resource<'_>]) {
        for map in maps {
            let entries = map.entries(&["data"]);
            let is_of_controller = entries.iter().any(|entry| super::CONFIG_KEYS.contains(&entry.key.as_str()));
            let name = map.text(&["metadata", "name"]).unwrap_or_default();
            if is_of_controller || name.contains("ingress-nginx") || name.contains("nginx-configuration") {
                let text =
                    |key: &str| entries.iter().find(|entry| entry.key == key).and_then(|entry| entry.value.text());
                let is_on = |key: &str| text(key) == Some("true");
                let trust = Trust {
                    forwards: is_on("use-forwarded-headers") || is_on("use-proxy-protocol"),
                    has_networks: text("proxy-real-ip-cidr").is_some(),
                };
                for entry in entries {
                    if guards::protects_all(entry) {
                        let shown = format!("`{}` ({})", entry.key, map.place(entry.line));
                        self.defaults.guards.push((entry.key.clone(), shown));
                    }
                    let (verdict, reason) = self.config_entry(entry, trust);
                    let is_other = OTHERS.iter().any(|other| entry.key.starts_with(other));
                    if verdict != Verdict::Lost || !is_other {
                        self.notes.add(&map.place(entry.line), setting(entry), verdict, reason);
                    }
                }
            }
        }
        self.draft.clients.ipv6_prefix = Some(128);
    }

    /// Applies an entry, and returns its finding.
    fn config_entry(&mut self, entry: &Entry, trust: Trust) -> (Verdict, &'static str) {
        let text = entry.value.text().unwrap_or_default();
        let found = match entry.key.as_str() {
            "limit-req-status-code" => self.limit_status(entry).then_some("`reject`"),
            "proxy-body-size" => units::size(text).map(|size| {
                self.defaults.max_body = size;
                "`max_body`"
            }),
            "proxy-connect-timeout" | "proxy-read-timeout" | "proxy-send-timeout" => {
                self.timeout_entry(entry).then_some("`timeouts`")
            }
            "ssl-redirect" | "force-ssl-redirect" | "use-proxy-protocol" => {
                self.flag_entry(entry).then_some("redirects, or `proxy_protocol`")
            }
            "use-forwarded-headers" | "compute-full-forwarded-for" if trust.forwards && !trust.has_networks => {
                return (Verdict::Lost, "the controller trusts all addresses: set `trusted_proxies` to the proxies");
            }
            "use-forwarded-headers" | "compute-full-forwarded-for" => Some("`clients.trusted_proxies`"),
            "proxy-real-ip-cidr" => return self.trusted(text, trust.forwards),
            "use-http2" | "http2" | "keep-alive" | "upstream-keepalive-connections" => Some(""),
            "ssl-protocols" => Some("TLS 1.2 and 1.3"),
            _ if guards::protects_all(entry) => {
                return (Verdict::Lost, "the routes that it protects respond with 403");
            }
            _ => None,
        };
        found.map_or((Verdict::Lost, "not supported"), |reason| (Verdict::Same, reason))
    }

    fn limit_status(&mut self, entry: &Entry) -> bool {
        let code = entry.value.number().and_then(|code| u32::try_from(code).ok());
        let code = code.filter(|code| (400..=599).contains(code));
        self.defaults.limit_status = code.or(self.defaults.limit_status);
        code.is_some()
    }

    fn timeout_entry(&mut self, entry: &Entry) -> bool {
        let seconds = entry.value.number().filter(|seconds| (1..=3_600).contains(seconds)).map(Duration::from_secs);
        match (entry.key.as_str(), seconds) {
            ("proxy-connect-timeout", Some(time)) => self.defaults.connect = time,
            ("proxy-read-timeout", Some(time)) => self.defaults.read = time,
            _ => {}
        }
        seconds.is_some()
    }

    fn flag_entry(&mut self, entry: &Entry) -> bool {
        let Some(flag) = entry.value.flag() else { return false };
        match entry.key.as_str() {
            "ssl-redirect" => self.defaults.redirects = flag,
            "force-ssl-redirect" => self.defaults.forces_redirects = flag,
            _ => self.defaults.has_proxy_protocol = flag,
        }
        true
    }

    /// Sets the networks of trusted proxies.
    fn trusted(&mut self, text: &str, forwards: bool) -> (Verdict, &'static str) {
        match text.split(',').map(|text| network(text.trim())).collect::<Option<Vec<_>>>() {
            None => (Verdict::Lost, "not a list of networks"),
            Some(_) if !forwards => (Verdict::Same, "without effect: forwarding fields are not trusted"),
            Some(networks) => {
                self.draft.clients.trusted_proxies = networks;
                (Verdict::Same, "`clients.trusted_proxies`")
            }
        }
    }

    /// Returns the keys of a listener.
    pub(super) fn listener_keys(&self) -> Map {
        let is_on = self.defaults.has_proxy_protocol && !self.draft.clients.trusted_proxies.is_empty();
        let mut more = Map::default();
        more.set_some("proxy_protocol", is_on.then_some(true));
        more
    }
}
