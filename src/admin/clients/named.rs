//! Finds the limit and the client that the parameters of a request name.

use crate::admin::Active;
use crate::admin::limit_list::{ListedLimit, NO_ADDRESSES};
use crate::admin::problem::Problem;
use crate::admin::query::Parameters;
use tidegate_layer::overrides::parse_hash;
use tidegate_limit::Mode;
use tidegate_rules::charge::{Charge, ClientId};
use tidegate_rules::limits::rule::Limit;
use tidegate_service::NamedBucket;

/// A client of a limit.
#[derive(Debug)]
pub(super) struct Named<'a> {
    /// The name of the route, or `/DOMAIN`.
    pub(super) route: &'a str,
    pub(super) limit: &'a Limit,
    /// Whether callers set the rate of the limit.
    pub(super) is_rate_of_callers: bool,
    /// A charge of one permit with the default rate.
    pub(super) charge: Charge,
    /// The values of the client, one for each source. Empty if it is named by hash or address.
    pub(super) values: Vec<String>,
}

impl Active {
    /// Returns the client that the parameters name.
    pub(super) fn named(&self, route: &str, name: &str, query: &Parameters) -> Result<Named<'_>, Problem> {
        let listed = self.limit(route, name)?;
        let limit = listed.limit;
        let (values, hash, address) = (query.all("value"), query.one("hash")?, query.one("address")?);
        let client = match (limit.mode(), values.is_empty(), hash, address) {
            (Mode::Overall, true, None, None) => None,
            (Mode::Overall, ..) => return Err(Problem::bad_request("the limit is OVERALL: it has no clients")),
            (Mode::PerClient, false, None, None) => Some(self.client_of(listed, &values)?),
            (Mode::PerClient, true, Some(hash), None) => {
                let detail = "`hash` has 32 hexadecimal digits, as in the access log";
                Some(ClientId::Hash(parse_hash(&hash).ok_or_else(|| Problem::bad_request(detail))?))
            }
            (Mode::PerClient, true, None, Some(_)) if listed.domain.is_some() => {
                return Err(Problem::bad_request(NO_ADDRESSES));
            }
            (Mode::PerClient, true, None, Some(address)) => {
                let address = address.parse().map(|address: std::net::IpAddr| address.to_canonical());
                let address = address.map_err(|_| Problem::bad_request("`address` is not an IP address"))?;
                Some(ClientId::Address(self.config.rules.addresses.network(address)))
            }
            (Mode::PerClient, ..) => {
                let (client, address) =
                    (listed.client().unwrap_or_default(), listed.domain.map_or(" or `address`", |_| ""));
                let detail = format!("name the client by `value` ({client}), `hash`{address}");
                return Err(Problem::bad_request(detail));
            }
        };
        let charge = Charge { shadow: limit.shadow, ..Charge::new(limit.limiter.clone(), client, 1) };
        Ok(Named { route: listed.route, limit, is_rate_of_callers: listed.is_of_callers(), charge, values })
    }

    /// Returns the client of a PER_CLIENT limit that these values name: for a route a value for each source of the client, and for
    /// a domain a value for each key that its limit counts separately.
    pub(in crate::admin) fn client_of(&self, listed: ListedLimit<'_>, values: &[String]) -> Result<ClientId, Problem> {
        let Some(domain) = listed.domain else {
            return Ok(self.config.rules.named_client(listed.limit, values)?);
        };
        if listed.is_of_callers() {
            return Err(Problem::bad_request("callers set the rate of this limit: name the client by `hash`"));
        }
        let (name, texts) = (&listed.limit.name, values.iter().map(String::as_str).collect::<Vec<_>>());
        match domain.named_bucket(&domain.path_to(name), name, &texts) {
            Ok(NamedBucket::Bucket { client: Some(client), .. }) => Ok(client),
            Ok(_) => Err(Problem::bad_request("the limit has no clients")),
            Err(error) => Err(Problem::bad_request(error.to_string())),
        }
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
