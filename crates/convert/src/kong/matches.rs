//! The conditions of routes, and the order in which Kong tries them.

use super::model::Route;
use crate::draft::Match;
use crate::draft::value::{Map, Value};
use crate::fields::{Fields, setting};
use crate::matching;
use crate::report::{Report, Verdict};
use crate::tree::{Entry, Node};

/// The most paths of a route.
const MAX_PATHS: usize = 1_000;

/// The most header fields of a route.
const MAX_FIELDS: usize = 100;

/// A route with its conditions.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    /// The conditions without paths.
    pub(super) matches: Match,
    /// The paths. Empty if all paths match.
    pub(super) paths: Vec<Path>,
    /// The part of the order that all paths share. The largest comes first.
    pub(super) order: Order,
    /// Decides between regular expressions. The largest comes first.
    pub(super) regex_priority: i64,
    pub(super) strips_path: bool,
    pub(super) preserves_host: bool,
}

/// A path of a route.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The pattern of the rule file.
    pub(super) pattern: String,
    /// The text that `strip_path` removes, if the pattern is a prefix other than `/`.
    pub(super) prefix: Option<String>,
    pub(super) is_regex: bool,
    /// The length in the source.
    pub(super) length: usize,
}

/// The position of a route among others, by its conditions. Paths come after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    /// The number of kinds of conditions.
    kinds: usize,
    /// The rank of these kinds: hosts, header fields, paths, methods.
    rank: u8,
    has_plain_hosts: bool,
    headers: usize,
}

// === impl Conditions ===

impl Conditions {
    /// Reads the conditions of a route. Returns `None` if the rule file cannot have them: then it would match other requests.
    pub(super) fn read(route: &Route<'_>, fields: &mut Fields<'_>, report: &mut Report) -> Option<Self> {
        let mut found = Self::default();
        let mut reader = Reader { route, report, is_lost: false, kinds: 0 };
        reader.hosts(fields, &mut found);
        reader.methods(fields, &mut found);
        reader.headers(fields, &mut found);
        reader.protocols(fields, &mut found);
        reader.paths(fields, &mut found);
        for key in ["snis", "sources", "destinations", "expression"] {
            reader.unsupported(key, fields);
        }
        found.order.kinds = reader.kinds;
        found.order.rank = rank(&found);
        let is_lost = reader.is_lost;
        (!is_lost).then_some(found)
    }
}

/// Reads conditions.
struct Reader<'r, 'n> {
    route: &'r Route<'n>,
    report: &'r mut Report,
    /// Whether the route cannot be converted.
    is_lost: bool,
    kinds: usize,
}

