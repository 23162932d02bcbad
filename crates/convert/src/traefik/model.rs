//! The routers, services, middlewares and entry points of all files.

use std::collections::HashMap;

use super::documents::Document;
use crate::fields::{Fields, Spelling, setting};
use crate::report::{Place, Report};
use crate::sources::Text;
use crate::tree::{Entry, Node};

/// Sections of static configurations that have nothing to do with the rule file.
const UNRELATED: [&str; 17] = [
    "providers",
    "api",
    "log",
    "accessLog",
    "metrics",
    "tracing",
    "ping",
    "global",
    "certificatesResolvers",
    "pilot",
    "hub",
    "experimental",
    "hostResolver",
    "core",
    "spiffe",
    "ocsp",
    "version",
];

/// A named item of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'n> {
    pub(super) text: &'n Text,
    pub(super) entry: &'n Entry,
}

/// Items by name. Names of labels have no case.
#[derive(Debug, Default)]
pub(super) struct Named<'n> {
    exact: HashMap<&'n str, Item<'n>>,
    lower: HashMap<String, Item<'n>>,
}

/// The configuration.
#[derive(Debug, Default)]
pub(super) struct Model<'n> {
    pub(super) routers: Vec<Item<'n>>,
    pub(super) services: Named<'n>,
    pub(super) middlewares: Named<'n>,
    pub(super) transports: Named<'n>,
    pub(super) entry_points: Vec<Item<'n>>,
    /// The names of the TLS options that require certificates of clients.
    pub(super) client_certificates: Vec<&'n str>,
}

// === impl Model ===

impl<'n> Model<'n> {
    /// Collects the items of all documents, and reports sections that are not converted.
    pub(super) fn of(documents: &'n [Document], report: &mut Report) -> Self {
        let mut model = Self::default();
        for Document { text, root } in documents {
            let mut sections = Fields::of(root, Spelling::Relaxed);
            sections.skip(&UNRELATED);
            if let Some(http) = sections.take("http") {
                model.add(text, &http.value, report);
            }
            let points = sections.take("entryPoints").map_or(&[][..], |entry| entry.value.entries());
            model.entry_points.extend(points.iter().map(|entry| Item { text, entry }));
            if let Some(transport) = sections.take("serversTransport") {
                let reason = "see `tls` and `timeouts` of the upstreams";
                report.lost(&text.place(transport.line), "serversTransport", reason);
            }
            let options = root.at(&["tls", "options"]).map_or(&[][..], Node::entries);
            let requires = |entry: &&Entry| {
                let kind = entry.value.at(&["clientAuth", "clientAuthType"]).and_then(Node::text);
                kind.is_some_and(|kind| kind.starts_with("Require"))
            };
            model.client_certificates.extend(options.iter().filter(requires).map(|entry| entry.key.as_str()));
            for entry in sections.rest() {
                let reason = match entry.key.as_str() {
                    "tcp" | "udp" => "only HTTP is forwarded",
                    "tls" => "write the certificates to `tls` of `listen`",
                    _ => "the rule file has no such section",
                };
                report.lost(&text.place(entry.line), &entry.key, reason);
            }
        }
        model
    }

    fn add(&mut self, text: &'n Text, http: &'n Node, report: &mut Report) {
        let mut sections = Fields::of(http, Spelling::Relaxed);
        let mut items = |key: &str| {
            let entries = sections.take(key).map_or(&[][..], |entry| entry.value.entries());
            entries.iter().map(|entry| Item { text, entry }).collect::<Vec<_>>()
        };
        self.routers.extend(items("routers"));
        self.services.extend(items("services"));
        self.middlewares.extend(items("middlewares"));
        self.transports.extend(items("serversTransports"));
        sections.report_rest(text, "the rule file has no such section", report);
    }
}

// === impl Named ===

impl<'n> Named<'n> {
    fn extend(&mut self, items: Vec<Item<'n>>) {
        for item in items {
            self.exact.insert(&item.entry.key, item);
            self.lower.insert(item.entry.key.to_ascii_lowercase(), item);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Item<'n>> {
        self.exact.get(name).or_else(|| self.lower.get(&name.to_ascii_lowercase())).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Item<'n>> + '_ {
        self.exact.values().copied()
    }
}

// === impl Item ===

impl<'n> Item<'n> {
    /// Returns the place of the item.
    pub(super) fn place(self) -> Place {
        self.text.place(self.entry.line)
    }

    /// Returns the entries of the item.
    pub(super) fn fields(self) -> Fields<'n> {
        Fields::of(&self.entry.value, Spelling::Relaxed)
    }

    /// Returns the text of a setting of the item, for findings.
    pub(super) fn setting(self, entry: &Entry) -> String {
        format!("{}.{}", self.entry.key, setting(entry))
    }

    /// Returns the place of a setting of the item.
    pub(super) fn place_of(self, entry: &Entry) -> Place {
        self.text.place(entry.line)
    }
}

/// Returns the texts of a list, which can be a text with commas.
pub(super) fn texts(node: &Node) -> Vec<&str> {
    let texts = node.one_or_more().iter().filter_map(Node::text);
    texts.flat_map(|text| text.split(',')).map(str::trim).filter(|text| !text.is_empty()).collect()
}

/// Returns a name without the provider after it: `api@file`.
pub(super) fn local_name(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}

/// Returns a duration such as `10s`, `1m30s`, `100ms`, or a number of seconds. In milliseconds.
pub(super) fn duration(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 6] =
        [("ms", 1.0), ("us", 0.001), ("ns", 0.000_001), ("h", 3_600_000.0), ("m", 60_000.0), ("s", 1_000.0)];
    const MAX: f64 = 366.0 * 86_400_000.0;
    let (mut rest, mut millis) = (text.trim(), 0.0);
    if let Ok(seconds) = rest.parse::<f64>() {
        (rest, millis) = ("", seconds * 1_000.0);
    }
    while !rest.is_empty() {
        let length = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, tail) = rest.split_at(length);
        let (unit, factor) = UNITS.into_iter().find(|(unit, _)| tail.starts_with(unit))?;
        millis += number.parse::<f64>().ok()? * factor;
        rest = &tail[unit.len()..];
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
    (0.0..=MAX).contains(&millis).then(|| millis.ceil() as u64)
}
