//! The values of requests that rules read, and the results of reading them.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION};
use ipnet::IpNet;

use super::address::Networks;
use super::identity::IdentityInputs;
use tidegate_limit::Mode;
use tidegate_rules::client::{AddressRules, ClientError, ClientSource, Duplicates, spelling};
use tidegate_rules::limits::cost::{Cost, CostError, HeaderCost};
use tidegate_rules::request::facts::Facts;
use tidegate_rules::route::{Matcher, Met, ValueCondition, ValuePattern, ValueSource, ValueTest};
use tidegate_rules::rules::Rules;

/// Everything that rules read from requests and a replay needs.
#[derive(Clone, Debug)]
pub struct Inputs {
    pub(super) values: Vec<Input>,
    pub(super) networks: Networks,
    /// The networks that are not secret.
    pub(super) readable_networks: Vec<IpNet>,
    /// The sources that the rules read and a recording does not have.
    pub(super) unrecorded: Vec<ClientSource>,
    /// The values of verified credentials.
    pub(super) identity: IdentityInputs,
    /// How the address of a client is found.
    pub(super) addresses: AddressRules,
}

/// A header field, a cookie or a query parameter.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) source: ClientSource,
    /// The source as text.
    pub(super) name: String,
    pub(super) conditions: Vec<ValueCondition>,
    /// The constants of the conditions that stay readable in a recording, and the texts of patterns.
    pub(super) readable: Vec<Box<[u8]>>,
    /// The patterns whose parts stay readable.
    pub(super) patterns: Vec<ValuePattern>,
    pub(super) costs: Vec<HeaderCost>,
    /// Whether a limit uses the first of several values.
    pub(super) reads_first: bool,
}

/// The results of reading a value, as rules use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// The normalized value, as limits identify clients by it.
    pub(super) client: Result<Vec<u8>, ClientError>,
    /// The first of several values, if a limit uses it.
    pub(super) first: Option<Result<Vec<u8>, ClientError>>,
    pub(super) met: Vec<Met>,
    pub(super) costs: Vec<Result<u32, CostError>>,
}

impl Inputs {
    /// Returns the inputs of these rules. Constants of conditions for which `is_secret` returns `true` are not recorded.
    pub fn new(rules: &Rules, is_secret: &dyn Fn(&str) -> bool) -> Self {
        let networks = Networks { networks: Vec::new(), ipv6_prefix: rules.addresses.ipv6_prefix };
        let (values, readable_networks, unrecorded) = (Vec::new(), Vec::new(), Vec::new());
        let (identity, addresses) = (IdentityInputs::new(rules, is_secret), rules.addresses.clone());
        let mut inputs = Self { values, networks, readable_networks, unrecorded, identity, addresses };
        for route in rules.routes.iter() {
            inputs.add_conditions(&route.matcher, is_secret);
            for limit in &route.limits {
                if limit.mode() == Mode::PerClient {
                    inputs.add_clients(&limit.client, limit.duplicates);
                }
                if let Cost::Header(cost) = &limit.permits {
                    inputs.input(&ClientSource::Header(cost.name.clone())).costs.push(cost.clone());
                }
            }
        }
        rules.when.iter().for_each(|when| inputs.add_conditions(&when.matcher, is_secret));
        inputs.without_duplicates()
    }

    /// Adds these sources of clients.
    pub fn with_clients(&self, clients: &[ClientSource]) -> Self {
        let mut inputs = self.clone();
        clients.iter().for_each(|client| inputs.add_clients(client, Duplicates::Reject));
        inputs.without_duplicates()
    }

    /// Removes the host, which has its own member, the field of cookies that are recorded one by one, and repeated
    /// constants and networks.
    fn without_duplicates(mut self) -> Self {
        for networks in [&mut self.networks.networks, &mut self.readable_networks] {
            networks.sort_unstable();
            networks.dedup();
        }
        for input in &mut self.values {
            input.readable.sort_unstable();
            input.readable.dedup();
        }
        let has_cookies = self.values.iter().any(|input| matches!(input.source, ClientSource::Cookie(_)));
        let (values, duplicates) = self.values.into_iter().partition(|input| match &input.source {
            ClientSource::Header(name) => name != HOST && !(has_cookies && name == COOKIE),
            _ => true,
        });
        self.values = values;
        for Input { source, .. } in duplicates {
            if source != ClientSource::Header(HOST) {
                self.add_unrecorded(&source);
            }
        }
        self
    }

