//! `POST /api/v1/reload`: reloads the rule file.

use std::fmt;
use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::audit::Change;
use super::problem::Problem;
use super::{Admin, ConfigProblem};

/// Reloads the rule file. Blocks. Returns the report, or the errors of the file.
pub(crate) type ReloadHook = Box<dyn Fn() -> Result<Value, Vec<ConfigProblem>> + Send + Sync>;

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
pub(super) async fn reload(State(admin): State<Admin>, headers: HeaderMap) -> Result<Response, Problem> {
    let operator = admin.active.load_full().authorizer.authorize(&headers).await?;
    let change = Change { operator, action: "reload", target: "the rule file".to_owned(), client: None, reason: None };
    // A separate thread: a client that disconnects must not interrupt a change.
    let reloaded = spawn_blocking(move || {
        let reloaded = admin.reload.0.get()?();
        let outcome = reloaded.as_ref().map(|_| ()).map_err(|_| REJECTED);
        admin.audit.record(change, outcome);
        Some(reloaded)
    });
    match reloaded.await {
        Ok(Some(Ok(report))) => Ok(Json(report).into_response()),
        Ok(Some(Err(errors))) => {
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, REJECTED).with("errors", json!(errors)))
        }
        Ok(None) => Err(Problem::new(StatusCode::CONFLICT, "the gateway has no rule file")),
        Err(_) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the reload panicked")),
    }
}

const REJECTED: &str = "the rules were not reloaded, the previous ones stay in use";
