//! Header fields: `proxy_set_header`, `add_header` and `proxy_hide_header`.

use super::Conversion;
use super::scope::Scope;
use super::syntax::Directive;
use super::values::template::{Part, literal, parts};
use crate::draft::value::{Map, Value};

/// Fields that the gateway writes for each request.
const FORWARDING: [&str; 3] = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];

/// Fields that concern one connection, or the form of a message.
const FRAMING: [&str; 10] = [
    "connection",
    "upgrade",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "via",
    "expect",
];

impl<'c> Conversion<'c, '_> {
    /// Sets how fields with underscores in their names are handled.
    pub(super) fn field_names(&mut self, http: &Scope<'c>) {
        let Some(directive) = http.last("underscores_in_headers") else { return };
        if http.is_on("underscores_in_headers") {
            self.set_request_key("underscores", "keep".into());
        }
        self.notes.same(directive, "`requests.underscores`");
    }

    /// Sets a key of `requests`.
    fn set_request_key(&mut self, key: &str, value: Value) {
        if let Some(Value::Map(requests)) = self.draft.more.get_mut("requests") {
            requests.set(key, value);
            return;
        }
        let mut requests = Map::default();
        requests.set(key, value);
        self.draft.more.set("requests", requests);
    }

    /// Sets the changes of the fields that the upstream receives. Returns the `Host` of a rule file, or `client` for that of
    /// the client. Returns `None` if the source does not set it.
    pub(super) fn request_headers(&mut self, scope: &Scope<'c>, is_grpc: bool, more: &mut Map) -> Option<String> {
        let (mut set, mut remove, mut host) = (Map::default(), Vec::new(), None);
        for directive in scope.all(if is_grpc { "grpc_set_header" } else { "proxy_set_header" }) {
            let (name, value) = (directive.arg(0).unwrap_or_default(), directive.arg(1).unwrap_or_default());
            let lower = name.to_ascii_lowercase();
            if lower == "host" {
                host = self.host(directive, value, scope);
            } else if (lower.as_str(), value) == ("x-request-id", "$request_id") {
                self.set_request_key("request_id", true.into());
                self.notes.same(directive, "`requests.request_id`");
            } else if FORWARDING.contains(&lower.as_str()) {
                self.note_forwarding(directive, &lower, value);
            } else if FRAMING.contains(&lower.as_str()) {
                self.note_framing(directive, &lower);
            } else if value.is_empty() {
                remove.push(Value::from(name));
                self.notes.same(directive, "`request_headers.remove`");
            } else {
                self.set_header(directive, name, value, scope, &mut set);
            }
        }
        let mut changes = Map::default();
        changes.set_some("set", (!set.is_empty()).then_some(set));
        changes.set_some("remove", (!remove.is_empty()).then_some(remove));
        more.set_some("request_headers", (!changes.is_empty()).then_some(changes));
        host
    }

    fn host(&mut self, directive: &Directive, value: &str, scope: &Scope<'c>) -> Option<String> {
        if matches!(value, "$host" | "$http_host" | "$host:$server_port" | "$http_host:$server_port") {
            self.notes.same(directive, "the host of the client is forwarded");
            return Some("client".to_owned());
        }
        if value == "$proxy_host" {
            self.notes.same(directive, "`rewrite.host`");
            return None;
        }
        let fixed = self.variables.constant(value, &scope.assigned).filter(|host| is_host(host));
        match fixed {
            Some(_) => self.notes.same(directive, "`rewrite.host`"),
            None => {
                self.notes.lost(directive, "the host has no equivalent: the upstream receives the host of the client");
            }
        }
        fixed.or_else(|| Some("client".to_owned()))
    }

    fn note_forwarding(&mut self, directive: &Directive, name: &str, value: &str) {
        let is_usual = match name {
            "x-forwarded-for" => matches!(value, "$proxy_add_x_forwarded_for" | "$remote_addr"),
            "x-forwarded-host" => matches!(value, "$host" | "$http_host" | "$host:$server_port"),
            _ => matches!(value, "$scheme" | "$http_x_forwarded_proto" | "https" | "http" | "$proxy_x_forwarded_proto"),
        };
        match is_usual {
            true => self.notes.same(directive, "the gateway always sets the field"),
            false => self.notes.lost(directive, "the gateway sets the field itself"),
        }
    }

    fn note_framing(&mut self, directive: &Directive, name: &str) {
        match name {
            "upgrade" | "connection" => self.notes.same(directive, "`upgrades`: WebSocket is allowed by default"),
            _ => self.notes.lost(directive, "the gateway frames messages itself"),
        }
    }

    fn set_header(&mut self, directive: &Directive, name: &str, value: &str, scope: &Scope<'c>, set: &mut Map) {
        match self.field(value, scope).filter(|_| is_field(name)) {
            Some(value) => {
                set.set(name, value);
                self.notes.same(directive, "`request_headers.set`");
            }
            None => self.notes.lost(directive, "the name or a variable of the value has no equivalent"),
        }
    }

    /// Returns the value of a field with the variables of the rule file.
    fn field(&self, text: &str, scope: &Scope<'c>) -> Option<String> {
        let mut value = String::new();
        for part in parts(text) {
            match part {
                Part::Text(text) => value.push_str(&literal(&text)?),
                Part::Variable(name) => match name.as_str() {
                    "remote_addr" => value.push_str("{client_ip}"),
                    "host" | "http_host" => value.push_str("{host}"),
                    "request_uri" => value.push_str("{uri}"),
                    "uri" | "document_uri" => value.push_str("{path}"),
                    _ => {
                        let constant = self.variables.constant(&format!("${{{name}}}"), &scope.assigned)?;
                        value.push_str(&literal(&constant)?);
                    }
                },
            }
        }
        is_value(&value).then_some(value)
    }

    /// Sets the changes of the fields of responses.
    pub(super) fn response_headers(&mut self, scope: &Scope<'c>, more: &mut Map) {
        let (mut add, mut remove) = (Map::default(), Vec::new());
        for directive in scope.all("add_header") {
            let (name, value) = (directive.arg(0).unwrap_or_default(), directive.arg(1).unwrap_or_default());
            let is_fixed = parts(value).iter().all(|part| matches!(part, Part::Text(_)));
            let is_usable = is_fixed && is_field(name) && is_value(value) && add.get(name).is_none();
            match literal(value).filter(|_| is_usable) {
                Some(value) if value.is_empty() => self.notes.same(directive, "an empty field is left out"),
                Some(value) => {
                    add.set(name, value);
                    self.notes.same(directive, "`response_headers.add`, also for other statuses");
                }
                None => self.notes.lost(directive, "the name or a variable of the value has no equivalent"),
            }
        }
        for directive in scope.all("proxy_hide_header") {
            match directive.arg(0).filter(|name| is_field(name)) {
                Some(name) => {
                    remove.push(Value::from(name));
                    self.notes.same(directive, "`response_headers.remove`");
                }
                None => self.notes.lost(directive, "not a field that can be removed"),
            }
        }
        let mut changes = Map::default();
        changes.set_some("add", (!add.is_empty()).then_some(add));
        changes.set_some("remove", (!remove.is_empty()).then_some(remove));
        more.set_some("response_headers", (!changes.is_empty()).then_some(changes));
    }
}

/// Returns `true` for the name of a field that a rule file may change.
fn is_field(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    is_name && lower != "host" && !FRAMING.contains(&lower.as_str()) && lower != "http2-settings"
}

/// Returns `true` if a field can have the value.
fn is_value(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && text.len() <= 4_096
}

/// Returns `true` for a host with an optional port.
fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "80"));
    let is_host =
        matches!(tidegate_rules::route::HostPattern::parse(host), Ok(tidegate_rules::route::HostPattern::Exact(_)));
    is_host && port.parse::<u16>().is_ok() && text != "upstream"
}
