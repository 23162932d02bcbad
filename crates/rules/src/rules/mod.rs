//! The rules of a file. They derive from a request its facts, its route and its charges.

mod calls;
mod charges;
mod decisions;
mod named_client;
mod named_rate;
mod names;
mod verify;
mod when;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method, Uri};

pub use self::charges::{Charges, LimitCharge, Positions};
pub use self::named_client::NamedClientError;
#[doc(hidden)]
pub use self::named_rate::{KnownRate, NamedClient};
pub use self::verify::{Completion, Identified, Verifier, Verify, is_incomplete};
pub use self::when::{Unmet, When};
use crate::charge::{Charge, ChargeKind, ClientId, Turn};
use crate::client::{AddressRules, ClientError, ClientSource};
use crate::limits::concurrency::Concurrency;
use crate::limits::cost::{Cost, CostError};
use crate::limits::rule::{Limit, OnMissingClient};
use crate::request::facts::{BadRequest, Facts};
pub use crate::request::facts::{BodyBytes, HostRequirement, Requests};
use crate::request::identity::IdentityValue;
pub use crate::request::path::{EncodedSlash, Slashes};
use crate::request::sanitize::FieldFilter;
pub use crate::request::sanitize::{BadPattern, Pattern, Strip, Underscores};
use crate::route::{FixedResponse, Route, Routes};
use tidegate_limit::Mode;

/// Everything that a rule file configures about requests, without any IO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// How requests are read.
    pub requests: Requests,
    /// How client addresses are found.
    pub addresses: AddressRules,
    /// The fields to remove before anything else is read.
    pub fields: FieldRules,
    /// Where requests contain credentials.
    pub credentials: Credentials,
    /// The response to banned clients; `None` for problem details.
    pub bans: Option<Arc<FixedResponse>>,
    /// The routes, in the order of the rule file.
    pub routes: Routes,
    /// The conditions of limits, at the positions that the limits have.
    pub when: Vec<When>,
}

/// Where requests contain credentials: fields, cookies or query parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The source of API keys. `None` if the rule file has no keys.
    pub key: Option<ClientSource>,
    /// The source of tokens. `None` if the rule file has no key set.
    pub token: Option<ClientSource>,
    /// The realm of users with passwords (Basic authentication), who are in `Authorization`. `None` if the rule file has no
    /// users.
    pub realm: Option<Arc<str>>,
}

/// The untrusted fields of requests: part of `requests:` in the rule file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldRules {
    /// The fields to remove unless a trusted proxy sends them. By default [`Strip::DEFAULT`].
    pub strip: Strip,
    /// How to treat names that some origins treat as other names. By default they are removed.
    pub underscores: Underscores,
}

/// A limit rejects a request, since it cannot be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRejection<'r> {
    /// The limit's name.
    pub limit: &'r str,
    /// The missing input.
    pub cause: MissingInput,
    /// The claim with the client that the verified token of the request lacks.
    pub claim: Option<&'r str>,
}

/// The input that a limit cannot read from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingInput {
    /// The client.
    Client(ClientError),
    /// The cost.
    Cost(CostError),
    /// Valid credentials. Only limits by address count the request.
    Credentials,
    /// The body, which was not read.
    Body,
}

/// The effect of a limit on a request.
#[derive(Clone, Debug)]
pub enum LimitCheck {
    /// It counts the request.
    Charge(Charge),
    /// It does not count the request, because it is configured to or is a shadow.
    Skip(MissingInput),
    /// It does not count the request, which does not meet its conditions.
    Unmet,
    /// It rejects the request.
    Deny(MissingInput),
}

impl<'r> LimitRejection<'r> {
    fn new(limit: &'r Limit, cause: MissingInput, facts: &Facts<'_>) -> Self {
        let token = facts.identity.as_ref().and_then(|identity| identity.token.as_deref());
        let token = token.filter(|_| cause == MissingInput::Client(ClientError::Missing));
        let claim = token.and_then(|token| limit.client.missing_claim(token));
        Self { limit: &limit.name, cause, claim }
    }
}

impl Rules {
    /// Creates the filter that removes untrusted request fields, and rejects ambiguous ones.
    #[doc(hidden)]
    pub fn field_filter(&self) -> FieldFilter {
        FieldFilter::new(self.used_fields(), self.fields.strip.clone(), self.fields.underscores)
    }

