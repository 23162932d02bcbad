//! `POST /api/v1/explain/call`: explains which limits apply to a call of the rate limit service, and what they would decide now.
//! Charges nothing.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::overrides;
use super::response::{Remaining, describe_override};
use crate::admin::only_object::OnlyObject;
use crate::admin::problem::Problem;
use crate::admin::{Active, Admin};
use tidegate_layer::layer::PeekedCall;
use tidegate_replay::explain::{CallExplanation, DescriptorText, ExplainCallError, ExplainedCall};

/// A call to explain.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ExplainCallRequest)]
pub(in crate::admin) struct Request {
    /// The name of the domain.
    #[schema(example = "edge")]
    domain: String,
    /// The descriptors, at least one.
    #[schema(value_type = Vec<Descriptor>)]
    descriptors: Vec<OnlyObject<Descriptor>>,
}

/// A descriptor, as in a `RateLimitRequest`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ExplainDescriptor)]
struct Descriptor {
    #[schema(value_type = Vec<DescriptorEntry>)]
    entries: Vec<OnlyObject<DescriptorEntry>>,
}

/// A key and its value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DescriptorEntry {
    key: String,
    value: String,
}

/// The decision that a call would get.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallExplained {
    /// Whether the call would pass now; null if the store does not decide.
    admitted: Option<bool>,
    /// The descriptors, in the order of the call.
    descriptors: Vec<ExplainedDescriptor>,
    /// The explanation as `tidegate explain --live` writes it.
    text: String,
}

/// A descriptor with its limit.
#[derive(Debug, Serialize, ToSchema)]
struct ExplainedDescriptor {
    /// `KEY=VALUE` of each entry, with commas.
    descriptor: String,
    /// The name of its limit; null without one.
    limit: Option<String>,
    /// Whether the descriptor is over its limit now.
    over_limit: bool,
    /// The hash of its client; null for an OVERALL limit.
    client: Option<String>,
    #[serde(flatten)]
    remaining: Remaining,
    /// The override that bans the client, or changes the limit for it.
    #[serde(rename = "override")]
    #[schema(value_type = Option<Object>)]
    in_force: Option<Value>,
}

/// Explains which limits apply to a call of the rate limit service with one hit, and whether they would admit it now.
///
/// Charges nothing, and needs no token.
#[utoipa::path(
    post,
    path = "/explain/call",
    tag = "limits",
    request_body = Request,
    responses((status = 200, description = "The limits of the call", body = CallExplained), Problem)
)]
pub(in crate::admin) async fn explain_call(
    State(admin): State<Admin>,
    Json(OnlyObject(request)): Json<OnlyObject<Request>>,
) -> Result<Json<Value>, Problem> {
    let (call, active) = (request.into_call(), admin.active.load_full());
    let explanation = call.explain(&active.config).map_err(|error| problem(&error))?;
    let domains = admin.layer.active_domains();
    let unknown = || problem(&ExplainCallError::UnknownDomain(call.domain.clone()));
    let peeked = domains.peek(&call.call()).await.ok_or_else(unknown)?;
    let mut value = json!(CallExplained::new(&active, (&call, &explanation), &peeked));
    active.config.secrets.mask_json(&mut value);
    Ok(Json(value))
}

impl Request {
    fn into_call(self) -> ExplainedCall {
        let pair = |OnlyObject(DescriptorEntry { key, value }): OnlyObject<DescriptorEntry>| (key, value);
        let text = |OnlyObject(Descriptor { entries }): OnlyObject<Descriptor>| {
            DescriptorText::new(entries.into_iter().map(pair).collect())
        };
        ExplainedCall { domain: self.domain, descriptors: self.descriptors.into_iter().map(text).collect() }
    }
}

fn problem(error: &ExplainCallError) -> Problem {
    let status = match error {
        ExplainCallError::Call(_) => StatusCode::BAD_REQUEST,
        ExplainCallError::NoService | ExplainCallError::UnknownDomain(_) => StatusCode::NOT_FOUND,
    };
    Problem::new(status, error.to_string())
}

impl CallExplained {
    fn new(
        active: &Active,
        (call, explanation): (&ExplainedCall, &CallExplanation<'_>),
        peeked: &PeekedCall<'_>,
    ) -> Self {
        let charges = &peeked.charges.charges;
        let parts = call.descriptors.iter().zip(explanation.limits()).zip(peeked.charges.statuses());
        let parts = parts.zip(peeked.charges.positions()).zip(&peeked.in_force);
        let descriptors = parts.map(|((((text, limit), status), position), in_force)| {
            let bucket = position.and_then(|position| peeked.buckets.get(position));
            ExplainedDescriptor {
                descriptor: text.to_string(),
                limit: limit.map(str::to_owned),
                over_limit: status.is_over,
                client: position.and_then(|position| active.client_name(charges.at(position).charge)),
                remaining: bucket.map(|bucket| Remaining::from(bucket.clone())).unwrap_or_default(),
                in_force: in_force.as_ref().map(overrides::show),
            }
        });
        let descriptors: Vec<_> = descriptors.collect();
        let is_unknown = peeked.buckets.iter().any(Result::is_err);
        let admitted = if peeked.charges.is_rejected() { Some(false) } else { (!is_unknown).then_some(true) };
        let text = format!("{explanation}{}", describe_now(admitted, &descriptors));
        Self { admitted, descriptors, text }
    }
}

/// Describes what the limits would decide now.
fn describe_now(admitted: Option<bool>, descriptors: &[ExplainedDescriptor]) -> String {
    let mut text = match admitted {
        Some(true) => "\nnow: admitted\n".to_owned(),
        Some(false) => "\nnow: not admitted\n".to_owned(),
        None => "\nnow: the store does not decide\n".to_owned(),
    };
    for (number, ExplainedDescriptor { descriptor, over_limit, remaining, in_force, .. }) in (1..).zip(descriptors) {
        let state = match in_force.as_ref().and_then(|one| one["action"].as_str()) {
            Some("ban") => "the client is banned".to_owned(),
            _ if *over_limit && !remaining.is_read() => "rejects all calls".to_owned(),
            _ => remaining.describe("call"),
        };
        let by = in_force.as_ref().map(describe_override).unwrap_or_default();
        // Writing to a String cannot fail.
        _ = writeln!(text, "  {number}. {descriptor}: {state}{by}");
    }
    text
}
