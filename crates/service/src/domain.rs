//! A domain: a tree of rules with their limits.

use smallvec::SmallVec;
use tidegate_limit::Mode;
use tidegate_rules::charge::{ClientId, Limiter};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::settings::store::BucketNames;

use crate::call::{Descriptor, Entry, Override};
use crate::charges::CallCharges;
use crate::client::{client_of, client_of_all};
use crate::effect::Found;
use crate::found::FoundLimits;
use crate::limit::{DomainLimit, LimitBuilder};
use crate::modes::Modes;
use crate::name::{escaped, rule_name};
use crate::trace::{NamedLimit, Trace};
use crate::tree::replaced::Replaced;
use crate::tree::rule::Rule;
use crate::tree::{Duplicate, Level, Node, Spread};
use crate::unit::{Unit, Window};
use crate::{Call, status::CurrentLimit};

/// The rules of one application. Calls to other domains do not share its buckets.
#[derive(Debug, PartialEq, Eq)]
pub struct Domain {
    name: String,
    route: String,
    pub(crate) tree: Level,
    pub(crate) found: Vec<DomainLimit>,
    limits: Vec<Limit>,
    /// The position of the first limit of those that callers set.
    overrides: usize,
    modes: Modes,
}

/// The error of invalid rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// Two rules of a level match the same entries.
    #[error("two rules have the name `{0}`")]
    Duplicate(String),
    /// There are too many limits.
    #[error("a domain has at most {} limits", Domain::MAX_LIMITS)]
    TooManyLimits,
}

/// The rules above a level.
struct Above<'r> {
    /// The name of the last rule; empty for the first level.
    name: &'r str,
    /// The keys whose values are counted separately.
    client: &'r str,
    mode: Mode,
}

/// The rules while a domain is built.
struct Builder<'w> {
    limits: LimitBuilder<'w>,
    found: Vec<DomainLimit>,
}

impl Domain {
    /// The maximum number of limits.
    pub const MAX_LIMITS: usize = 50_000;

    /// Creates a domain from the rules of its first level. `names` are the names of buckets in the store.
    ///
    /// # Errors
    /// Two rules of a level have the same key and value, or there are more than [`MAX_LIMITS`](Self::MAX_LIMITS).
    pub fn new(name: String, rules: &[Rule], window: Window, names: &BucketNames) -> Result<Self, DomainError> {
        // A slash: the names of routes have none, so no route has the same buckets.
        let route = format!("/{}", escaped(&name));
        let tag = names.tag(&route);
        let limits = LimitBuilder { tag: &tag, window, limits: Vec::new() };
        let mut builder = Builder { limits, found: Vec::new() };
        let tree = builder.level(rules, &Above { name: "", client: "", mode: Mode::Overall })?;
        let Builder { mut limits, found } = builder;
        if found.len() > Self::MAX_LIMITS {
            return Err(DomainError::TooManyLimits);
        }
        let overrides = limits.add_overrides();
        Ok(Self { name, route, tree, found, limits: limits.limits, overrides, modes: Modes::default() })
    }

    /// Sets the modes of all limits.
    pub fn with_modes(mut self, modes: Modes) -> Self {
        self.limits.iter_mut().for_each(|limit| limit.shadow |= modes.shadow);
        Self { modes, ..self }
    }

    /// Returns the modes of all limits.
    pub fn modes(&self) -> Modes {
        self.modes
    }

    /// Returns the name that calls use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name that stands for a route in metrics, logs and the admin API: `/` and the escaped name of the domain. No
    /// route has this name.
    pub fn route(&self) -> &str {
        &self.route
    }

