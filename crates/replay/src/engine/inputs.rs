//! The inputs of the rules that a log lacks.

use hashbrown::HashSet;
use http::HeaderName;
use http::header::{HOST, HeaderMap};

use crate::log::recorded::RecordedValues;
use tidegate_limit::Mode;
use tidegate_rules::client::ClientSource;
use tidegate_rules::limits::cost::Cost;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::identity::IdentityValue;
use tidegate_rules::route::{Matcher, Route};
use tidegate_rules::rules::Rules;

/// The fields that the rules read, and whether the log has had them.
#[derive(Debug)]
pub(crate) struct Inputs {
    fields: Vec<(HeaderName, bool)>,
    /// Whether a condition or a client is the host.
    reads_host: bool,
}

/// The input of a limit that logs may lack. Without it, the limit is not replayed, or only for some requests.
#[derive(Debug)]
pub(crate) enum Needs {
    /// All logs have the input.
    Nothing,
    /// The fields that identify clients.
    Fields(Vec<HeaderName>),
    /// Sources of clients that no log has.
    Unlogged(Vec<String>),
    /// Values of bodies, which no log has.
    Bodies(Vec<String>),
    /// Values of verified credentials, which only recordings have.
    Credentials(Vec<IdentityValue>),
    /// The field of a trusted proxy that sets the rate. No log shows whether a trusted proxy has sent it.
    TrustedField(HeaderName),
    /// The rate in Redis.
    AdoptedRate,
}

impl Inputs {
    pub(crate) fn new(rules: &Rules) -> Self {
        let mut names = HashSet::new();
        let mut add = |name: &HeaderName| _ = names.insert(name.clone());
        for limit in rules.routes.iter().flat_map(|route| &route.limits) {
            if limit.mode() == Mode::PerClient {
                limit.client.fields(&mut add);
            }
            if let Cost::Header(cost) = &limit.permits {
                add(&cost.name);
            }
        }
        matchers(rules).for_each(|matcher| matcher.fields(&mut add));
        let reads_field = names.remove(&HOST);
        let by_host = |limit: &Limit| limit.mode() == Mode::PerClient && reads_host(&limit.client);
        let reads_host = reads_field
            || matchers(rules).any(matches_host)
            || rules.routes.iter().flat_map(|route| &route.limits).any(by_host);
        let mut fields: Vec<_> = names.into_iter().map(|name| (name, false)).collect();
        fields.sort_by(|(left, _), (right, _)| left.as_str().cmp(right.as_str()));
        Self { fields, reads_host }
    }

    /// Returns the names of all fields that the rules read. The host is always kept.
    pub(crate) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().map(|(name, _)| name)
    }

    /// Returns `true` if a condition or a client is the host.
    pub(crate) fn reads_host(&self) -> bool {
        self.reads_host
    }

    /// Records the fields of a line, and those that recordings have.
    pub(crate) fn record(&mut self, headers: &HeaderMap, recorded: &RecordedValues) {
        for (name, is_known) in self.fields.iter_mut().filter(|(_, is_known)| !is_known) {
            *is_known = headers.contains_key(&*name) || recorded.fields.contains(&*name);
        }
    }

    /// Returns `true` if the log has had none of the fields so far.
    pub(crate) fn lacks(&self, fields: &[HeaderName]) -> bool {
        let is_known =
            |name: &HeaderName| *name == HOST || self.fields.iter().any(|(field, is_known)| *is_known && field == name);
        !fields.iter().any(is_known)
    }

    /// Returns the fields that the log did not have.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().filter(|(_, is_known)| !is_known).map(|(name, _)| name)
    }
}

impl Needs {
    pub(crate) fn of(limit: &Limit) -> Self {
        if limit.limiter.quota.is_adopted() {
            return Self::AdoptedRate;
        }
        let by = limit.rates.as_ref().map(|rates| &rates.by);
        if let Some(IdentityValue::Header(name)) = by {
            return Self::TrustedField(name.clone());
        }
        let sources = if limit.mode() == Mode::PerClient { limit.client.sources() } else { Vec::new() };
        let of_client = sources.iter().filter_map(|source| match source {
            ClientSource::Identity(value) => Some(value.clone()),
            _ => None,
        });
        let mut values: Vec<_> = of_client.chain(by.cloned()).collect();
        values.extend(limit.reads_key_tier.then_some(IdentityValue::KeyTier));
        let unlogged = sources.iter().filter(|source| is_unlogged(source));
        let unlogged: Vec<_> = unlogged.map(ToString::to_string).collect();
        if !unlogged.is_empty() {
            return Self::Unlogged(unlogged);
        }
        let of_body = sources.iter().filter(|source| source.reads_body()).map(ToString::to_string);
        let of_body = of_body.chain(limit.body_conditions.iter().map(|pointer| format!("json:{pointer}")));
        let usage = matches!(limit.permits, Cost::Usage(_)).then(|| "usage".to_owned());
        let of_body: Vec<_> = of_body.chain(usage).collect();
        if !of_body.is_empty() {
            return Self::Bodies(of_body);
        }
        if !values.is_empty() {
            return Self::Credentials(values);
        }
        let mut fields = Vec::new();
        sources.iter().for_each(|source| source.fields(&mut |name| fields.push(name.clone())));
        if fields.is_empty() { Self::Nothing } else { Self::Fields(fields) }
    }

    /// Returns what the log lacks, for a note about requests that the limit does not count.
    pub(crate) fn lacking(&self, limit: &Limit) -> String {
        let list = |names: Vec<String>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let sources = || limit.client.sources().iter().map(ToString::to_string).collect();
        match self {
            Self::Nothing | Self::Fields(_) => format!("the log lacks the client, {}", list(sources())),
            Self::Unlogged(names) => format!("no log has the client, {}", list(names.clone())),
            Self::Bodies(names) => format!("no log has bodies, and the limit reads {}", list(names.clone())),
            Self::Credentials(values) => {
                let values = list(values.iter().map(ToString::to_string).collect());
                format!("only recordings have values of verified credentials, {values}")
            }
            Self::TrustedField(name) => {
                format!("no log shows whether a trusted proxy has sent `{name}`, which sets the rate")
            }
            Self::AdoptedRate => "the rate is in Redis".to_owned(),
        }
    }
}

/// Returns the routes whose conditions read the host.
pub(crate) fn host_routes(rules: &Rules) -> impl Iterator<Item = &Route> {
    rules.routes.iter().filter(|route| matches_host(&route.matcher))
}

/// Returns `true` if a client is identified by the host.
pub(crate) fn reads_host(client: &ClientSource) -> bool {
    client.sources().iter().any(|source| match source {
        ClientSource::Header(name) => *name == HOST,
        source => matches!(source, ClientSource::Host),
    })
}

fn matches_host(matcher: &Matcher) -> bool {
    !matcher.hosts.is_empty() || matcher.not.iter().any(matches_host)
}

fn matchers(rules: &Rules) -> impl Iterator<Item = &Matcher> {
    rules.routes.iter().map(|route| &route.matcher).chain(rules.when.iter().map(|when| &when.matcher))
}

/// Returns `true` if neither logs nor recordings have this source.
fn is_unlogged(source: &ClientSource) -> bool {
    use ClientSource::{Extension, Function, Identity, Tls};
    matches!(source, Tls(_) | Extension | Function(_) | Identity(IdentityValue::Extension(_)))
}
