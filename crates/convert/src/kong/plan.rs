//! The counters of a limiting plugin, and their limits in the rule file.

use std::num::NonZeroU32;

use super::model::Plugin;
use crate::draft::value::Map;
use crate::draft::{Algorithm, Interval, Limit, Match, Mode};
use crate::report::{Place, Report, Verdict};
use crate::variables;

/// The counters of a plugin.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) by: By,
    /// The place and the text of the setting that selects `by`.
    pub(super) by_setting: (Place, String),
    pub(super) windows: Vec<Window>,
    pub(super) on_store_failure: Option<&'static str>,
    /// The `reject` of routes.
    pub(super) reject: Map,
    pub(super) hides_headers: bool,
    /// How the clients of the rule file differ, over all routes.
    pub(super) clients: Option<(Verdict, &'static str)>,
}

/// A number of requests in a time.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) name: String,
    pub(super) rate: u64,
    pub(super) interval: Interval,
    pub(super) algorithm: Algorithm,
    pub(super) place: Place,
}

/// The part of a request that a plugin counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The consumer, or else the credential, or else the address.
    Consumer,
    /// The credential, or else the address.
    Credential,
    /// The group of the consumer, or else the address.
    Group,
    Ip,
    Service,
    Header(String),
    /// All requests with this path together, and other requests by address.
    Path(String),
}

/// How a route identifies consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Auth {
    None,
    /// By API keys, which a request may lack if `is_optional`.
    Keys {
        is_optional: bool,
    },
    /// By a plugin that is not converted.
    Other,
}

// === impl Plan ===

impl Plan {
    pub(super) fn new(by: By, by_setting: (Place, String)) -> Self {
        let (windows, reject) = (Vec::new(), Map::default());
        Self { by, by_setting, windows, on_store_failure: None, reject, hides_headers: false, clients: None }
    }

    /// Returns the limits for routes that identify consumers in this way.
    pub(super) fn limits(&self, auth: Auth) -> Vec<Limit> {
        self.windows.iter().flat_map(|window| self.limits_of(window, auth)).collect()
    }

    fn limits_of(&self, window: &Window, auth: Auth) -> Vec<Limit> {
        let base = Limit {
            name: window.name.clone(),
            rate: Some(window.rate),
            interval: Some(window.interval),
            algorithm: Some(window.algorithm),
            on_store_failure: self.on_store_failure,
            place: Some(window.place.clone()),
            ..Limit::default()
        };
        let per = |source: &str, on_missing_client| Limit {
            mode: Mode::PerClient,
            client: vec![source.to_owned()],
            on_missing_client,
            ..base.clone()
        };
        let key = match auth {
            Auth::Keys { .. } => Some("ip"),
            Auth::None | Auth::Other => None,
        };
        match (&self.by, key) {
            (By::Service, _) => vec![base],
            (By::Header(name), _) => {
                let mut limit = per(&format!("header:{name}"), Some("ip"));
                limit.more = Map::of([("duplicates", "first".into())]);
                vec![limit]
            }
            (By::Path(path), _) => by_path(&base, &per("ip", None), path),
            (By::Consumer, Some(_)) => vec![per("key:id", key)],
            (By::Credential, Some(_)) => vec![per("key:credential", key)],
            (By::Group, Some(_)) => vec![per("key:group", key)],
            (By::Ip | By::Consumer | By::Credential | By::Group, _) => vec![per("ip", None)],
        }
    }
}

/// Returns a limit of all requests with a path, and a limit of all others by address.
fn by_path(base: &Limit, other: &Limit, path: &str) -> Vec<Limit> {
    let when = Match { paths: vec![path.to_owned()], ..Match::default() };
    let name = format!("{}-others", base.name);
    let not = Match { not: vec![when.clone()], ..Match::default() };
    vec![Limit { when, ..base.clone() }, Limit { name, when: not, ..other.clone() }]
}

// === impl By ===

impl By {
    /// Returns how clients differ from Kong's clients.
    pub(super) fn difference(&self, auth: Auth) -> Option<(Verdict, &'static str)> {
        match (self, auth) {
            (Self::Consumer | Self::Credential | Self::Group, Auth::None) => {
                Some((Verdict::Same, "by address, since no plugin identifies consumers"))
            }
            (Self::Consumer | Self::Credential | Self::Group, Auth::Other) => {
                Some((Verdict::Lost, "by address, since the plugin that identifies consumers is not converted"))
            }
            _ => None,
        }
    }

    /// Returns whether limits count by address for some requests.
    pub(super) fn uses_address(&self) -> bool {
        *self != Self::Service
    }
}

/// Returns a rate for all replicas, with the verdict. Kong counts in each of them.
pub(super) fn of_replicas(rate: u64, replicas: NonZeroU32) -> (u64, Verdict, String) {
    const MAX: u64 = 2_147_483_648;
    let sum = rate.saturating_mul(replicas.get().into()).min(MAX);
    match replicas.get() {
        1 => (sum, Verdict::Same, String::new()),
        count => {
            (sum, Verdict::Looser, format!("the sum of {count} replicas, also for clients that reach only one of them"))
        }
    }
}

/// Returns the rejection of a plugin: `error_code` and `error_message`.
pub(super) fn reject(plugin: &Plugin<'_>, fields: &mut crate::fields::Fields<'_>, report: &mut Report) -> Map {
    let mut reject = Map::default();
    let entity = plugin.entity;
    let code = fields.take("error_code");
    let message = fields.take("error_message");
    let status = code.and_then(|entry| entry.value.number()).filter(|status| (400..600).contains(status));
    reject.set_some("status", status.filter(|status| *status != 429));
    if let Some(text) = message.and_then(|entry| entry.value.text()) {
        reject.set("body", variables::literal(&serde_json::json!({ "message": text }).to_string()));
    } else if !reject.is_empty() {
        reject.set("body", r#"{"message":"API rate limit exceeded"}"#);
    }
    for (entry, is_known) in [(code, status.is_some()), (message, true)] {
        let Some(entry) = entry else { continue };
        let place = entity.place_of(entry);
        match is_known {
            true => report.same(&place, plugin.setting(&entry.key), "`reject`"),
            false => report.lost(&place, plugin.setting(&entry.key), "not a status from 400 to 599"),
        }
    }
    reject
}