    /// Returns the fields that routes and limits read.
    #[doc(hidden)]
    pub fn used_fields(&self) -> HashSet<HeaderName> {
        let mut fields = HashSet::new();
        for when in &self.when {
            when.matcher.fields(&mut |name| _ = fields.insert(name.clone()));
        }
        for source in self.credentials.key.iter().chain(&self.credentials.token) {
            source.fields(&mut |name| _ = fields.insert(name.clone()));
        }
        if self.credentials.realm.is_some() {
            fields.insert(http::header::AUTHORIZATION);
        }
        for route in self.routes.iter() {
            route.matcher.fields(&mut |name| _ = fields.insert(name.clone()));
            if let Some(concurrency) = &route.concurrency {
                concurrency.client.fields(&mut |name| _ = fields.insert(name.clone()));
            }
            // Otherwise an origin could take a trailer, or a name with underscores, for the field of the gateway.
            if let Some(changes) = &route.request_headers {
                fields.extend(changes.names().cloned());
            }
            fields.extend(route.require.passed_fields().cloned());
            for limit in &route.limits {
                if let Some(IdentityValue::Header(name)) = limit.rates.as_ref().map(|rates| &rates.by) {
                    fields.insert(name.clone());
                }
                limit.client.fields(&mut |name| _ = fields.insert(name.clone()));
                if let Cost::Header(cost) = &limit.permits {
                    fields.insert(cost.name.clone());
                }
            }
        }
        fields
    }

    /// Returns each limit once, with the name of its route: `@` for a shared limit.
    #[doc(hidden)]
    pub fn limits(&self) -> impl Iterator<Item = (&str, &Limit)> {
        let mut seen = HashSet::new();
        let limits = self.routes.iter().flat_map(|route| route.limits.iter().map(move |limit| (&*route.name, limit)));
        let once = limits.filter(move |(_, limit)| !limit.is_shared || seen.insert(limit.name.as_str()));
        once.map(|(route, limit)| (limit.owner(route), limit))
    }

