//! The body of a request for a new override.

use std::net::IpAddr;

use http::StatusCode;
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::admin::Active;
use crate::admin::audit::MAX_REASON;
use crate::admin::limit_list::NO_ADDRESSES;
use crate::admin::only_object::OnlyObject;
use crate::admin::problem::Problem;
use tidegate_config::Millis;
use tidegate_layer::overrides::{
    Action, Adjustment, Factor, MAX_DURATION, Override, Scope, Target, parse_hash, parse_network,
};
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{MAX_RATE, Mode};
use tidegate_rules::charge::ClientId;
use tidegate_rules::rules::NamedClientError;

/// The longest texts, in bytes, that name a scope or a client. Names and addresses in use are shorter.
const MAX_TEXT: usize = 4 * 1024;

/// The shortest prefixes of networks that a ban without `force` concerns. Larger networks have many owners.
const SHORTEST_IPV4: u8 = 8;
const SHORTEST_IPV6: u8 = 19;

/// The body of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewOverride {
    #[schema(value_type = String, pattern = "^(ban|exempt|adjust)$", example = "ban")]
    action: Action,
    /// A route, or ROUTE/LIMIT. A domain is the route /DOMAIN. Without it, all routes and domains.
    #[serde(default)]
    scope: Option<String>,
    target: NewTarget,
    /// How long the override lasts, such as `30m`; at most 30 days.
    #[serde(rename = "for")]
    duration: Option<String>,
    /// Instead of `for`: the end (RFC 3339).
    until: Option<String>,
    #[schema(min_length = 1, max_length = 256)]
    reason: String,
    /// The rate of `adjust`.
    rate: Option<u64>,
    /// Or the factor of the rate of each limit.
    #[schema(value_type = Option<f64>)]
    multiply: Option<Value>,
    /// Whether to replace an override with the same action, scope and target.
    #[serde(default)]
    pub(super) replace: bool,
    /// Whether a ban also ends the open WebSockets, tunnels and streams of the client.
    #[serde(default)]
    disconnect: bool,
    /// Whether to allow a ban of a network larger than /8, or /19 for IPv6.
    #[serde(default)]
    force: bool,
}

/// The target, as operators name it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum NewTarget {
    /// An address or a network.
    Address(String),
    /// The values that identify a client of the limit.
    Client(Vec<String>),
    /// The hash of a client.
    Hash(String),
}

impl NewOverride {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let parsed = serde_json::from_slice(body);
        let OnlyObject(request) =
            parsed.map_err(|error| Problem::bad_request(format!("the body is not valid: {error}")))?;
        Ok(request)
    }

    /// Checks the request, and returns the override.
    pub(super) fn into_override(self, active: &Active, operator: String) -> Result<Override, Problem> {
        let scope = match self.scope.as_deref() {
            None => Scope::All,
            Some(text) if text.len() > MAX_TEXT => return Err(Problem::bad_request("`scope` is too long")),
            Some(text) => active.scope(text)?,
        };
        let target = self.target.resolve(active, &scope)?;
        if self.action == Action::Ban && !self.force {
            check_size(&target)?;
        }
        if self.disconnect && self.action != Action::Ban {
            return Err(Problem::bad_request("`disconnect` applies only to `ban`"));
        }
        let adjustment = adjustment(active, self.action, &scope, self.rate, self.multiply.as_ref())?;
        let until = until(active.store.now(), self.duration.as_deref(), self.until.as_deref())?;
        let reason = self.reason.trim().to_owned();
        if reason.is_empty() || reason.len() > MAX_REASON {
            return Err(Problem::bad_request(format!("`reason` needs 1 to {MAX_REASON} bytes")));
        }
        let id = Override::id_of(self.action, &scope, &target);
        let (action, disconnect) = (self.action, self.disconnect);
        Ok(Override { id, action, scope, target, adjustment, disconnect, until, reason, by: operator })
    }
}

