//! `POST /api/v1/reload`: reloads the rule file.

#![expect(unused_qualifications, reason = "utoipa generates them")]

use std::fmt;
use std::sync::OnceLock;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::header::IF_MATCH;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use utoipa::IntoParams;

use super::audit::{Change, at_gateway};
use super::conditional::EntityTags;
use super::gateway_name::GatewayName;
use super::problem::Problem;
use super::query::Parameters;
use super::{Admin, ConfigProblem};

/// Reloads the rule file if the condition holds, which is checked when no other reload is in progress. The first argument is
/// whether a changed store may be unreachable. Blocks. Returns the report.
pub(crate) type ReloadHook = Box<dyn Fn(bool, &dyn Fn() -> bool) -> Result<Value, ReloadFailure> + Send + Sync>;

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

/// The parameters, for the OpenAPI document. [`Parameters`] reads them.
#[expect(dead_code, reason = "only describes the parameters")]
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct ReloadQuery {
    /// `true`: use a `store` at another address even if no Redis replies there.
    #[param(pattern = "^(true|false)$")]
    force: Option<String>,
}

/// Reloads the rule file.
///
/// Answers once the new rules, listeners included, are in force. `If-Match` requires a certain rule file in use.
#[utoipa::path(
    post,
    path = "/reload",
    tag = "configuration",
    params(ReloadQuery, ("If-Match" = Option<String>, Header, description = "The `ETag` of `/api/v1/config`")),
    responses((status = 200, description = "The changes.", body = Object), Problem),
    security(("token" = []))
)]
pub(super) async fn reload(
    State(admin): State<Admin>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let operator = admin.active.load_full().authorizer.authorize(&headers).await?;
    let force = match Parameters::parse(query.as_deref(), &["force"])?.one("force")?.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Problem::bad_request("`force` is `true` or `false`")),
    };
    let expected = EntityTags::read(&headers, &IF_MATCH, false)?;
    let is_expected = move |admin: &Admin| expected.as_ref().is_none_or(|expected| admin.status.matches(expected));
    let report = admin.reload_rules((operator, None), force, is_expected).await?;
    Ok(Json(report).into_response())
}

impl Admin {
    /// Reloads the rule file if the condition holds. `by` is the operator, and the name of this gateway if the reload is a
    /// command for all gateways. With `force`, a changed store may be unreachable. Returns the report.
    pub(super) async fn reload_rules(
        &self,
        by: (String, Option<GatewayName>),
        force: bool,
        condition: impl Fn(&Self) -> bool + Send + 'static,
    ) -> Result<Value, Problem> {
        let (admin, (operator, place)) = (self.clone(), by);
        let target = at_gateway("the rule file".to_owned(), place.as_ref());
        let change = Change { operator, action: "reload", target, client: None, reason: None };
        // A separate thread: a client that disconnects must not interrupt a change.
        let reloaded = spawn_blocking(move || {
            let reloaded = admin.reload.0.get()?(force, &|| condition(&admin));
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
