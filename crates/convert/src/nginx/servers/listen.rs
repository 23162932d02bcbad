//! `listen`: the listeners of the rule file.

use super::Server;
use super::sockets::{Socket, Sockets, addresses};
use crate::draft::value::{Map, Value};
use crate::draft::{Listen, millis};
use crate::nginx::Conversion;
use crate::nginx::scope::Scope;
use crate::nginx::syntax::Directive;
use crate::nginx::values::units;
use crate::report::Verdict;

/// The address of servers without `listen`.
const DEFAULT_ADDRESS: &str = "0.0.0.0:80";

/// The longest timeout of a listener, in milliseconds.
const MAX_TIMEOUT: u128 = 3_600_000;

impl<'c> Conversion<'c, '_> {
    /// Returns the positions of the sockets of a server.
    pub(super) fn listen(&mut self, scope: &Scope<'c>, server: usize, sockets: &mut Sockets<'c>) -> Vec<usize> {
        let mut own = Vec::new();
        let is_tls = scope.is_on("ssl");
        for directive in scope.own("listen") {
            let has = |word: &str| directive.texts().any(|text| text == word);
            if has("quic") {
                self.notes.lost(directive, "HTTP/3 is not supported");
                continue;
            }
            for address in addresses(directive).unwrap_or_default() {
                let Ok(index) = sockets.of(&address, Some(directive)) else {
                    self.notes.lost(directive, "another listener has this port on all addresses");
                    continue;
                };
                let socket = &mut sockets.all[index];
                socket.is_tls |= has("ssl") || is_tls;
                socket.has_proxy_protocol |= has("proxy_protocol");
                let is_default = has("default_server") || has("default");
                if socket.default.is_none() || is_default && !socket.is_default_set {
                    socket.default = Some(server);
                    socket.is_default_set = is_default;
                }
                if !own.contains(&index) {
                    own.push(index);
                }
            }
            match addresses(directive) {
                Err(fault) => self.notes.lost(directive, fault),
                Ok(_) => self.notes.same(directive, ""),
            }
        }
        if scope.own("listen").is_empty()
            && let Ok(index) = sockets.of(DEFAULT_ADDRESS, None)
        {
            sockets.all[index].default.get_or_insert(server);
            sockets.all[index].is_tls |= is_tls;
            own.push(index);
        }
        own
    }

    /// Adds the listeners to the rule file.
    pub(super) fn write_listeners(&mut self, http: &Scope<'c>, servers: &[Server<'c>], sockets: &mut Sockets<'c>) {
        let (mut names, need_names) = (Vec::new(), sockets.need_names);
        for (index, socket) in sockets.all.iter_mut().enumerate() {
            let mut more = Map::default();
            if need_names {
                let name = unused(&names, &socket.wish());
                names.push(name.clone());
                more.set("name", name.as_str());
                socket.name = Some(name);
            }
            let own: Vec<&Server<'_>> = servers.iter().filter(|server| server.sockets.contains(&index)).collect();
            let default = socket.default.and_then(|default| servers.get(default));
            let scope = default.map_or(http, |server| &*server.scope);
            more.set_some("tls", socket.is_tls.then(|| self.tls(&own, default)).flatten());
            self.set_proxy_protocol(socket, &mut more);
            self.connection_settings(scope, &own, &mut more);
            let address = socket.address.clone();
            self.draft.listen.push(Listen { address, more, place: socket.place() });
        }
        let uses_admin_port = |socket: &Socket<'_>| socket.address.ends_with(":9901");
        if sockets.all.iter().any(uses_admin_port) {
            self.draft.more.set("admin", "off");
        }
    }

    fn set_proxy_protocol(&mut self, socket: &Socket<'_>, more: &mut Map) {
        let Some(directive) = socket.directive.filter(|_| socket.has_proxy_protocol) else { return };
        if self.draft.clients.trusted_proxies.is_empty() {
            self.notes.lost(directive, "`proxy_protocol` needs `set_real_ip_from`, to trust the proxies");
        } else {
            more.set("proxy_protocol", true);
        }
    }

    /// Sets the timeouts and bounds of connections. The values of the default server apply.
    fn connection_settings(&mut self, scope: &Scope<'c>, servers: &[&Server<'c>], more: &mut Map) {
        for (name, key) in [
            ("client_header_timeout", "header_timeout"),
            ("client_body_timeout", "body_timeout"),
            ("keepalive_timeout", "idle_timeout"),
            ("keepalive_requests", "max_requests"),
            ("http2_max_concurrent_streams", "max_streams"),
        ] {
            let Some(directive) = scope.last(name) else { continue };
            match value(directive, key) {
                Some((value, Verdict::Same)) => {
                    more.set(key, value);
                    self.notes.same(directive, format!("`{key}` of the listener"));
                }
                Some((value, verdict)) => {
                    more.set(key, value);
                    self.notes.add(directive, verdict, format!("`{key}` of the listener has a lower bound"));
                }
                None => self.notes.lost(directive, format!("`{key}` of the listener has no such value")),
            }
            for other in servers.iter().filter_map(|server| server.scope.own_first(name)) {
                if other != directive {
                    self.notes.lost(other, "the listener has the value of its default server");
                }
            }
        }
        if let Some(buffers) = scope.last("large_client_header_buffers") {
            self.header_buffers(buffers, more);
        }
        if let Some(timeout) = scope.last("send_timeout") {
            self.notes.same(timeout, "`body_timeout` of the listener bounds the time without progress");
        }
    }

    fn header_buffers(&mut self, directive: &Directive, more: &mut Map) {
        let number: Option<u64> = directive.arg(0).and_then(|number| number.parse().ok());
        let size = directive.arg(1).and_then(units::size);
        match number.zip(size).map(|(number, size)| number.saturating_mul(size)) {
            Some(bytes) if bytes >= 1 << 10 => {
                let bytes = bytes.min(1 << 20);
                more.set("max_field_bytes", units::shown_size(bytes));
                self.notes.same(directive, "`max_field_bytes` of the listener, the sum of the buffers");
            }
            _ => self.notes.lost(directive, "not a number and a size of at least 1k together"),
        }
    }
}

/// Returns the value of a setting of connections, and whether it is within the bounds of the rule file.
fn value(directive: &Directive, key: &str) -> Option<(Value, Verdict)> {
    let text = directive.arg(0)?;
    let most = match key {
        "max_requests" => 1_000_000_000,
        "max_streams" => 10_000,
        _ => {
            let time = units::time(text).filter(|time| !time.is_zero())?;
            let most = if key == "idle_timeout" { 24 * MAX_TIMEOUT } else { MAX_TIMEOUT };
            let is_within = time.as_millis() <= most;
            let time = if is_within { millis(time) } else { "1h".to_owned() };
            return Some((time.into(), if is_within { Verdict::Same } else { Verdict::Stricter }));
        }
    };
    let number: u64 = text.parse().ok().filter(|number| *number > 0)?;
    Some((number.min(most).into(), if number <= most { Verdict::Same } else { Verdict::Stricter }))
}

/// Returns the first of `wish`, `wish-2`, ... that is not used.
fn unused(names: &[String], wish: &str) -> String {
    let numbered = (2..).map(|number| format!("{wish}-{number}"));
    [wish.to_owned()].into_iter().chain(numbered).find(|name| !names.contains(name)).unwrap_or_default()
}
