//! The settings of `proxy_pass` in a block: timeouts, retries and TLS.

use std::time::Duration;

use super::url::Url;
use crate::draft::millis;
use crate::draft::value::{Map, Value};
use crate::nginx::Conversion;
use crate::nginx::scope::Scope;
use crate::nginx::syntax::Directive;
use crate::nginx::values::units;

/// The timeouts of nginx without a setting.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest timeouts of a rule file.
const MAX_CONNECT: Duration = Duration::from_secs(3_600);
const MAX_RESPONSE: Duration = Duration::from_secs(86_400);

impl<'c> Conversion<'c, '_> {
    /// Returns the keys of an upstream for a block.
    pub(super) fn upstream_settings(&mut self, scope: &Scope<'c>, url: &Url) -> Map {
        let mut more = Map::default();
        if url.is_grpc {
            more.set("protocol", "http2");
        } else if url.is_tls {
            more.set("protocol", "http1");
        }
        more.set("timeouts", self.timeouts(scope, if url.is_grpc { "grpc" } else { "proxy" }));
        self.retries(scope, &mut more);
        if url.is_tls {
            more.set("tls", self.upstream_tls(scope, url));
        }
        more
    }

    fn timeouts(&mut self, scope: &Scope<'c>, module: &str) -> Map {
        let mut of = |name: &str, most: Duration| self.timeout(scope.last(&format!("{module}_{name}_timeout")), most);
        let (connect, read) = (of("connect", MAX_CONNECT), of("read", MAX_RESPONSE));
        let mut timeouts = Map::of([("connect", millis(connect).into()), ("response", millis(read).into())]);
        timeouts.set_some("idle", (read != DEFAULT_TIMEOUT).then(|| millis(read)));
        if let Some(send) = scope.last(&format!("{module}_send_timeout")) {
            match send.arg(0).and_then(units::time) {
                Some(time) if time == read => self.notes.same(send, "`timeouts.response`"),
                Some(time) if time < read => self.notes.looser(send, "`timeouts.response` bounds both directions"),
                _ => self.notes.stricter(send, "`timeouts.response` bounds both directions"),
            }
        }
        timeouts
    }

    fn timeout(&mut self, directive: Option<&Directive>, most: Duration) -> Duration {
        let Some(directive) = directive else { return DEFAULT_TIMEOUT };
        match directive.arg(0).and_then(units::time).filter(|time| !time.is_zero()) {
            Some(time) if time <= most => {
                self.notes.same(directive, "`timeouts`");
                time
            }
            Some(_) => {
                self.notes.stricter(directive, format!("the timeout is at most {}", millis(most)));
                most
            }
            None => {
                self.notes.lost(directive, "not a time");
                DEFAULT_TIMEOUT
            }
        }
    }

    fn retries(&mut self, scope: &Scope<'c>, more: &mut Map) {
        let mut retry = Map::default();
        if let Some(directive) = scope.last("proxy_next_upstream") {
            let Some((on, others)) = retried(directive.texts()) else {
                self.notes.same(directive, "`retry: off`");
                more.set("retry", "off");
                return;
            };
            match others.is_empty() {
                true => self.notes.same(directive, "`retry`"),
                false => self.notes.lost(directive, format!("`retry` has no {}", others.join(" "))),
            }
            retry.set_some("on", (!on.is_empty()).then_some(on));
        }
        if let Some(directive) = scope.last("proxy_next_upstream_tries") {
            match directive.arg(0).and_then(|number| number.parse::<u64>().ok()) {
                Some(1) => {
                    self.notes.same(directive, "`retry: off`");
                    more.set("retry", "off");
                    return;
                }
                Some(tries @ 2..) => {
                    retry.set("attempts", (tries - 1).min(10));
                    self.notes.same(directive, "`retry.attempts`");
                }
                _ => self.notes.lost(directive, "the number of attempts is bounded"),
            }
        }
        more.set_some("retry", (!retry.is_empty()).then_some(retry));
    }

    /// Returns the files of `tls` of an upstream.
    fn upstream_files(&mut self, scope: &Scope<'c>, module: &str) -> Map {
        let name = |name: &str| format!("{module}_ssl_{name}");
        let mut tls = Map::default();
        for (key, directive) in [
            ("ca", scope.last(&name("trusted_certificate"))),
            ("cert", scope.last(&name("certificate"))),
            ("key", scope.last(&name("certificate_key"))),
        ] {
            let Some(directive) = directive else { continue };
            match directive.arg(0).filter(|path| !path.contains('$') && !path.contains(':')) {
                Some(path) => {
                    tls.set(key, self.file(path));
                    self.notes.same(directive, format!("`tls.{key}`"));
                }
                None => self.notes.lost(directive, "not a file with a fixed name"),
            }
        }
        if tls.get("cert").is_some() != tls.get("key").is_some() {
            tls.entries.retain(|(key, _)| key != "cert" && key != "key");
        }
        tls
    }

    /// Returns `tls` of an upstream. nginx does not verify certificates by default.
    fn upstream_tls(&mut self, scope: &Scope<'c>, url: &Url) -> Map {
        let module = if url.is_grpc { "grpc" } else { "proxy" };
        let name = |name: &str| format!("{module}_ssl_{name}");
        let mut tls = self.upstream_files(scope, module);
        if let Some(directive) = scope.last(&name("name")) {
            match directive.arg(0).and_then(|text| self.variables.constant(text, &scope.assigned)) {
                Some(name) if tidegate_rules::route::HostPattern::parse(&name).is_ok() && !name.starts_with('*') => {
                    tls.set("server_name", name);
                    self.notes.same(directive, "`tls.server_name`");
                }
                _ => self.notes.lost(directive, "the name depends on the request"),
            }
        }
        if !scope.is_on(&name("verify")) {
            tls.set("verify", false);
            tls.entries.retain(|(key, _)| key != "ca");
        }
        for (directive, reason) in [
            (scope.last(&name("verify")), "`tls.verify`"),
            (scope.last(&name("server_name")), "the name is always sent"),
            (scope.last(&name("session_reuse")), ""),
        ] {
            directive.into_iter().for_each(|directive| self.notes.same(directive, reason));
        }
        tls
    }
}

/// Returns the failures after which a request is sent again, and the words that the rule file does not have. Returns `None`
/// for `off`.
pub(crate) fn retried<'t>(words: impl Iterator<Item = &'t str>) -> Option<(Vec<Value>, Vec<&'t str>)> {
    let (mut on, mut others) = (Vec::new(), Vec::new());
    for word in words {
        match word {
            "off" => return None,
            "error" => on.extend(["connect", "unsent", "reset"].map(Value::from)),
            "timeout" => on.push("timeout".into()),
            "http_500" | "http_502" | "http_503" | "http_504" => on.push(word[5..].into()),
            other => others.push(other),
        }
    }
    Some((on, others))
}