impl NewTarget {
    fn resolve(self, active: &Active, scope: &Scope) -> Result<Target, Problem> {
        match self {
            Self::Address(_) if active.is_in_domain(scope) => {
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, NO_ADDRESSES))
            }
            Self::Address(text) => {
                let network = parse_network(&text);
                let network =
                    network.ok_or_else(|| Problem::bad_request("`address` is not an IP address or a network"))?;
                // A single address counts as the network that limits count as one client.
                let single: Option<IpAddr> = text.parse().ok();
                let network = single.map_or(network, |_| active.config.rules.addresses.network(network.addr()));
                Ok(Target::Network(network))
            }
            Self::Hash(text) => {
                let detail = "`hash` has 32 hexadecimal digits, as in the access log";
                parse_hash(&text).map(Target::Hash).ok_or_else(|| Problem::bad_request(detail))
            }
            Self::Client(values) => {
                let Scope::Limit { route, limit } = scope else {
                    let detail = "a client has a meaning only for a limit: set `scope` to ROUTE/LIMIT (`--limit`), or name the \
                                  client by `hash`";
                    return Err(Problem::bad_request(detail));
                };
                let listed = active.limit(route, limit)?;
                if listed.limit.mode() == Mode::Overall {
                    return Err(Problem::bad_request(NamedClientError::Overall.to_string()));
                }
                match active.client_of(listed, &values)? {
                    ClientId::Address(network) => Ok(Target::Network(network)),
                    client => active.store.key_of(&client).map(Target::Hash).ok_or_else(|| {
                        let detail = "the store has not replied yet, so the hash of the client is unknown";
                        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                    }),
                }
            }
        }
    }
}

/// Checks that a ban without `force` does not concern a large part of the internet.
fn check_size(target: &Target) -> Result<(), Problem> {
    let Target::Network(network) = target else { return Ok(()) };
    let shortest = match network {
        IpNet::V4(_) => SHORTEST_IPV4,
        IpNet::V6(_) => SHORTEST_IPV6,
    };
    if network.prefix_len() >= shortest {
        return Ok(());
    }
    let detail = format!("a ban of {network} is larger than /{shortest}: set `force` (`--force`) if that is intended");
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail))
}

/// Returns the new rate of an `adjust`, and checks that the limits can have it.
fn adjustment(
    active: &Active,
    action: Action,
    scope: &Scope,
    rate: Option<u64>,
    multiply: Option<&Value>,
) -> Result<Adjustment, Problem> {
    let number_error = || Problem::bad_request("`adjust` needs either `rate` or `multiply`");
    let adjustment = match (action, rate, multiply) {
        (Action::Ban | Action::Exempt, None, None) => return Ok(Adjustment::default()),
        (Action::Ban | Action::Exempt, ..) => {
            return Err(Problem::bad_request("`rate` and `multiply` apply only to `adjust`"));
        }
        (Action::Adjust, Some(rate), None) => {
            let rate = u32::try_from(rate).ok().filter(|rate| (1..=MAX_RATE).contains(rate));
            let rate = rate.ok_or_else(|| Problem::bad_request(format!("`rate` must be between 1 and {MAX_RATE}")))?;
            Adjustment { rate: Some(rate), multiply: None }
        }
        (Action::Adjust, None, Some(number)) => {
            let factor = number.as_f64().ok_or_else(number_error)?;
            let factor = Factor::try_from(factor).map_err(|error| Problem::bad_request(error.to_string()))?;
            Adjustment { rate: None, multiply: Some(factor) }
        }
        (Action::Adjust, ..) => return Err(number_error()),
    };
    match scope {
        Scope::Limit { route, limit } => {
            let limiter = &active.limit(route, limit)?.limit.limiter;
            if !limiter.is_adjustable() {
                let detail =
                    "the rate of this limit cannot differ between clients: it is OVERALL, or shared with Redisson";
                return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
            }
        }
        _ if adjustment.rate.is_some() => {
            let detail = "`rate` needs a limit, since the intervals of limits differ: set `scope` to ROUTE/LIMIT, or use \
                          `multiply`";
            return Err(Problem::bad_request(detail));
        }
        _ => {}
    }
    Ok(adjustment)
}

/// Returns the end.
fn until(now: Timestamp, duration: Option<&str>, until: Option<&str>) -> Result<Timestamp, Problem> {
    let until = match (duration, until) {
        (Some(duration), None) => {
            let millis =
                Millis::parse(duration).ok_or_else(|| Problem::bad_request("`for` is not a duration such as 30m"))?;
            now.plus_millis(millis.0)
        }
        (None, Some(until)) => {
            let until: Option<jiff::Timestamp> = until.parse().ok();
            let millis = until.and_then(|until| u64::try_from(until.as_millisecond()).ok());
            Timestamp::from_millis(millis.ok_or_else(|| Problem::bad_request("`until` is not a time of RFC 3339"))?)
        }
        _ => return Err(Problem::bad_request("an override needs an end: set either `for` or `until`")),
    };
    match until.millis_since(now) {
        0 => Err(Problem::bad_request("the end is not in the future")),
        millis if millis > MAX_DURATION => Err(Problem::bad_request("an override lasts at most 30 days")),
        _ => Ok(until),
    }
}
