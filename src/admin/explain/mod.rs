//! `POST /api/v1/explain`: explains how the rules apply to a request, and what its limits would decide now. Charges
//! nothing.

pub(super) mod call;
mod request;
mod response;
#[cfg(test)]
mod tests;

use axum::Json;
use axum::extract::State;
use futures_util::future::join_all;
use serde_json::{Value, json};

use self::request::Request;
use self::response::{Explained, Remaining};
use super::only_object::OnlyObject;
use super::problem::Problem;
use super::{Active, Admin};
use tidegate_layer::layer::RateLimitLayer;
use tidegate_limit::clock::wall_time;
use tidegate_replay::explain::ExplainedRequest;
use tidegate_rules::charge::Charge;
use tidegate_store::{Inspection, StoreError};

/// The charge of each limit of the route; `None` for limits that do not count the request.
type Charges = Vec<Option<Charge>>;

/// Explains which route and limits apply to a request, and whether they would admit it now.
///
/// Charges nothing, and needs no token.
#[utoipa::path(
    post,
    path = "/explain",
    tag = "limits",
    request_body = Request,
    responses((status = 200, description = "The evaluation of the request", body = Explained), Problem)
)]
pub(super) async fn explain(
    State(admin): State<Admin>,
    Json(OnlyObject(request)): Json<OnlyObject<Request>>,
) -> Result<Json<Value>, Problem> {
    let request = request.parse().map_err(Problem::bad_request)?;
    let active = admin.active.load_full();
    let mut value = json!(active.explain(&request, &admin.layer).await);
    active.config.secrets.mask_json(&mut value);
    Ok(Json(value))
}

impl Active {
    async fn explain(&self, request: &ExplainedRequest, layer: &RateLimitLayer) -> Explained {
        let (mut explained, charges) = self.evaluate(request, layer);
        let read = join_all(charges.iter().map(|charge| self.inspect(charge.as_ref()))).await;
        explained.add_remaining(read);
        explained
    }

    /// Evaluates the rules and the overrides of the layer, without the store.
    fn evaluate(&self, request: &ExplainedRequest, layer: &RateLimitLayer) -> (Explained, Charges) {
        request.explain(&self.config, wall_time(), |result| match result {
            Ok(explanation) => Explained::new(explanation, self, layer),
            Err(answer) => (Explained::answered(answer), Vec::new()),
        })
    }

    /// Reads what remains for a charge.
    async fn inspect(&self, charge: Option<&Charge>) -> Option<Remaining> {
        let read: Result<Inspection, StoreError> = self.store.inspect(charge?).await;
        Some(Remaining::from(read))
    }
}
