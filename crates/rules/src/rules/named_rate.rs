//! Finds the rate of a client that an operator names, if the limit takes it from the request: from the values that name the
//! client, or from the API keys whose requests belong to the client.

use std::sync::Arc;

use super::Rules;
use super::named_client::Request;
use crate::charge::{ClientId, Limiter};
use crate::client::ClientSource;
use crate::limits::rates::Rates;
use crate::limits::rule::Limit;
use crate::request::facts::Facts;
use crate::request::identity::{ApiKey, IdentityValue};

/// A rate that requests of a client have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRate {
    /// The tier; `None` if the rate is a number.
    pub tier: Option<String>,
    /// The limiter with the rate.
    pub limiter: Arc<Limiter>,
    /// Whether an API key has the rate, and not the values of the client.
    pub is_of_key: bool,
}

/// A client that an operator names.
#[derive(Clone, Copy, Debug)]
pub struct NamedClient<'c> {
    /// The client.
    pub id: &'c ClientId,
    /// Its values, one for each source of the limit's client. Empty if the operator names its hash or address.
    pub values: &'c [String],
    /// The API keys of the gateway.
    pub keys: &'c [Arc<ApiKey>],
}

impl Rules {
    /// Returns the different known rates of the client's requests. Returns no rate if only a request can show it. `is_client` compares the client of an API key with the named one.
    #[doc(hidden)]
    pub fn known_rates(
        &self,
        limit: &Limit,
        named: NamedClient<'_>,
        is_client: impl Fn(&ClientId) -> bool,
    ) -> Vec<KnownRate> {
        let Some(rates) = &limit.rates else { return Vec::new() };
        if lacks_credentials(limit, rates, named.id) {
            return vec![known(rates.default_limiter(), rates.default_tier(), false)];
        }
        let request = Request::new(&limit.client.sources(), named.values);
        let found = request.and_then(|request| {
            request.with_facts(limit, self, |facts| match facts.identity_value(&rates.by) {
                Some(_) => vec![rate_of(rates, &facts, false)],
                None => self.rates_of_keys(limit, rates, facts, named.keys, is_client),
            })
        });
        found.unwrap_or_default()
    }

    /// Returns the different rates of the API keys whose requests belong to the client.
    fn rates_of_keys(
        &self,
        limit: &Limit,
        rates: &Rates,
        mut facts: Facts<'_>,
        keys: &[Arc<ApiKey>],
        is_client: impl Fn(&ClientId) -> bool,
    ) -> Vec<KnownRate> {
        let mut found = Vec::new();
        if !rates.by.kinds().key || !limit.client.identity_kinds().key {
            return found;
        }
        for key in keys {
            facts.identity.get_or_insert_default().key = Some(Arc::clone(key));
            if limit.client.identify(&facts, &self.addresses).is_ok_and(|client| is_client(&client)) {
                let rate = rate_of(rates, &facts, true);
                if !found.contains(&rate) {
                    found.push(rate);
                }
            }
        }
        found
    }
}

/// Returns `true` if the address identifies a client whose requests lack the value that the rate would come from. Each API
/// key has an id. Other values can be missing in credentials that have a rate: then the rate is not known.
fn lacks_credentials(limit: &Limit, rates: &Rates, client: &ClientId) -> bool {
    let lacks_rate = match &limit.client {
        ClientSource::Identity(IdentityValue::KeyId) => rates.by.kinds().key,
        ClientSource::Identity(value) => *value == rates.by,
        _ => false,
    };
    lacks_rate && matches!(client, ClientId::Address(_))
}

fn rate_of(rates: &Rates, facts: &Facts<'_>, is_of_key: bool) -> KnownRate {
    let limiter = rates.choose(facts).0;
    known(limiter.as_ref().unwrap_or_else(|| rates.default_limiter()), rates.tier(facts), is_of_key)
}

