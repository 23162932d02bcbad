//! `/api/v1/limits/{route}/{limit}`: inspects one client of a limit, and resets one or all.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use super::audit::{Change, MAX_REASON};
use super::problem::Problem;
use super::query::Parameters;
use super::{Active, Admin};
use crate::clock::Timestamp;
use crate::limit::{Charge, ClientId, Inspection, Mode};
use crate::rule::Limit;
use crate::store::StoreError;

/// The route and the limit of a request.
pub(super) type Target = Path<(String, String)>;

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
}

/// The result of a reset.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Cleared {
    route: String,
    limit: String,
    client: Option<String>,
    /// The number of buckets that existed.
    buckets: u64,
}

/// Returns the state of a client. Charges nothing.
#[utoipa::path(
    get,
    path = "/limits/{route}/{limit}/client",
    tag = "limits",
    params(
        ("route" = String, Path, description = "The name of the route", example = "rest"),
        ("limit" = String, Path, description = "The name of the limit", example = "per-key"),
        ("value" = Option<Vec<String>>, Query, description = "The client: a value for each source of the limit's `client`"),
        ("hash" = Option<String>, Query, description = "Or its hash, from the access log"),
        ("address" = Option<String>, Query, description = "Or its IP address"),
    ),
    responses((status = 200, body = ClientState), Problem)
)]
pub(super) async fn inspect(
    State(admin): State<Admin>,
    Path((route, limit)): Target,
    RawQuery(query): RawQuery,
) -> Result<Json<ClientState>, Problem> {
    let query = Parameters::parse(query.as_deref(), &["value", "hash", "address"])?;
    let active = admin.active.load_full();
    let charge = active.charge(&route, &limit, &query)?;
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
    }))
}

/// Resets a client.
#[utoipa::path(
    delete,
    path = "/limits/{route}/{limit}/client",
    tag = "limits",
    params(
        ("route" = String, Path, description = "The name of the route", example = "rest"),
        ("limit" = String, Path, description = "The name of the limit", example = "per-key"),
        ("value" = Option<Vec<String>>, Query, description = "The client: a value for each source of the limit's `client`"),
        ("hash" = Option<String>, Query, description = "Or its hash, from the access log"),
        ("address" = Option<String>, Query, description = "Or its IP address"),
        ("reason" = Option<String>, Query, description = "Why, for the audit list", max_length = 256),
    ),
    responses((status = 200, body = Cleared), Problem),
    security(("token" = []))
)]
pub(super) async fn reset_client(
    State(admin): State<Admin>,
    Path((route, limit)): Target,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<Cleared>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let query = Parameters::parse(query.as_deref(), &["value", "hash", "address", "reason"])?;
    let (reason, charge) = (reason(&query)?, active.charge(&route, &limit, &query)?);
    let client = active.client_name(&charge);
    let change = Change { operator, action: "reset_client", target: format!("{route}/{limit}"), client, reason };
    let cleared = Cleared { route, limit, client: change.client.clone(), buckets: 0 };
    let reset = async move { active.store.reset(&charge).await.map(u64::from) };
    let buckets = make_change(admin, change, reset).await?;
    Ok(Json(Cleared { buckets, ..cleared }))
}

/// Resets all clients of a limit.
#[utoipa::path(
    delete,
    path = "/limits/{route}/{limit}",
    tag = "limits",
    params(
        ("route" = String, Path, description = "The name of the route", example = "rest"),
        ("limit" = String, Path, description = "The name of the limit", example = "per-key"),
        ("reason" = Option<String>, Query, description = "Why, for the audit list", max_length = 256),
    ),
    responses((status = 200, body = Cleared), Problem),
    security(("token" = []))
)]
pub(super) async fn reset_limit(
    State(admin): State<Admin>,
    Path((route, limit)): Target,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<Cleared>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let reason = reason(&Parameters::parse(query.as_deref(), &["reason"])?)?;
    let limiter = active.limit(&route, &limit)?.limiter.clone();
    let target = format!("{route}/{limit}");
    let change = Change { operator, action: "reset_limit", target, client: None, reason };
    let reset = async move { active.store.reset_limit(&limiter).await };
    let buckets = make_change(admin, change, reset).await?;
    Ok(Json(Cleared { route, limit, client: None, buckets }))
}

/// Resets buckets, and records the change. Returns the number of buckets that existed.
async fn make_change(
    admin: Admin,
    change: Change,
    reset: impl Future<Output = Result<u64, StoreError>> + Send + 'static,
) -> Result<u64, Problem> {
    // A separate task: a client that disconnects must not interrupt a change.
    let reset = tokio::spawn(async move {
        let reset = reset.await.map_err(Problem::from);
        admin.audit.record(change, reset.as_ref().map(|_| ()).map_err(Problem::detail));
        reset
    });
    reset.await.unwrap_or_else(|_| Err(interrupted()))
}

fn interrupted() -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the reset was interrupted")
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
    fn limit(&self, route: &str, limit: &str) -> Result<&Limit, Problem> {
        let mut routes = self.config.rules.routes.iter();
        let found = routes.find(|other| *other.name == *route);
        let found = found.and_then(|route| route.limits.iter().find(|other| other.name == limit));
        found.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "no limit has this route and name"))
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
                let is_hash = hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
                let hash = u128::from_str_radix(&hash, 16).ok().filter(|_| is_hash);
                let detail = "`hash` has 32 hexadecimal digits, as in the access log";
                Some(ClientId::Hash(hash.ok_or_else(|| Problem::bad_request(detail))?))
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
        Ok(Charge { limiter: limit.limiter.clone(), client, permits: 1, shadow: limit.shadow })
    }

    /// Returns the name of a client for logs and responses, as it is in keys.
    pub(super) fn client_name(&self, charge: &Charge) -> Option<String> {
        let hash =
            |client| self.store.key_of(client).map_or_else(|| "unknown".to_owned(), |hash| format!("{hash:032x}"));
        Some(match charge.client.as_ref()? {
            ClientId::Address(network) if network.prefix_len() == network.max_prefix_len() => {
                network.addr().to_string()
            }
            ClientId::Address(network) => network.to_string(),
            ClientId::Hash(hash) => format!("{hash:032x}"),
            client => hash(client),
        })
    }
}
