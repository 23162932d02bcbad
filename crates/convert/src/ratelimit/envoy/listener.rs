//! Listeners, and the connection manager of each.

use super::filters::Filters;
use super::guards::Guard;
use super::tls::downstream_tls;
use super::{At, Conversion};
use crate::draft::value::{Map, Value};
use crate::draft::{Listen, millis};
use crate::ratelimit::values::duration;

/// Keys of a connection manager that change no request, or that Tidegate does by itself.
const WITHOUT_EFFECT: [&str; 18] = [
    "@type",
    "access_log",
    "codec_type",
    "generate_request_id",
    "http_filters",
    "http_protocol_options",
    "merge_slashes",
    "normalize_path",
    "path_with_escaped_slashes_action",
    "rds",
    "route_config",
    "server_header_transformation",
    "server_name",
    "stat_prefix",
    "strip_any_host_port",
    "strip_matching_host_port",
    "tracing",
    "upgrade_configs",
];

impl<'a> Conversion<'a, '_> {
    /// Converts a listener with all of its connection managers.
    pub(super) fn listener(&mut self, listener: At<'a>) {
        let wish = listener.text("name").unwrap_or("http");
        let name = self.has_listeners.then(|| self.draft.listener_name(wish));
        let mut listen = Listen { place: Some(listener.place()), ..Listen::default() };
        let mut managers = Vec::new();
        self.guards.clear();
        for chain in listener.items("filter_chains") {
            if let Some(at) = chain.get("filter_chain_match") {
                self.report.lost(&at.place(), "filter_chain_match", "routes of all filter chains apply to all clients");
                if at.entries().any(|(key, ..)| key.ends_with("source_prefix_ranges")) {
                    self.guards.push(Guard::of_listener("filter_chain_match", at));
                }
            }
            if let Some(socket) = chain.get("transport_socket") {
                downstream_tls(socket, &mut listen.more, self.report);
                let requires = socket.get("typed_config").is_some_and(|it| it.flag("require_client_certificate"));
                if requires && !requires_certificates(&listen.more) {
                    self.guards.push(Guard::of_listener("require_client_certificate", socket));
                }
            }
            managers.extend(chain.items("filters").filter_map(|filter| self.manager(filter)));
        }
        let Some(address) = self.address(listener) else { return };
        if managers.is_empty() {
            return;
        }
        listen.address = address;
        listen.more.set_some("name", name.as_deref());
        for manager in &managers {
            self.connection_settings(*manager, &mut listen);
        }
        self.report.same(&listener.place(), format!("listener {}", listen.address), "");
        self.is_tls = listen.more.get("tls").is_some();
        self.draft.listen.push(listen);
        for manager in managers {
            self.connection_manager(manager, name.as_deref());
        }
    }

    fn address(&mut self, listener: At<'a>) -> Option<String> {
        let socket = listener.at(&["address", "socket_address"]);
        let part = |key| socket.and_then(|socket| socket.text(key));
        match (part("address"), part("port_value").and_then(|port| port.parse::<u16>().ok())) {
            (Some(host), Some(port)) => {
                let ip = host.parse().unwrap_or(std::net::IpAddr::from([0, 0, 0, 0]));
                Some(std::net::SocketAddr::new(ip, port).to_string())
            }
            _ => {
                self.report.lost(&listener.place(), "listener", "its address is not an IP address with a port");
                None
            }
        }
    }

    /// Returns the configuration of a connection manager. Reports other network filters.
    fn manager(&mut self, filter: At<'a>) -> Option<At<'a>> {
        let name = filter.text("name").unwrap_or("filter");
        let config = filter.get("typed_config").or_else(|| filter.get("config"))?;
        let kind = config.text("@type").unwrap_or(name);
        if kind.contains("HttpConnectionManager") || kind.contains("http_connection_manager") {
            return Some(config);
        }
        self.report.lost(&filter.place(), format!("filter {name}"), "not a filter of HTTP");
        self.guards.extend(Guard::read(filter));
        None
    }

    fn connection_settings(&mut self, manager: At<'a>, listen: &mut Listen) {
        for (key, value, place) in manager.entries() {
            match (key, duration(value.node), value.node.number()) {
                ("common_http_protocol_options", ..) => self.protocol_options(value, listen),
                ("http2_protocol_options", ..) => {
                    let streams = value.get("max_concurrent_streams").and_then(|value| value.node.number());
                    if let Some(streams @ 1..=10_000) = streams {
                        listen.more.set("max_streams", streams);
                        self.report.same(&place, "max_concurrent_streams", "`max_streams` of the listener");
                    }
                }
                ("use_remote_address" | "xff_num_trusted_hops", ..) => {}
                ("request_headers_timeout", Some(time), _) if !time.is_zero() => {
                    listen.more.set("header_timeout", millis(time));
                    self.report.same(&place, key, "`header_timeout` of the listener");
                }
                ("max_request_headers_kb", _, Some(size @ 1..=1024)) => {
                    listen.more.set("max_field_bytes", format!("{size}KiB"));
                    self.report.same(&place, key, "`max_field_bytes` of the listener");
                }
                (key, ..) if WITHOUT_EFFECT.contains(&key) => {}
                (key, ..) => self.report.lost(&place, key, "no key of the rule file"),
            }
        }
    }

    fn protocol_options(&mut self, options: At<'a>, listen: &mut Listen) {
        for (key, value, place) in options.entries() {
            match (key, duration(value.node), value.node.number()) {
                ("idle_timeout", Some(time), _) if !time.is_zero() => {
                    listen.more.set("idle_timeout", millis(time));
                    self.report.same(&place, key, "`idle_timeout` of the listener");
                }
                ("max_requests_per_connection", _, Some(count @ 1..)) => {
                    listen.more.set("max_requests", count.min(1_000_000_000));
                    self.report.same(&place, key, "`max_requests` of the listener");
                }
                ("max_headers_count", _, Some(count @ 1..=1_000)) => {
                    listen.more.set("max_fields", count);
                    self.report.same(&place, key, "`max_fields` of the listener");
                }
                ("headers_with_underscores_action", ..) => {
                    let word = match value.node.text() {
                        Some("REJECT_REQUEST") => "reject",
                        Some("DROP_HEADER") => "drop",
                        _ => "keep",
                    };
                    self.draft.more.set("requests", Value::Map(super::one("underscores", word)));
                    self.report.same(&place, key, "`requests.underscores`");
                }
                (key, ..) => self.report.lost(&place, key, "no key of the rule file"),
            }
        }
    }

    /// Converts the filters and the routes of a connection manager.
    fn connection_manager(&mut self, manager: At<'a>, listener: Option<&str>) {
        let mut filters = Filters { guards: self.guards.clone(), ..Filters::default() };
        for filter in manager.items("http_filters") {
            self.http_filter(filter, &mut filters);
        }
        if let Some(rds) = manager.get("rds") {
            self.report.lost(&rds.place(), "rds", "a control plane has the routes");
        }
        let count = self.draft.routes.len();
        if let Some(config) = manager.get("route_config") {
            self.virtual_hosts(config, &filters, listener);
        }
        self.client_addresses(manager, count);
    }

    fn http_filter(&mut self, filter: At<'a>, filters: &mut Filters<'a>) {
        let name = filter.text("name").unwrap_or("filter");
        let guard = Guard::read(filter);
        let is_guard = guard.is_some();
        filters.guards.extend(guard);
        if filter.flag("disabled") {
            self.report.lost(&filter.place(), format!("filter {name}"), "it is disabled, and routes can enable it");
            return;
        }
        let config = filter.get("typed_config").or_else(|| filter.get("config"));
        let kind = config.and_then(|config| config.text("@type")).unwrap_or(name);
        match (kind, config) {
            (kind, _) if kind.contains("Router") || kind.contains(".router") => {}
            (kind, Some(config)) if kind.contains("LocalRateLimit") || kind.contains("local_ratelimit") => {
                filters.local.push(config);
            }
            (kind, Some(config)) if kind.contains("ratelimit") => {
                filters.add_global(config);
                self.global_settings(config);
            }
            _ if is_guard => {
                let reason = "the routes that it protects respond with 403, until you write `require`";
                self.report.lost(&filter.place(), format!("filter {name}"), reason);
            }
            _ => self.report.lost(&filter.place(), format!("filter {name}"), "no equivalent that is converted"),
        }
    }

    /// Reports the settings of a filter that asks a rate limit service.
    fn global_settings(&mut self, config: At<'a>) {
        let domain = config.text("domain").unwrap_or_default();
        for (key, value, place) in config.entries() {
            match key {
                "@type" | "stage" | "rate_limit_service" | "timeout" | "stat_prefix" => {}
                "domain" if self.domains.iter().any(|known| known.name == domain) => {
                    self.report.same(
                        &place,
                        format!("domain: {domain}"),
                        "the limits of routes; several gateways need a `store`",
                    );
                }
                "domain" => {
                    self.report.lost(&place, format!("domain: {domain}"), "no file has this domain: give it as well");
                }
                "failure_mode_deny" => self.report.same(&place, key, "`on_store_failure` of the limits"),
                "rate_limited_status" => self.report.same(&place, key, "`reject` of the routes"),
                "enable_x_ratelimit_headers" | "disable_x_envoy_ratelimited_header" => {
                    self.report.same(&place, key, "responses have `RateLimit` and `Retry-After`");
                }
                "rate_limited_as_resource_exhausted" => {
                    self.report.same(&place, key, "gRPC calls over a limit get RESOURCE_EXHAUSTED");
                }
                "request_type" if value.node.text() == Some("both") => self.report.same(&place, key, ""),
                key => self.report.lost(&place, key, "no key of the rule file"),
            }
        }
    }

    /// Reports how the addresses of clients are found, if a limit of a route from this number uses them.
    fn client_addresses(&mut self, manager: At<'a>, from: usize) {
        if !self.plan.uses_addresses(from) {
            return;
        }
        self.draft.clients.ipv6_prefix = Some(128);
        let hops = manager.get("xff_num_trusted_hops").and_then(|hops| hops.node.number()).unwrap_or(0);
        let place = ["xff_num_trusted_hops", "use_remote_address"].into_iter().find_map(|key| manager.get(key));
        let place = place.unwrap_or(manager).place();
        let list = "list the proxies in `clients.trusted_proxies`";
        match (manager.flag("use_remote_address"), hops) {
            (true, 0) => self.report.same(&place, "use_remote_address", "the address of the peer"),
            (true, _) => self.report.lost(&place, "xff_num_trusted_hops", list),
            (false, _) => {
                let reason = format!("addresses come from X-Forwarded-For of any peer: {list}");
                self.report.lost(&place, "use_remote_address: false", reason);
            }
        }
    }
}

/// Returns `true` if the `tls` of a listener requires certificates of clients.
fn requires_certificates(listen: &Map) -> bool {
    matches!(listen.get("tls"), Some(Value::Map(tls)) if tls.get("client_auth").is_some())
}
