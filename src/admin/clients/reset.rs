//! Resets one client of a limit, or all.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use super::{ClientQuery, LimitPath};
use crate::admin::Admin;
use crate::admin::audit::{Change, MAX_REASON};
use crate::admin::problem::Problem;
use crate::admin::query::Parameters;

/// The result of a reset.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct Cleared {
    route: String,
    limit: String,
    client: Option<String>,
    /// The number of buckets that existed.
    buckets: u64,
    /// The number of gateways that forget cached rejections, local buckets and owed permits within a second.
    gateways: u32,
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
pub(in crate::admin) async fn reset_client(
    State(admin): State<Admin>,
    Path(LimitPath { route, limit }): Path<LimitPath>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<Cleared>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let query = Parameters::parse(query.as_deref(), &["value", "hash", "address", "reason"])?;
    let (reason, named) = (reason(&query)?, active.named(&route, &limit, &query)?);
    let (route, limit, charge) = (named.route.to_owned(), named.limit.name.clone(), named.charge);
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
pub(in crate::admin) async fn reset_limit(
    State(admin): State<Admin>,
    Path(LimitPath { route, limit }): Path<LimitPath>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<Cleared>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let reason = reason(&Parameters::parse(query.as_deref(), &["reason"])?)?;
    let found = active.limit(&route, &limit)?;
    let (route, limit, limiter) = (found.route.to_owned(), found.limit.name.clone(), found.limit.limiter.clone());
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