    /// Reads the facts of a request.
    ///
    /// # Errors
    /// The request is ambiguous: servers may interpret it differently, or as a request for another route.
    pub fn read<'a>(
        &self,
        method: &'a Method,
        uri: &'a Uri,
        host: impl Into<HostRequirement>,
        headers: &'a HeaderMap,
        peer: impl Into<Option<IpAddr>>,
    ) -> Result<Facts<'a>, BadRequest> {
        let facts = Facts::read(method, uri, host, headers, peer, &self.requests)?;
        self.routes.check(&facts)?;
        Ok(facts)
    }

    /// Reads the facts of a request without normalizing its path and query.
    ///
    /// # Errors
    /// The method or the host is invalid, or servers may interpret the request as one for another route.
    #[doc(hidden)]
    pub fn read_unnormalized<'a>(
        &self,
        method: &'a Method,
        uri: &'a Uri,
        headers: &'a HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<Facts<'a>, BadRequest> {
        let facts = Facts::read_unnormalized(method, uri, HostRequirement::Optional, headers, peer)?;
        self.routes.check(&facts)?;
        Ok(facts)
    }

    /// Returns the charges of a request on this route: one for each limit that counts it. If the body is a batch of calls, a
    /// limit has a charge for each client of the calls.
    ///
    /// # Errors
    /// A live limit lacks its input: there is no client and the limit denies such requests, the client is ambiguous or
    /// unreadable, or the cost is unreadable.
    pub fn charges<'r>(&self, route: &'r Route, facts: &Facts<'_>) -> Result<Charges<'r>, LimitRejection<'r>> {
        self.charges_if(route, facts, |_| true)
    }

    /// Returns the charges of a request on this route. Only limits that match `may_reject` reject a request that lacks
    /// their input; other limits do not count it.
    ///
    /// # Errors
    /// See [`charges`](Self::charges).
    #[doc(hidden)]
    #[inline]
    pub fn charges_if<'r>(
        &self,
        route: &'r Route,
        facts: &Facts<'_>,
        may_reject: impl Fn(&Limit) -> bool,
    ) -> Result<Charges<'r>, LimitRejection<'r>> {
        if facts.body.as_ref().is_some_and(|body| body.calls() > 1) {
            return self.charges_of_calls(route, facts, may_reject);
        }
        let mut charges = Charges::new(&route.limits);
        for (index, limit) in route.limits.iter().enumerate() {
            match self.check_limit_after(charges.last(), limit, facts) {
                LimitCheck::Charge(charge) => {
                    limit.record_rate(&charge, facts);
                    charges.push(index, charge);
                }
                LimitCheck::Skip(_) | LimitCheck::Unmet => {}
                LimitCheck::Deny(cause) if may_reject(limit) => {
                    return Err(LimitRejection::new(limit, cause, facts));
                }
                LimitCheck::Deny(_) => {}
            }
        }
        Ok(charges)
    }

    /// Returns the charges of the live limits that match `includes` and do not depend on the credentials of a request.
    /// They take no permits. Limits that cannot count the request are omitted.
    #[doc(hidden)]
    pub fn charges_without_identity<'r>(
        &self,
        route: &'r Route,
        facts: &Facts<'_>,
        includes: impl Fn(&Limit) -> bool,
    ) -> Charges<'r> {
        let mut charges = Charges::new(&route.limits);
        for (index, limit) in route.limits.iter().enumerate() {
            if limit.shadow || limit.reads_body() || !limit.identity_kinds().is_empty() || !includes(limit) {
                continue;
            }
            if let LimitCheck::Charge(charge) = self.check_limit_after(charges.last(), limit, facts) {
                charges.push(index, Charge { kind: ChargeKind::Check, ..charge });
            }
        }
        charges
    }

    /// Evaluates a limit for a request.
    #[inline]
    pub fn check_limit(&self, limit: &Limit, facts: &Facts<'_>) -> LimitCheck {
        self.check_limit_after(None, limit, facts)
    }

    /// Evaluates a limit for a request. `previous` is a charge of the request by another limit.
    #[inline]
    fn check_limit_after(&self, previous: Option<LimitCharge<'_>>, limit: &Limit, facts: &Facts<'_>) -> LimitCheck {
        match self.check_as_live(previous, limit, facts) {
            LimitCheck::Deny(cause) if limit.shadow => LimitCheck::Skip(cause),
            check => check,
        }
    }

    /// Returns `true` if a limit applies only at some times of the week.
    #[doc(hidden)]
    pub fn reads_time(&self) -> bool {
        self.when.iter().any(|when| when.schedule.is_some())
    }

    /// Returns `true` if a limit depends on the bodies of requests, or on responses.
    #[doc(hidden)]
    pub fn reads_bodies(&self) -> bool {
        self.routes.read_bodies()
    }

    /// Returns the conditions of a limit, if it has some.
    pub fn when(&self, limit: &Limit) -> Option<&When> {
        self.when.get(limit.when?)
    }

    /// Returns the first condition of a limit that a request does not meet.
    #[doc(hidden)]
    #[inline]
    pub fn unmet(&self, limit: &Limit, facts: &Facts<'_>) -> Option<Unmet<'_>> {
        self.when(limit)?.unmet(limit, facts)
    }

    /// Evaluates the limit as if it were live.
    #[inline]
    fn check_as_live(&self, previous: Option<LimitCharge<'_>>, limit: &Limit, facts: &Facts<'_>) -> LimitCheck {
        // So that guesses are limited, and take no permits from the clients that own the credentials.
        if facts.identity_fault().is_some() && !limit.is_by_address() {
            return LimitCheck::Skip(MissingInput::Credentials);
        }
        if facts.body.is_none() && limit.reads_body() {
            return LimitCheck::Deny(MissingInput::Body);
        }
        if self.unmet(limit, facts).is_some() {
            return LimitCheck::Unmet;
        }
        let client = match limit.mode() {
            Mode::Overall => None,
            Mode::PerClient => match self.client_after(previous, limit, facts) {
                Ok(client) => Some(client),
                Err(ClientError::Missing) if limit.on_missing_client == OnMissingClient::Skip => {
                    return LimitCheck::Skip(MissingInput::Client(ClientError::Missing));
                }
                Err(cause) => return LimitCheck::Deny(MissingInput::Client(cause)),
            },
        };
        match limit.permits.for_request(facts) {
            Ok(permits) => {
                let limiter = limit.limiter_for(facts);
                LimitCheck::Charge(Charge {
                    turn: Turn::new(&limiter, limit.wait_policy.is_some() && !limit.shadow),
                    limiter,
                    client,
                    permits,
                    shadow: limit.shadow,
                    kind: match &limit.charge_on {
                        Some(on) if !on.reserve => ChargeKind::Check,
                        _ => ChargeKind::Take,
                    },
                })
            }
            Err(cause) => LimitCheck::Deny(MissingInput::Cost(cause)),
        }
    }

    /// Returns the limits of a route that a quota shows to the client of a request, each with a charge for its bucket.
    /// Limits that do not match `may_reject` are omitted if they cannot identify the client.
    ///
    /// # Errors
    /// The client of a limit is missing or invalid, and the limit rejects such requests.
    #[doc(hidden)]
    pub fn visible_charges<'r>(
        &self,
        route: &'r Route,
        facts: &Facts<'_>,
        may_reject: impl Fn(&Limit) -> bool,
    ) -> Result<Vec<(&'r Limit, Charge)>, LimitRejection<'r>> {
        let mut charges = Vec::new();
        let is_shown = |limit: &&Limit| limit.is_visible_in_quota() && self.unmet(limit, facts).is_none();
        for limit in route.limits.iter().filter(is_shown) {
            let client = match self.client(limit, facts) {
                Ok(client) => Some(client),
                Err(ClientError::Missing) if limit.on_missing_client == OnMissingClient::Skip => continue,
                Err(_) if !may_reject(limit) => continue,
                Err(cause) => return Err(LimitRejection::new(limit, MissingInput::Client(cause), facts)),
            };
            charges.push((limit, Charge::new(limit.limiter_for(facts), client, 1)));
        }
        Ok(charges)
    }

    /// Returns the clients of a request for the limits of a route that can identify them, each with its limit.
    #[doc(hidden)]
    pub fn clients<'r>(&self, route: &'r Route, facts: &Facts<'_>) -> impl Iterator<Item = (&'r Limit, ClientId)> {
        let is_known = |limit: &&Limit| facts.body.is_some() || !limit.reads_body();
        let limits = route.limits.iter().filter(|limit| limit.mode() == Mode::PerClient).filter(is_known);
        let met = limits.filter(move |limit| self.unmet(limit, facts).is_none());
        met.filter_map(move |limit| Some((limit, self.client(limit, facts).ok()?)))
    }

    /// Returns the client whose requests in flight are bounded: by its address if its value is missing or invalid.
    /// Returns `None` if clients have no bound, or if the address is unknown.
    #[doc(hidden)]
    pub fn client_in_flight(&self, concurrency: &Concurrency, facts: &Facts<'_>) -> Option<ClientId> {
        concurrency.per_client?;
        let by_address = |_| ClientSource::Ip.identify(facts, &self.addresses);
        concurrency.client.identify(facts, &self.addresses).or_else(by_address).ok()
    }

    /// Returns the client of a limit. The limits of a route usually have the same client, which is read once.
    #[inline]
    fn client_after(
        &self,
        previous: Option<LimitCharge<'_>>,
        limit: &Limit,
        facts: &Facts<'_>,
    ) -> Result<ClientId, ClientError> {
        let is_same = |other: &Limit| {
            other.client == limit.client
                && other.on_missing_client == limit.on_missing_client
                && other.duplicates == limit.duplicates
        };
        match previous.and_then(|entry| Some((entry.limit, entry.charge.client.as_ref()?))) {
            Some((other, client)) if is_same(other) => Ok(client.clone()),
            _ => self.client(limit, facts),
        }
    }

    fn client(&self, limit: &Limit, facts: &Facts<'_>) -> Result<ClientId, ClientError> {
        match (limit.client.identify_with(facts, &self.addresses, limit.duplicates), limit.on_missing_client) {
            (Err(ClientError::Missing), OnMissingClient::Ip) => ClientSource::Ip.identify(facts, &self.addresses),
            (identified, _) => identified,
        }
    }
}
