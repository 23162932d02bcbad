//! Finds the limit and the client that the parameters of a request name.

use http::StatusCode;

use crate::admin::Active;
use crate::admin::problem::Problem;
use crate::admin::query::Parameters;
use tidegate_layer::overrides::parse_hash;
use tidegate_limit::Mode;
use tidegate_rules::charge::{Charge, ClientId};
use tidegate_rules::limits::rule::Limit;

/// A client of a limit.
#[derive(Debug)]
pub(super) struct Named<'a> {
    pub(super) limit: &'a Limit,
    /// A charge of one permit with the default rate.
    pub(super) charge: Charge,
    /// The values of the client, one for each source. Empty if it is named by hash or address.
    pub(super) values: Vec<String>,
}

impl Active {
    /// Returns a limit of the rule file.
    ///
    /// # Errors
    /// There is no such limit.
    pub(in crate::admin) fn limit(&self, route: &str, limit: &str) -> Result<&Limit, Problem> {
        let found = self.config.rules.limits().find(|(owner, other)| *owner == route && other.name == limit);
        found
            .map(|(_, limit)| limit)
            .ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "no limit has this route and name"))
    }

    /// Returns the client that the parameters name.
    pub(super) fn named(&self, route: &str, name: &str, query: &Parameters) -> Result<Named<'_>, Problem> {
        let limit = self.limit(route, name)?;
        let (values, hash, address) = (query.all("value"), query.one("hash")?, query.one("address")?);
        let client = match (limit.mode(), values.is_empty(), hash, address) {
            (Mode::Overall, true, None, None) => None,
            (Mode::Overall, ..) => return Err(Problem::bad_request("the limit is OVERALL: it has no clients")),
            (Mode::PerClient, false, None, None) => Some(self.config.rules.named_client(limit, &values)?),
            (Mode::PerClient, true, Some(hash), None) => {
                let detail = "`hash` has 32 hexadecimal digits, as in the access log";
                Some(ClientId::Hash(parse_hash(&hash).ok_or_else(|| Problem::bad_request(detail))?))
            }
            (Mode::PerClient, true, None, Some(address)) => {
                let address = address.parse().map(|address: std::net::IpAddr| address.to_canonical());
                let address = address.map_err(|_| Problem::bad_request("`address` is not an IP address"))?;
                Some(ClientId::Address(self.config.rules.addresses.network(address)))
            }
            (Mode::PerClient, ..) => {
                let detail = format!("name the client by `value` ({}), `hash` or `address`", limit.client);
                return Err(Problem::bad_request(detail));
            }
        };
        let charge = Charge { shadow: limit.shadow, ..Charge::new(limit.limiter.clone(), client, 1) };
        Ok(Named { limit, charge, values })
    }

    /// Returns the name of a client for logs and responses, as it is in keys.
    pub(in crate::admin) fn client_name(&self, charge: &Charge) -> Option<String> {
        charge.client.as_ref().map(|client| self.name_of(client))
    }

    /// Returns the name of a client for logs and responses, as it is in keys.
    pub(in crate::admin) fn name_of(&self, client: &ClientId) -> String {
        let hash =
            |client| self.store.key_of(client).map_or_else(|| "unknown".to_owned(), |hash| format!("{hash:032x}"));
        match client {
            ClientId::Address(network) if network.prefix_len() == network.max_prefix_len() => {
                network.addr().to_string()
            }
            ClientId::Address(network) => network.to_string(),
            ClientId::Hash(hash) => format!("{hash:032x}"),
            client => hash(client),
        }
    }
}