impl Reader<'_, '_> {
    fn take<'n>(&mut self, key: &str, fields: &mut Fields<'n>) -> Option<(&'n Entry, Vec<&'n str>)> {
        let entry = fields.take(key)?;
        let texts: Vec<_> = entry.value.one_or_more().iter().filter_map(Node::text).collect();
        self.kinds += usize::from(!texts.is_empty());
        (!texts.is_empty()).then_some((entry, texts))
    }

    fn add(&mut self, entry: &Entry, verdict: Verdict, reason: &str) {
        self.report.add(&self.route.entity.place_of(entry), verdict, setting(entry), reason);
    }

    fn hosts(&mut self, fields: &mut Fields<'_>, found: &mut Conditions) {
        let Some((entry, texts)) = self.take("hosts", fields) else { return };
        found.order.has_plain_hosts = texts.iter().all(|text| !text.contains('*'));
        found.matches.hosts = texts.iter().filter_map(|text| matching::host(text)).collect();
        found.matches.hosts.sort_unstable();
        found.matches.hosts.dedup();
        if found.matches.hosts.is_empty() {
            self.is_lost = true;
            self.add(entry, Verdict::Lost, "no host has a form of the rule file; the route is left out");
        } else if texts.iter().all(|text| matching::host(text).is_some()) {
            self.add(entry, Verdict::Same, "`match.host`");
        } else {
            self.add(entry, Verdict::Lost, "a host with `*` at its end has no form in the rule file");
        }
    }

    fn methods(&mut self, fields: &mut Fields<'_>, found: &mut Conditions) {
        let Some((entry, texts)) = self.take("methods", fields) else { return };
        found.matches.methods = texts.iter().filter_map(|text| matching::method(text)).collect();
        match found.matches.methods.len() == texts.len() {
            true => self.add(entry, Verdict::Same, "`match.methods`"),
            false => {
                self.is_lost |= found.matches.methods.is_empty();
                self.add(entry, Verdict::Lost, "a method is not valid");
            }
        }
    }

    fn headers(&mut self, fields: &mut Fields<'_>, found: &mut Conditions) {
        let Some(entry) = fields.take("headers") else { return };
        for header in entry.value.entries().iter().take(MAX_FIELDS) {
            let texts: Vec<_> = header.value.one_or_more().iter().filter_map(Node::text).collect();
            let values: Option<Vec<Value>> = texts.iter().map(|text| header_value(text)).collect();
            let name = header.key.to_ascii_lowercase();
            match values.filter(|values| !values.is_empty() && crate::header_fields::is_name(&name)) {
                Some(values) => found.matches.headers.set(&name, values),
                None => self.is_lost = true,
            }
        }
        found.order.headers = found.matches.headers.entries.len();
        self.kinds += usize::from(found.order.headers > 0);
        match self.is_lost {
            true => self.add(entry, Verdict::Lost, "a condition has no form in the rule file; the route is left out"),
            false => self.add(entry, Verdict::Stricter, "values match in the same case of letters only"),
        }
    }

    fn protocols(&mut self, fields: &mut Fields<'_>, found: &mut Conditions) {
        let status = fields.take("https_redirect_status_code");
        let Some(entry) = fields.take("protocols") else { return };
        let texts: Vec<_> = entry.value.one_or_more().iter().filter_map(Node::text).collect();
        let has = |words: &[&str]| texts.iter().any(|text| words.contains(text));
        match (has(&["http", "grpc", "ws"]), has(&["https", "grpcs", "wss"])) {
            (true, true) => self.add(entry, Verdict::Same, "the route has no `match.scheme`"),
            (true, false) => {
                found.matches.more.set("scheme", "http");
                self.add(entry, Verdict::Same, "`match.scheme`");
            }
            (false, true) => {
                found.matches.more.set("scheme", "https");
                self.add(entry, Verdict::Same, "`match.scheme`; other requests get 404 instead of a redirect or 426");
            }
            (false, false) => {
                self.is_lost = true;
                self.add(entry, Verdict::Lost, "only HTTP is forwarded; the route is left out");
            }
        }
        if let Some(entry) = status.filter(|entry| entry.value.number() != Some(426)) {
            self.add(entry, Verdict::Lost, "add a route with `scheme: http` and `redirect`");
        }
    }

    fn paths(&mut self, fields: &mut Fields<'_>, found: &mut Conditions) {
        let Some((entry, texts)) = self.take("paths", fields) else { return };
        let forms: Vec<_> = texts.iter().take(MAX_PATHS).filter_map(|text| Path::all_of(text)).collect();
        let (count, is_wider) = (forms.len(), forms.iter().any(|(_, is_wider)| *is_wider));
        found.paths = forms.into_iter().flat_map(|(paths, _)| paths).collect();
        if found.paths.is_empty() {
            self.is_lost = true;
            self.add(entry, Verdict::Lost, "no path has a form of the rule file; the route is left out");
        } else if count < texts.len() {
            self.add(entry, Verdict::Lost, "a path has no form in the rule file");
        } else if is_wider {
            self.add(entry, Verdict::Looser, "the pattern matches more paths than the regular expression");
        } else if found.paths.iter().all(|path| path.pattern == "/**") {
            self.add(entry, Verdict::Same, "`match.path`");
        } else {
            self.add(entry, Verdict::Stricter, "whole segments: `/a/**` does not match `/ab`");
        }
    }

    fn unsupported(&mut self, key: &str, fields: &mut Fields<'_>) {
        if let Some(entry) = fields.take(key).filter(|entry| !entry.value.one_or_more().is_empty()) {
            self.is_lost = true;
            self.add(entry, Verdict::Lost, "the rule file has no such condition; the route is left out");
        }
    }
}

/// Returns the rank of the kinds of conditions among equally many.
fn rank(conditions: &Conditions) -> u8 {
    let matches = &conditions.matches;
    let kinds = [
        !matches.methods.is_empty(),
        !conditions.paths.is_empty(),
        !matches.headers.is_empty(),
        !matches.hosts.is_empty(),
    ];
    (0..).zip(kinds).map(|(bit, has)| u8::from(has) << bit).sum()
}

/// Returns the condition of a value of a header field.
fn header_value(text: &str) -> Option<Value> {
    match text.strip_prefix("~*") {
        Some(regex) => matching::contained(&format!("(?i){regex}")),
        None => Some(text.into()),
    }
}

// === impl Path ===

impl Path {
    /// Returns the patterns of a path, and whether they also match other paths.
    fn all_of(text: &str) -> Option<(Vec<Self>, bool)> {
        // Before version 3.0, paths with these characters were regular expressions.
        let is_regex = text.starts_with('~') || text.contains(['(', '\\', '[', '^', '|']) || text.contains(".*");
        let length = text.len();
        let path = |pattern: String, is_exact: bool| {
            let prefix = pattern.strip_suffix("/**").filter(|prefix| !prefix.is_empty() && is_exact).map(str::to_owned);
            Self { pattern, prefix, is_regex, length }
        };
        if is_regex {
            let form = matching::path_of_regex(text.strip_prefix('~').unwrap_or(text))?;
            // Only the text of a literal prefix can be removed.
            let paths = form.paths.into_iter().map(|pattern| {
                let is_exact =
                    !form.is_wider && !text.ends_with(".*") && !pattern.contains(['{', '*']) || pattern == "/**";
                path(pattern, is_exact)
            });
            return Some((paths.collect(), form.is_wider));
        }
        Some((vec![path(matching::below(text)?, true)], false))
    }
}

/// Returns a map with the rewriting of a path and a host.
pub(super) fn rewrite(strip: Option<&str>, add: Option<&str>, preserves_host: bool) -> Map {
    let mut map = Map::default();
    map.set_some("strip_prefix", strip);
    map.set_some("add_prefix", add);
    map.set_some("host", (!preserves_host).then_some("upstream"));
    map
}