    fn add_unrecorded(&mut self, source: &ClientSource) {
        if !self.unrecorded.contains(source) {
            self.unrecorded.push(source.clone());
        }
    }

    fn add_conditions(&mut self, matcher: &Matcher, is_secret: &dyn Fn(&str) -> bool) {
        for value in &matcher.values {
            let source = match &value.source {
                ValueSource::Header(name) => ClientSource::Header(name.clone()),
                ValueSource::Query(name) => ClientSource::Query(name.to_string()),
                ValueSource::Cookie(name) => ClientSource::Cookie(name.to_string()),
                ValueSource::Json(pointer) => {
                    self.add_unrecorded(&ClientSource::Json(pointer.clone()));
                    continue;
                }
            };
            let input = self.input(&source);
            input.conditions.push(value.clone());
            if let ValueTest::OneOf(constants) = &value.test
                && !is_credential(&source)
            {
                let constants = constants.iter().map(|constant| (constant, constant.to_bytes()));
                for (constant, text) in constants.filter(|(_, text)| !str::from_utf8(text).map_or(true, is_secret)) {
                    input.readable.push(text.into());
                    input.patterns.push(constant.clone());
                }
            }
        }
        for network in matcher.clients.iter().flat_map(|clients| clients.networks()) {
            self.networks.networks.push(*network);
            if !is_secret(&network.to_string()) {
                self.readable_networks.push(*network);
            }
        }
        matcher.not.iter().for_each(|not| self.add_conditions(not, is_secret));
    }

    fn add_clients(&mut self, client: &ClientSource, duplicates: Duplicates) {
        for source in client.sources() {
            match source {
                ClientSource::Header(_) | ClientSource::Cookie(_) | ClientSource::Query(_) => {
                    self.input(source).reads_first |= duplicates == Duplicates::First;
                }
                ClientSource::Tls(_) | ClientSource::Json(_) => self.add_unrecorded(source),
                ClientSource::Identity(value) => self.identity.add_client(value),
                _ => {}
            }
        }
    }

    /// Returns the input of this source, which is new if no known source has a similar name.
    fn input(&mut self, source: &ClientSource) -> &mut Input {
        let position = self.values.iter().position(|input| is_read_with(&input.source, source));
        let position = position.unwrap_or_else(|| {
            let (conditions, readable, patterns, costs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let (source, name) = (source.clone(), source.to_string());
            self.values.push(Input { source, name, conditions, readable, patterns, costs, reads_first: false });
            self.values.len() - 1
        });
        &mut self.values[position]
    }
}

/// Returns `true` if the values of a field are credentials.
fn is_credential(source: &ClientSource) -> bool {
    matches!(source, ClientSource::Header(name) if [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name))
}

/// Returns `true` if some servers read the value of one source for the other.
pub(super) fn is_read_with(first: &ClientSource, second: &ClientSource) -> bool {
    match (first, second) {
        (ClientSource::Cookie(first), ClientSource::Cookie(second))
        | (ClientSource::Query(first), ClientSource::Query(second)) => spelling::resembles(first.as_bytes(), second),
        _ => first == second,
    }
}

impl Input {
    /// Reads the value of a request, as the rules do.
    pub(super) fn read(&self, facts: &Facts<'_>) -> Reading {
        let value = |duplicates| self.source.sent_value(facts, duplicates).map(Cow::into_owned);
        Reading {
            client: value(Duplicates::Reject),
            first: self.reads_first.then(|| value(Duplicates::First)),
            met: self.conditions.iter().map(|condition| condition.met(facts)).collect(),
            costs: self.costs.iter().map(|cost| cost.read(facts)).collect(),
        }
    }

    /// Returns `true` if a condition compares the value with this one, which is no secret.
    pub(super) fn is_readable(&self, value: &[u8]) -> bool {
        let is_constant =
            |pattern: &ValuePattern| matches!(pattern, ValuePattern::AnyCase(_)) && pattern.matches(value);
        self.readable.iter().any(|constant| **constant == *value) || self.patterns.iter().any(is_constant)
    }
}
