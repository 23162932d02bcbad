//! `/api/v1/limits/{route}/{limit}`: inspects one client of a limit, and resets one or all.

#![expect(unused_qualifications, reason = "utoipa generates them")]

mod named;
mod rates;
pub(super) mod reset;
mod searches;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use self::rates::{Figures, PossibleRate, RateSource};
use super::problem::Problem;
use super::query::Parameters;
use super::{Admin, overrides};
use tidegate_layer::overrides::{Action, Override};
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Charge, Limiter};

/// The limit that a request is about.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct LimitPath {
    /// The name of the route; `@` for a shared limit, and `/DOMAIN` for a limit of a domain, with `%2F` for each slash.
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
    /// The client: a value for each source of the limit's `client`, or for each key that a limit of a domain counts separately.
    value: Option<Vec<String>>,
    /// Or its hash, from the access log.
    hash: Option<String>,
    /// Or its IP address. Limits of domains know no addresses.
    address: Option<String>,
}

/// The state of a client. The figures are for the rate that applies to the client, with its override.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClientState {
    route: String,
    limit: String,
    /// The address or the hash of the client; null for an OVERALL limit.
    client: Option<String>,
    /// The tier of the client; null if it is not known, and for a limit without tiers.
    tier: Option<String>,
    /// How the rate of the client is known.
    rate_from: RateSource,
    #[serde(flatten)]
    figures: Figures,
    /// Whether a request for one permit is granted now; if the rate is not known, at each of the `rates`.
    granted: bool,
    /// All rates of a limit that takes its rate from the request: its tiers, or the default and the largest rate.
    rates: Vec<PossibleRate>,
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

/// Returns the state of a client. Charges nothing.
///
/// Requests of the client can show a tier or a rate that this request lacks. Then `remaining` is null, and `rates` has the
/// figures for each of them.
#[utoipa::path(
    get,
    path = "/limits/{route}/{limit}/client",
    tag = "limits",
    params(
        LimitPath,
        ClientQuery,
        ("tier" = Option<String>, Query, description = "The tier of the client, for a limit with `tier`"),
        ("rate" = Option<String>, Query, description = "The number that the client's requests contain, for a limit whose `rate` has `by`"),
    ),
    responses((status = 200, description = "The state of the client's bucket", body = ClientState), Problem)
)]
pub(super) async fn inspect(
    State(admin): State<Admin>,
    Path(LimitPath { route, limit }): Path<LimitPath>,
    RawQuery(query): RawQuery,
) -> Result<Json<ClientState>, Problem> {
    let query = Parameters::parse(query.as_deref(), &["value", "hash", "address", "tier", "rate"])?;
    let active = admin.active.load_full();
    let named = active.named(&route, &limit, &query)?;
    let (route, limit) = (named.route.to_owned(), named.limit.name.clone());
    let in_force = named.charge.client.as_ref().and_then(|client| admin.layer.override_of(&route, &limit, client));
    let adjust = |limiter: &Arc<Limiter>| match &in_force {
        Some(effect) => admin.layer.adjusted(limiter, effect),
        None => Arc::clone(limiter),
    };
    let chosen = rates::choose(&active, &named, &query, adjust).await?;
    // The state of the bucket itself is the same for all rates.
    let limiter = chosen.limiter.clone().unwrap_or_else(|| adjust(&named.limit.limiter));
    let inspection = active.store.inspect(&Charge { limiter, ..named.charge.clone() }).await?;
    let mut rates = rates::possible(named.limit, adjust);
    rates::inspect(&active.store, &named.charge, &mut rates).await?;
    let figures = chosen.limiter.as_deref().map(|limiter| Figures::new(limiter, &inspection)).unwrap_or_default();
    let is_granted = if chosen.limiter.is_some() { figures.grants() } else { rates::all_grant(&rates) };
    Ok(Json(ClientState {
        client: active.client_name(&named.charge),
        route,
        limit,
        tier: chosen.tier,
        rate_from: chosen.from,
        figures,
        granted: is_granted_with(in_force.as_ref(), is_granted),
        rates,
        expires_at: inspection.expires_at.map(Timestamp::to_rfc3339),
        now: inspection.now.to_rfc3339(),
        overflow: inspection.overflow,
        in_force: in_force.as_ref().map(overrides::show),
    }))
}

/// Returns whether requests are granted with an override of their client.
fn is_granted_with(in_force: Option<&Override>, is_granted: bool) -> bool {
    match in_force.map(|effect| effect.action) {
        Some(Action::Ban) => false,
        Some(Action::Exempt) => true,
        Some(Action::Adjust) | None => is_granted,
    }
}
