//! `/api/v1/talkers`: the clients with the most requests, bytes or permits.

#![expect(unused_qualifications, reason = "utoipa generates them")]

use axum::Json;
use axum::extract::{RawQuery, State};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::admin::Admin;
use crate::admin::problem::Problem;
use crate::admin::query::Parameters;
use tidegate_limit::clock::wall_time;
use tidegate_proxy::talkers::{Amount, Talker};
use tidegate_rules::charge::ClientId;

/// The maximum number of clients in a response.
const MAX_CLIENTS: usize = 100;

/// The clients with the most of an amount.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct TalkerList {
    /// Whether the gateway counts the requests of clients (`admin.talkers`). Otherwise the list is empty.
    enabled: bool,
    /// The clients, the highest amount first.
    clients: Vec<ListedTalker>,
}

/// A client with its use.
#[derive(Debug, Serialize, ToSchema)]
struct ListedTalker {
    /// The address; for IPv6 the network that counts as one client.
    client: String,
    /// The upper bound of the requests, rejected or not.
    requests: u64,
    /// `requests` minus this is the lower bound. The other errors are alike.
    requests_error: u64,
    /// The bytes of request bodies that were read and of response bodies that were sent.
    bytes: u64,
    bytes_error: u64,
    /// The permits of all limits together.
    permits: u64,
    permits_error: u64,
}

/// The parameters, for the OpenAPI document. [`Parameters`] reads them.
#[expect(dead_code, reason = "only describes the parameters")]
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct TalkersQuery {
    /// The current minute and the 1, 5 or 15 (default) before it.
    #[param(pattern = "^(1|5|15)$")]
    minutes: Option<String>,
    /// The amount that sorts the list: `requests` (default), `bytes` or `permits`.
    #[param(pattern = "^(requests|bytes|permits)$")]
    by: Option<String>,
}

/// Returns the clients with the most requests, bytes or permits on this gateway, rejected or not, at most 100.
#[utoipa::path(
    get,
    path = "/talkers",
    tag = "state",
    params(TalkersQuery),
    responses((status = 200, description = "The clients", body = TalkerList), Problem)
)]
pub(in crate::admin) async fn talkers(
    State(admin): State<Admin>,
    RawQuery(query): RawQuery,
) -> Result<Json<TalkerList>, Problem> {
    let query = Parameters::parse(query.as_deref(), &["minutes", "by"])?;
    let minutes = query.minutes()?;
    let by = match query.one("by")? {
        None => Amount::Requests,
        Some(by) => Amount::parse(&by).ok_or_else(|| Problem::bad_request("`by` is requests, bytes or permits"))?,
    };
    let active = admin.active.load_full();
    let show = |talker: Talker| ListedTalker {
        client: active.name_of(&ClientId::Address(talker.client)),
        requests: talker.requests.count,
        requests_error: talker.requests.error,
        bytes: talker.bytes.count,
        bytes_error: talker.bytes.error,
        permits: talker.permits.count,
        permits_error: talker.permits.error,
    };
    let clients = admin.talkers.top(wall_time(), minutes, by, MAX_CLIENTS).into_iter().map(show).collect();
    Ok(Json(TalkerList { enabled: active.config.talkers, clients }))
}
