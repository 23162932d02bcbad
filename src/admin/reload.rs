//! `POST /api/v1/reload`: reloads the rule file.

use std::fmt;
use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::IF_MATCH;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::audit::{Change, at_gateway};
use super::conditional::EntityTags;
use super::gateway_name::GatewayName;
use super::problem::Problem;
use super::{Admin, ConfigProblem};

/// Reloads the rule file if the condition holds, which is checked when no other reload is in progress. Blocks. Returns the
/// report.
pub(crate) type ReloadHook = Box<dyn Fn(&dyn Fn() -> bool) -> Result<Value, ReloadFailure> + Send + Sync>;

/// Why the rule file was not reloaded.
#[derive(Debug)]
pub(crate) enum ReloadFailure {
    /// The condition does not hold.
    Precondition,
    /// The file has errors.
    Invalid(Vec<ConfigProblem>),
}

/// The hook, once the gateway has a rule file.
#[derive(Default)]
pub(super) struct ReloadSlot(OnceLock<ReloadHook>);

impl ReloadSlot {
    pub(super) fn set(&self, hook: ReloadHook) {
        _ = self.0.set(hook);
    }
}

impl fmt::Debug for ReloadSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReloadSlot").field(&self.0.get().is_some()).finish()
    }
}

/// Reloads the rule file.
///
/// Answers once the new rules, listeners included, are in force. `If-Match` requires a certain rule file in use.
#[utoipa::path(
    post,
    path = "/reload",
    tag = "configuration",
    params(("If-Match" = Option<String>, Header, description = "The `ETag` of `/api/v1/config`")),
    responses((status = 200, description = "The changes.", body = Object), Problem),
    security(("token" = []))
)]
pub(super) async fn reload(State(admin): State<Admin>, headers: HeaderMap) -> Result<Response, Problem> {
    let operator = admin.active.load_full().authorizer.authorize(&headers).await?;
    let expected = EntityTags::read(&headers, &IF_MATCH, false)?;
    let is_expected = move |admin: &Admin| expected.as_ref().is_none_or(|expected| admin.status.matches(expected));
    let report = admin.reload_rules((operator, None), is_expected).await?;
    Ok(Json(report).into_response())
}

impl Admin {
    /// Reloads the rule file if the condition holds. `by` is the operator, and the name of this gateway if the reload is a
    /// command for all gateways. Returns the report.
    pub(super) async fn reload_rules(
        &self,
        by: (String, Option<GatewayName>),
        condition: impl Fn(&Self) -> bool + Send + 'static,
    ) -> Result<Value, Problem> {
        let (admin, (operator, place)) = (self.clone(), by);
        let target = at_gateway("the rule file".to_owned(), place.as_ref());
        let change = Change { operator, action: "reload", target, client: None, reason: None };
        // A separate thread: a client that disconnects must not interrupt a change.
        let reloaded = spawn_blocking(move || {
            let reloaded = admin.reload.0.get()?(&|| condition(&admin));
            if !matches!(reloaded, Err(ReloadFailure::Precondition)) {
                admin.audit.record(change, reloaded.as_ref().map(|_| ()).map_err(|_| REJECTED));
            }
            Some(reloaded)
        });
        match reloaded.await {
            Ok(Some(Ok(report))) => Ok(report),
            Ok(Some(Err(ReloadFailure::Invalid(errors)))) => {
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, REJECTED).with("errors", json!(errors)))
            }
            Ok(Some(Err(ReloadFailure::Precondition))) => Err(Problem::new(StatusCode::PRECONDITION_FAILED, CHANGED)),
            Ok(None) => Err(Problem::new(StatusCode::CONFLICT, "the gateway has no rule file")),
            Err(_) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the reload panicked")),
        }
    }
}

const CHANGED: &str = "`If-Match` is not the hash of the rule file in use";
const REJECTED: &str = "the rules were not reloaded, the previous ones stay in use";