fn known(limiter: &Arc<Limiter>, tier: Option<&str>, is_of_key: bool) -> KnownRate {
    KnownRate { tier: tier.map(str::to_owned), limiter: Arc::clone(limiter), is_of_key }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use tidegate_limit::{Algorithm, Mode, Quota};

    fn limiter(rate: u64) -> Arc<Limiter> {
        let quota = Quota::new(rate, 60_000, Algorithm::TokenBucket).expect("a quota");
        Arc::new(Limiter::new("{tidegate:r}:l".to_owned(), Mode::PerClient, quota))
    }

    fn limit(client: &str, by: &str) -> Limit {
        let limiters = BTreeMap::from([("free".into(), limiter(1)), ("pro".into(), limiter(9))]);
        let value = |text| IdentityValue::parse(text).expect("a value");
        let rates = Rates::by_tier(value(by), "free", limiters).expect("a default");
        let client = ClientSource::Identity(value(client));
        Limit { client, rates: Some(Arc::new(rates)), limiter: limiter(1), ..Limit::new("l".to_owned(), limiter(1)) }
    }

    fn key(id: &str, tier: Option<&str>) -> Arc<ApiKey> {
        Arc::new(ApiKey::new(id, tier.map(Arc::from), Arc::default(), []).expect("a key"))
    }

    /// Returns the tiers of a client, and whether they come from API keys.
    fn tiers(limit: &Limit, values: &[&str], keys: &[Arc<ApiKey>]) -> Vec<(String, bool)> {
        let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
        let rules = Rules::default();
        let id = rules.named_client(limit, &values).expect("a client");
        let named = |values| NamedClient { id: &id, values, keys };
        let by_value = rules.known_rates(limit, named(&values), |other| *other == id);
        if limit.client.identity_kinds().key {
            assert_eq!(rules.known_rates(limit, named(&[]), |other| *other == id), by_value, "by hash");
        }
        by_value.into_iter().map(|rate| (rate.tier.unwrap_or_default(), rate.is_of_key)).collect()
    }

    #[test]
    fn api_keys_of_the_client_have_its_tier() {
        let keys = [
            key("one", Some("pro")),
            key("two", None),
            key("three", Some("gold")),
            key("one", Some("pro")),
            key("four", Some("pro")),
            key("four", None),
        ];
        let limit = limit("key:id", "key:tier");
        let of_key = |tiers: &[&str]| tiers.iter().map(|tier| ((*tier).to_owned(), true)).collect::<Vec<_>>();
        assert_eq!(tiers(&limit, &["one"], &keys), of_key(&["pro"]));
        assert_eq!(tiers(&limit, &["two"], &keys), of_key(&["free"]));
        assert_eq!(tiers(&limit, &["three"], &keys), of_key(&["free"]));
        assert_eq!(tiers(&limit, &["four"], &keys), of_key(&["pro", "free"]));
        assert_eq!(tiers(&limit, &["none"], &keys), []);
    }

    #[test]
    fn values_of_the_client_can_contain_its_tier() {
        assert_eq!(tiers(&limit("jwt:plan", "jwt:plan"), &["pro"], &[]), [("pro".to_owned(), false)]);
        assert_eq!(tiers(&limit("jwt:plan", "jwt:plan"), &["gold"], &[]), [("free".to_owned(), false)]);
        assert_eq!(tiers(&limit("jwt:sub", "jwt:plan"), &["ann"], &[]), []);
        assert_eq!(tiers(&limit("jwt:sub", "header:x-plan"), &["ann"], &[key("ann", Some("pro"))]), []);
    }

    #[test]
    fn address_instead_of_a_key_has_the_default_tier() {
        let id = ClientId::Address("192.0.2.1/32".parse().expect("a network"));
        let named = NamedClient { id: &id, values: &[], keys: &[] };
        let tiers = |limit: &Limit| {
            let rates = Rules::default().known_rates(limit, named, |other| *other == id).into_iter();
            rates.map(|rate| rate.tier.unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(tiers(&limit("key:id", "key:tier")), ["free"]);
        assert_eq!(tiers(&limit("jwt:plan", "jwt:plan")), ["free"]);
        // A key without a team, or a token without a subject, can have another tier.
        assert_eq!(tiers(&limit("key:team", "key:tier")), Vec::<String>::new());
        assert_eq!(tiers(&limit("jwt:sub", "jwt:plan")), Vec::<String>::new());
        assert_eq!(tiers(&limit("jwt:sub", "key:tier")), Vec::<String>::new());
        assert_eq!(tiers(&Limit { client: ClientSource::Ip, ..limit("key:id", "key:tier") }), Vec::<String>::new());
    }
}