    /// Returns the limits with buckets, including the limits that callers set.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Returns the limit with buckets that has this name. Limits that callers set have the name of their unit after `=`.
    pub fn limit(&self, name: &str) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.name == name)
    }

    /// Returns the limits that callers set, one for each unit. They count all entries of a descriptor separately.
    pub fn caller_limits(&self) -> &[Limit] {
        self.limits.get(self.overrides..).unwrap_or_default()
    }

    /// Returns the limits of the rules, in the order of the configuration.
    pub fn rule_limits(&self) -> impl Iterator<Item = NamedLimit<'_>> {
        self.found.iter().map(|found| self.named(found))
    }

    /// Returns `true` if descriptors find the limits with the same names in another domain, and the same limits replace others.
    pub fn has_equal_search(&self, other: &Self) -> bool {
        let key = |found: &DomainLimit| {
            let rate = found.position.is_none().then_some(found.rule.rate);
            (found.name.clone(), found.rule.name.clone(), found.rule.replaces.clone(), rate)
        };
        self.tree == other.tree && self.found.iter().map(key).eq(other.found.iter().map(key))
    }

    /// Returns the charges of a call. The call has passed [`validate`](Call::validate).
    pub fn charges(&self, call: &Call<'_>) -> CallCharges<'_> {
        CallCharges::new(self.find_limits(call))
    }

    /// Returns the limits of a call, before its charges. The call has passed [`validate`](Call::validate).
    pub fn find_limits(&self, call: &Call<'_>) -> FoundLimits<'_> {
        let found: SmallVec<_> = call.descriptors.iter().map(|descriptor| self.find(descriptor)).collect();
        let permits = call.descriptors.iter().map(|descriptor| call.permits(descriptor)).collect();
        let replaced = Replaced::new(found.iter().filter_map(Found::rule));
        FoundLimits { limits: &self.limits, modes: self.modes, found, permits, replaced }
    }

    /// Returns how a descriptor finds its limit.
    pub fn trace(&self, entries: &[Entry<'_>]) -> Trace<'_> {
        let mut rules = Vec::new();
        let path = self.tree.find(entries, |found| rules.push(found));
        let limit = path.as_ref().and_then(|path| path.last()).and_then(|node| self.found.get(node.limit?));
        Trace { rules, limit: limit.map(|found| self.named(found)) }
    }

    fn named<'d>(&'d self, found: &'d DomainLimit) -> NamedLimit<'d> {
        let limit = found.position.and_then(|position| self.limits.get(position));
        NamedLimit {
            name: &found.name,
            rule_name: found.rule_name.as_deref(),
            client: &found.client,
            rule: &found.rule,
            limit,
        }
    }

    /// Returns the limit of a descriptor.
    fn find(&self, descriptor: &Descriptor<'_>) -> Found<'_> {
        let path = self.tree.find(&descriptor.entries, |_| {});
        let rule = path.as_ref().and_then(|path| path.last()).and_then(|node| self.found.get(node.limit?));
        // A limit can count all values together, also those that its rules would count separately.
        let is_overall = || rule.and_then(|found| found.rule.mode) == Some(Mode::Overall);
        let client = || path.as_ref().filter(|_| !is_overall()).and_then(|path| client_of(path, &descriptor.entries));
        if let Some(limit) = descriptor.limit {
            return self.overridden(limit, rule, client, || client_of_all(&descriptor.entries));
        }
        let Some(DomainLimit { rule, position, .. }) = rule else { return Found::Nothing };
        let Some(requests_per_unit) = rule.rate.requests() else { return Found::Unlimited(rule) };
        let current = CurrentLimit { requests_per_unit, unit: rule.rate.unit(), name: rule.name.as_deref() };
        let limiter = position.map(|position| self.limits[position].limiter.clone());
        Found::Limited { rule: Some(rule), current, position: *position, limiter, client: client(), change: None }
    }

    /// Returns a limit that the caller sets. It has the buckets of a rule with the same unit, if there is one: then a client
    /// has one bucket, whether the caller sets its limit or not. A shadow differs, since the limit of the caller is enforced.
    fn overridden(
        &self,
        Override { requests_per_unit, unit }: Override,
        rule: Option<&DomainLimit>,
        client: impl Fn() -> Option<ClientId>,
        client_of_all: impl Fn() -> ClientId,
    ) -> Found<'_> {
        let is_same = |limit: &&DomainLimit| limit.rule.rate.unit() == Some(unit) && !limit.rule.shadow;
        let (position, client) = match rule.filter(is_same).and_then(|limit| limit.position) {
            Some(position) => (position, client()),
            None => (self.overrides + unit_number(unit), Some(client_of_all())),
        };
        let at_rate = |limit: &Limit| Limiter::at_rate(&limit.limiter, requests_per_unit).into();
        let limiter = (requests_per_unit > 0).then(|| self.limits.get(position).map(at_rate)).flatten();
        let current = CurrentLimit { requests_per_unit, unit: Some(unit), name: None };
        let position = limiter.as_ref().map(|_| position);
        Found::Limited { rule: None, current, position, limiter, client, change: None }
    }
}

fn unit_number(unit: Unit) -> usize {
    Unit::ALL.iter().position(|other| *other == unit).unwrap_or_default()
}

impl Builder<'_> {
    /// Builds a level. The limits of the level have the mode of the rules above it, unless they count each value.
    fn level(&mut self, rules: &[Rule], above: &Above<'_>) -> Result<Level, DomainError> {
        let mut level = Level::default();
        for rule in rules {
            let name = rule_name(above.name, rule);
            let spread = Spread::new(rule);
            let (mode, client) = match (spread, above.client) {
                (Spread::Shared, client) => (above.mode, client.to_owned()),
                (_, "") => (Mode::PerClient, rule.key.clone()),
                (_, client) => (Mode::PerClient, format!("{client}, {}", rule.key)),
            };
            let limit = rule.limit.clone().map(|limit| {
                self.found.push(self.limits.add(&name, (mode, &client), limit));
                self.found.len() - 1
            });
            let next = self.level(&rule.rules, &Above { name: &name, client: &client, mode })?;
            let added = level.add(rule, Node { name: name.as_str().into(), spread, limit, next });
            added.map_err(|Duplicate| DomainError::Duplicate(name))?;
        }
        Ok(level)
    }
}
