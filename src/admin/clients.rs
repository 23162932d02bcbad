//! `/api/v1/limits/{route}/{limit}`: inspects one client of a limit, and resets one or all.

#![expect(unused_qualifications, reason = "utoipa generates them")]

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::audit::{Change, MAX_REASON};
use super::problem::Problem;
use super::query::Parameters;
use super::{Active, Admin, overrides};
use tidegate_layer::overrides::parse_hash;
use tidegate_limit::Mode;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Charge, ClientId};
use tidegate_rules::limits::rule::Limit;
use tidegate_store::Inspection;

/// The limit that a request is about.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct LimitPath {
    /// The name of the route; `@` for a shared limit.
    #[param(example = "rest")]
    pub(super) route: String,
    /// The name of the limit.
    #[param(example = "per-key")]
    pub(super) limit: String,
}

/// The parameters that name a client, for the OpenAPI document. [`Parameters`] reads them, because `value` may repeat.
#[expect(dead_code, reason = "only describes the parameters")]
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct ClientQuery {
    /// The client: a value for each source of the limit's `client`.
    value: Option<Vec<String>>,
    /// Or its hash, from the access log.
    hash: Option<String>,
    /// Or its IP address.
    address: Option<String>,
}

/// The state of a client.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClientState {
    route: String,
    limit: String,
    /// The address or the hash of the client; null for an OVERALL limit.
    client: Option<String>,
    remaining: u32,
    used: u64,
    /// When a request for one permit is granted (RFC 3339); null if never.
    next_permit_at: Option<String>,
    /// When the store may drop the bucket; null for an unused bucket.
    expires_at: Option<String>,
    /// The store's clock.
    now: String,
    /// Whether the client shares the overflow bucket of the embedded store.
    overflow: bool,
    /// The override that bans the client, or changes the limit for it.
    #[serde(rename = "override")]
    in_force: Option<Value>,
}

/// The result of a reset.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Cleared {
    route: String,
    limit: String,
    client: Option<String>,
    /// The number of buckets that existed.
    buckets: u64,
    /// The number of gateways that forget cached rejections, local buckets and owed permits within a second.
    gateways: u32,
}

/// Returns the state of a client. Charges nothing.
#[utoipa::path(
    get,
    path = "/limits/{route}/{limit}/client",
    tag = "limits",
    params(LimitPath, ClientQuery),
    responses((status = 200, description = "The state of the client's bucket", body = ClientState), Problem)
)]
pub(super) async fn inspect(
    State(admin): State<Admin>,
    Path(LimitPath { route, limit }): Path<LimitPath>,
    RawQuery(query): RawQuery,
) -> Result<Json<ClientState>, Problem> {
    let query = Parameters::parse(query.as_deref(), &["value", "hash", "address"])?;
    let active = admin.active.load_full();
    let mut charge = active.charge(&route, &limit, &query)?;
    let in_force = charge.client.as_ref().and_then(|client| admin.layer.override_of(&route, &limit, client));
    let in_force = in_force.map(|(one, limiter)| {
        charge.limiter = limiter;
        overrides::show(&one)
    });
    let inspection = active.store.inspect(&charge).await?;
    let Inspection { now, remaining, used, expires_at, overflow, .. } = inspection;
    Ok(Json(ClientState {
        client: active.client_name(&charge),
        route,
        limit,
        remaining,
        used,
        next_permit_at: inspection.next_permit_at().map(Timestamp::to_rfc3339),
        expires_at: expires_at.map(Timestamp::to_rfc3339),
        now: now.to_rfc3339(),
        overflow,
        in_force,
    }))
}

/// Resets a client.
#[utoipa::path(
    delete,
    path = "/limits/{route}/{limit}/client",
    tag = "limits",
    params(
        LimitPath,
        ClientQuery,
        ("reason" = Option<String>, Query, description = "Why, for the audit list", max_length = 256),
    ),
    responses((status = 200, description = "The number of buckets that were reset", body = Cleared), Problem),
    security(("token" = []))
)]
pub(super) async fn reset_client(
    State(admin): State<Admin>,
    Path(LimitPath { route, limit }): Path<LimitPath>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<Cleared>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let query = Parameters::parse(query.as_deref(), &["value", "hash", "address", "reason"])?;
    let (reason, charge) = (reason(&query)?, active.charge(&route, &limit, &query)?);
    let client = active.client_name(&charge);
    let change = Change { operator, action: "reset_client", target: format!("{route}/{limit}"), client, reason };
    let gateways = active.store.gateways().unwrap_or(1);
    let cleared = Cleared { route, limit, client: change.client.clone(), buckets: 0, gateways };
    let reset = async move { active.store.reset(&charge).await.map(u64::from).map_err(Problem::from) };
    let buckets = admin.make_change(change, |_| reset).await?;
    Ok(Json(Cleared { buckets, ..cleared }))
}

/// Resets all clients of a limit.
#[utoipa::path(
    delete,
    path = "/limits/{route}/{limit}",
    tag = "limits",
    params(
        LimitPath,
        ("reason" = Option<String>, Query, description = "Why, for the audit list", max_length = 256),
    ),
    responses((status = 200, description = "The number of buckets that were reset", body = Cleared), Problem),
    security(("token" = []))
)]
pub(super) async fn reset_limit(
    State(admin): State<Admin>,
    Path(LimitPath { route, limit }): Path<LimitPath>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<Cleared>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let reason = reason(&Parameters::parse(query.as_deref(), &["reason"])?)?;
    let limiter = active.limit(&route, &limit)?.limiter.clone();
    let target = format!("{route}/{limit}");
    let change = Change { operator, action: "reset_limit", target, client: None, reason };
    let gateways = active.store.gateways().unwrap_or(1);
    let reset = async move { active.store.reset_limit(&limiter).await.map_err(Problem::from) };
    let buckets = admin.make_change(change, |_| reset).await?;
    Ok(Json(Cleared { route, limit, client: None, buckets, gateways }))
}

fn reason(query: &Parameters) -> Result<Option<String>, Problem> {
    let reason = query.one("reason")?.filter(|reason| !reason.is_empty());
    match reason {
        Some(reason) if reason.len() > MAX_REASON => {
            Err(Problem::bad_request(format!("`reason` is longer than {MAX_REASON} bytes")))
        }
        reason => Ok(reason),
    }
}

impl Active {
    pub(super) fn limit(&self, route: &str, limit: &str) -> Result<&Limit, Problem> {
        let found = self.config.rules.limits().find(|(owner, other)| *owner == route && other.name == limit);
        found
            .map(|(_, limit)| limit)
            .ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "no limit has this route and name"))
    }

    /// Returns a charge of one permit for the client that the parameters name.
    fn charge(&self, route: &str, name: &str, query: &Parameters) -> Result<Charge, Problem> {
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
        Ok(Charge { shadow: limit.shadow, ..Charge::new(limit.limiter.clone(), client, 1) })
    }

    /// Returns the name of a client for logs and responses, as it is in keys.
    pub(super) fn client_name(&self, charge: &Charge) -> Option<String> {
        charge.client.as_ref().map(|client| self.name_of(client))
    }

    /// Returns the name of a client for logs and responses, as it is in keys.
    pub(super) fn name_of(&self, client: &ClientId) -> String {
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
