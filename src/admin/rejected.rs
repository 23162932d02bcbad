//! `/api/v1/rejected` and `/api/v1/limits/{route}/{limit}/rejected`: the clients that are rejected most.

#![expect(unused_qualifications, reason = "utoipa generates them")]

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::clients::LimitPath;
use super::problem::Problem;
use super::query::Parameters;
use super::rejecting::Rejecting;
use super::shared_rejected::{SharedClient, SharedName};
use super::{Active, Admin};
use tidegate_layer::rejected::{LimitId, RejectedClient};
use tidegate_limit::clock::{Timestamp, wall_time};
use tidegate_rules::limits::rule::LimitLocation;

/// The maximum number of clients in a response.
const MAX_CLIENTS: usize = 100;

/// A client whose requests were rejected.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Rejected {
    /// The address or the hash of the client; null for an OVERALL limit and the `max` of `concurrency`.
    client: Option<String>,
    /// The plaintext client key, if `show_clients` is set and the key is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    value: Option<Box<str>>,
    /// The upper bound of the rejected requests.
    count: u64,
    /// `count` minus this is the lower bound.
    error: u64,
    route: String,
    /// The cause: `limit`, `concurrency`, `not_identified` (401), `not_allowed` (403), `banned`.
    cause: &'static str,
    /// The name of the limit; null if another cause rejected the requests.
    limit: Option<String>,
    /// The file and the line of the limit.
    #[schema(value_type = Option<Object>)]
    location: Option<LimitLocation>,
    /// The first rejection since the last pause of 15 minutes (RFC 3339).
    since: String,
    /// The last rejection.
    last: String,
}

/// The parameters, for the OpenAPI document. [`Parameters`] reads them.
#[expect(dead_code, reason = "only describes the parameters")]
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct RejectedQuery {
    /// The current minute and the 1, 5 or 15 (default) before it.
    #[param(pattern = "^(1|5|15)$")]
    minutes: Option<String>,
    /// 1: all gateways. With an embedded store, only this gateway.
    #[param(pattern = "^[01]$")]
    all: Option<String>,
}

/// Returns the clients that one limit rejected most, at most 100.
#[utoipa::path(
    get,
    path = "/limits/{route}/{limit}/rejected",
    tag = "limits",
    params(LimitPath, RejectedQuery),
    responses((status = 200, description = "The rejected clients", body = [Rejected]), Problem)
)]
pub(super) async fn list_by_limit(
    State(admin): State<Admin>,
    Path(LimitPath { route, limit }): Path<LimitPath>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<Rejected>>, Problem> {
    let active = admin.active.load_full();
    let found = active.limit(&route, &limit)?;
    let id = LimitId::new(found.route, &found.limit.name);
    admin.rejected_clients(&active, query.as_deref(), Some(id)).await.map(Json)
}

/// Returns the clients that were rejected most, at most 100: by limits, by `concurrency`, for their credentials, or by bans.
#[utoipa::path(
    get,
    path = "/rejected",
    tag = "limits",
    params(RejectedQuery),
    responses((status = 200, description = "The rejected clients of the limit", body = [Rejected]), Problem)
)]
pub(super) async fn list_all(
    State(admin): State<Admin>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<Rejected>>, Problem> {
    let active = admin.active.load_full();
    admin.rejected_clients(&active, query.as_deref(), None).await.map(Json)
}

impl Admin {
    async fn rejected_clients(
        &self,
        active: &Active,
        query: Option<&str>,
        only: Option<LimitId>,
    ) -> Result<Vec<Rejected>, Problem> {
        let query = Parameters::parse(query, &["minutes", "all"])?;
        let minutes = query.minutes()?;
        let of_all_gateways = match query.one("all")?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(_) => return Err(Problem::bad_request("`all` is 0 or 1")),
        };
        let shared = if of_all_gateways { self.shared_rejections(active, minutes).await? } else { None };
        let rejecting = Rejecting::by_id(&active.config);
        // A reload may have removed a limit.
        let named = |id: LimitId| rejecting.get(&id).copied().filter(|_| only.is_none_or(|only| only == id));
        let own = self.rejected.top(wall_time(), minutes).into_iter();
        let own = own.filter_map(|one| named(one.limit).map(|by| active.show(by, one)));
        let Some(shared) = shared else { return Ok(own.take(MAX_CLIENTS).collect()) };
        // Gateways share no values, but this gateway may know some.
        let values: HashMap<String, Box<str>> = own.filter_map(|one| Some((one.client?, one.value?))).collect();
        let shared = shared.into_iter().filter_map(|one| {
            let by = named(one.name.id()?)?;
            let value = one.name.client.as_ref().and_then(|client| values.get(client).cloned());
            Some(Rejected::from_shared(one, value, by))
        });
        Ok(shared.take(MAX_CLIENTS).collect())
    }
}

impl Active {
    fn show(&self, by: Rejecting<'_>, rejected: RejectedClient) -> Rejected {
        let RejectedClient { client, count, error, since, last, value, .. } = rejected;
        Rejected {
            client: client.id().map(|client| self.name_of(&client)),
            value: value.filter(|_| self.config.show_clients),
            count,
            error,
            route: by.route.to_owned(),
            cause: by.cause(),
            limit: by.limit().map(|limit| limit.name.clone()),
            location: by.location(),
            since: since.to_rfc3339(),
            last: last.to_rfc3339(),
        }
    }
}

impl Rejected {
    fn from_shared(shared: SharedClient, value: Option<Box<str>>, by: Rejecting<'_>) -> Self {
        let SharedClient { name: SharedName { route, client, .. }, count, error, since, last } = shared;
        let [since, last] = [since, last].map(|millis| Timestamp::from_millis(millis).to_rfc3339());
        let limit = by.limit().map(|limit| limit.name.clone());
        let (cause, location) = (by.cause(), by.location());
        Self { client, value, count, error, route, cause, limit, location, since, last }
    }
}
