//! All rules of a file, and what they make of a request: its facts, its route, and the charges of its limits.

mod charges;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method, Uri};

pub(crate) use self::charges::Positions;
pub use self::charges::{Charges, LimitCharge};
use crate::client::{AddressRules, ClientSource, NoClient};
use crate::cost::{Cost, CostError};
use crate::facts::{BadRequest, Facts};
pub use crate::facts::{HostNeed, Requests};
use crate::limit::{Charge, ClientId, Mode};
pub use crate::path::EncodedSlash;
use crate::route::{Route, Routes};
use crate::rule::{Limit, OnMissingClient};
use crate::sanitize::FieldFilter;
pub use crate::sanitize::{BadPattern, Pattern, Strip, Underscores};

/// Everything a rule file says about requests; no IO hangs on it.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// How requests are read.
    pub requests: Requests,
    /// How client addresses are read.
    pub addresses: AddressRules,
    /// Which fields are removed before anything is read of a request.
    pub fields: FieldRules,
    /// The routes, in the order in which they are tried.
    pub routes: Routes,
}

/// Which fields of requests are not trusted: of `requests:` in the rule file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldRules {
    /// Those that are removed unless a trusted proxy sends them; [`Strip::DEFAULT`] unless the rule file says otherwise.
    pub strip: Strip,
    /// Those that some origins take for others; removed unless the rule file says otherwise.
    pub underscores: Underscores,
}

/// Why a request is not judged by a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRejection<'r> {
    /// The limit's name.
    pub limit: &'r str,
    /// What is wrong with the request.
    pub cause: MissingInput,
}

/// What a limit cannot tell of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingInput {
    /// Who is asking.
    Client(NoClient),
    /// What it costs.
    Cost(CostError),
}

/// What one limit asks of one request.
#[derive(Clone, Debug)]
pub enum LimitCheck {
    /// It counts it.
    Charge(Charge),
    /// It does not count it, for this reason: it is told to, or only watches.
    Skip(MissingInput),
    /// It turns it away, for this reason.
    Deny(MissingInput),
}

impl Rules {
    /// What the fields of requests are held against.
    pub(crate) fn field_filter(&self) -> FieldFilter {
        FieldFilter::new(self.used(), self.fields.strip.clone(), self.fields.underscores)
    }

    /// The fields that routes and limits read.
    fn used(&self) -> HashSet<HeaderName> {
        let mut fields = HashSet::new();
        for route in self.routes.iter() {
            fields.extend(route.matcher.headers.iter().map(|(name, _)| name.clone()));
            for limit in &route.limits {
                limit.client.fields(&mut |name| _ = fields.insert(name.clone()));
                if let Cost::Header(cost) = &limit.permits {
                    fields.insert(cost.name.clone());
                }
            }
        }
        fields
    }

    /// The facts of a request.
    ///
    /// # Errors
    /// A request that means different things to different servers, or could pass for one of another route.
    pub fn read<'a>(
        &self,
        method: &'a Method,
        uri: &'a Uri,
        host: impl Into<HostNeed>,
        headers: &'a HeaderMap,
        peer: impl Into<Option<IpAddr>>,
    ) -> Result<Facts<'a>, BadRequest> {
        let facts = Facts::read(method, uri, host, headers, peer, &self.requests)?;
        self.routes.check(&facts)?;
        Ok(facts)
    }

    /// Reads the facts of a request whose path and query stay as they are written.
    ///
    /// # Errors
    /// A request without a valid method, with an invalid host, or one that could pass for one of another route.
    pub(crate) fn read_as_written<'a>(
        &self,
        method: &'a Method,
        uri: &'a Uri,
        headers: &'a HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<Facts<'a>, BadRequest> {
        let facts = Facts::read_as_written(method, uri, HostNeed::Optional, headers, peer)?;
        self.routes.check(&facts)?;
        Ok(facts)
    }

    /// What a request with these facts, on this route of ours, costs: one charge for each limit that counts it.
    ///
    /// # Errors
    /// A limit that denies requests without a client cannot find one, any limit finds more than one or cannot read it, or
    /// the request does not tell its cost.
    pub fn charges<'r>(&self, route: &'r Route, facts: &Facts<'_>) -> Result<Charges<'r>, LimitRejection<'r>> {
        let mut charges = Charges::new(&route.limits);
        for (index, limit) in route.limits.iter().enumerate() {
            match self.check_limit(limit, facts) {
                LimitCheck::Charge(charge) => charges.push(index, charge),
                LimitCheck::Skip(_) => {}
                LimitCheck::Deny(cause) => return Err(LimitRejection { limit: &limit.name, cause }),
            }
        }
        Ok(charges)
    }

    /// What this limit asks of a request with these facts.
    #[inline]
    pub fn check_limit(&self, limit: &Limit, facts: &Facts<'_>) -> LimitCheck {
        match self.check_as_live(limit, facts) {
            LimitCheck::Deny(cause) if limit.shadow => LimitCheck::Skip(cause),
            check => check,
        }
    }

    /// What it would ask if it were live.
    fn check_as_live(&self, limit: &Limit, facts: &Facts<'_>) -> LimitCheck {
        let client = match limit.mode() {
            Mode::Overall => None,
            Mode::PerClient => match self.client(limit, facts) {
                Ok(client) => Some(client),
                Err(NoClient::Missing) if limit.on_missing_client == OnMissingClient::Skip => {
                    return LimitCheck::Skip(MissingInput::Client(NoClient::Missing));
                }
                Err(cause) => return LimitCheck::Deny(MissingInput::Client(cause)),
            },
        };
        match limit.permits.for_request(facts) {
            Ok(permits) => LimitCheck::Charge(Charge {
                limiter: Arc::clone(&limit.limiter),
                client,
                permits,
                shadow: limit.shadow,
            }),
            Err(cause) => LimitCheck::Deny(MissingInput::Cost(cause)),
        }
    }

    fn client(&self, limit: &Limit, facts: &Facts<'_>) -> Result<ClientId, NoClient> {
        match (limit.client.identify(facts, &self.addresses), limit.on_missing_client) {
            (Err(NoClient::Missing), OnMissingClient::Ip) => ClientSource::Ip.identify(facts, &self.addresses),
            (identified, _) => identified,
        }
    }
}
