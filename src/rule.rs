//! What a request would cost: the limits of its route, and the charges they make of it.

use std::sync::Arc;
use std::time::Duration;

use crate::client::{AddressRules, ClientSource, NoClient};
use crate::facts::Facts;
use crate::limit::{Charge, ClientId, Limiter, Mode};
use crate::route::{Route, Routes};

/// Everything a rule file says about requests; no IO hangs on it.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// How client addresses are read.
    pub addresses: AddressRules,
    /// The routes, in the order in which they are tried.
    pub routes: Routes,
}

/// One entry of a route's `limits:`.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its name in the rule file, metrics, headers and logs; unique within its route.
    pub name: String,
    /// The buckets it takes from.
    pub limiter: Arc<Limiter>,
    /// Who is a client; only for PER_CLIENT.
    pub client: ClientSource,
    /// What one request costs.
    pub permits: u32,
    /// What to do with requests that have no client.
    pub on_missing_client: OnMissingClient,
    /// What to do when the store cannot say.
    pub on_store_failure: OnStoreFailure,
    /// Whether refused requests may wait for their permits; none may if there is none.
    pub patience: Option<Patience>,
}

/// How long refused requests may wait for their permits, and how many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest that one may be held, from its arrival on.
    pub max_wait: Duration,
    /// Most that may wait for one bucket in this gateway.
    pub queue: usize,
}

/// What happens to a request without the value that makes its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingClient {
    /// It is answered with 400.
    #[default]
    Deny,
    /// This limit does not count it.
    Skip,
    /// Its address is the client.
    Ip,
}

/// What a limit does while the store gives no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Requests pass, uncounted.
    #[default]
    Allow,
    /// Requests are answered with 503.
    Deny,
}

/// A limit that a request is subject to, and what it asks of it.
#[derive(Clone, Debug)]
pub struct LimitCharge<'r> {
    /// Its position among the route's limits.
    pub index: usize,
    /// The rule.
    pub limit: &'r Limit,
    /// What the store is asked for.
    pub charge: Charge,
}

/// Why a request is not judged: a limit cannot tell who is asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unidentified<'r> {
    /// The limit that needs a client.
    pub limit: &'r str,
    /// What is wrong with the request.
    pub cause: NoClient,
}

impl Rules {
    /// What a request with these facts, on this route of ours, costs: one charge for each limit that counts it.
    ///
    /// # Errors
    /// A limit that denies requests without a client cannot find one, or any limit finds more than one.
    pub fn charges<'r>(&self, route: &'r Route, facts: &Facts<'_>) -> Result<Vec<LimitCharge<'r>>, Unidentified<'r>> {
        let mut charges = Vec::with_capacity(route.limits.len());
        for (index, limit) in route.limits.iter().enumerate() {
            let client = match limit.mode() {
                Mode::Overall => None,
                Mode::PerClient => match self.client(limit, facts)? {
                    None => continue,
                    client => client,
                },
            };
            let charge = Charge { limiter: Arc::clone(&limit.limiter), client, permits: limit.permits };
            charges.push(LimitCharge { index, limit, charge });
        }
        Ok(charges)
    }

    fn client<'r>(&self, limit: &'r Limit, facts: &Facts<'_>) -> Result<Option<ClientId>, Unidentified<'r>> {
        let cause = match limit.client.identify(facts, &self.addresses) {
            Ok(client) => return Ok(Some(client)),
            Err(cause) => cause,
        };
        match (cause, limit.on_missing_client) {
            (NoClient::Missing, OnMissingClient::Skip) => Ok(None),
            (NoClient::Missing, OnMissingClient::Ip) => {
                let address = self.addresses.address(facts);
                Ok(Some(ClientId::Address(self.addresses.network(address))))
            }
            (NoClient::Missing, OnMissingClient::Deny) | (NoClient::Ambiguous, _) => {
                Err(Unidentified { limit: &limit.name, cause })
            }
        }
    }
}

impl Patience {
    /// How many may wait unless the rule file says otherwise.
    pub const DEFAULT_QUEUE: usize = 100;
}

impl Limit {
    /// One bucket, or one for each client.
    pub fn mode(&self) -> Mode {
        self.limiter.mode
    }
}
