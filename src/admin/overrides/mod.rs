//! `/api/v1/overrides`: lists, creates and removes overrides of limits.

mod request;

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use self::request::NewOverride;
use super::audit::Change;
use super::limit_list::{self, ListedLimit};
use super::problem::Problem;
use super::{Active, Admin};
use tidegate_layer::layer::KnownOverrides;
use tidegate_layer::overrides::{Action, Override, Scope};
use tidegate_rules::limits::rule::SHARED_ROUTE;
use tidegate_store::{MAX_OVERRIDES, PutOverride, Store};

/// Returns the overrides that are in force on this gateway.
#[utoipa::path(
    get,
    path = "/overrides",
    tag = "overrides",
    responses((status = 200, description = "The overrides", body = [Object]), Problem)
)]
pub(super) async fn list(State(admin): State<Admin>) -> Result<Json<Value>, Problem> {
    let active = admin.active.load_full();
    let overrides = overrides(&admin)?;
    Ok(Json(overrides.in_force(active.store.now()).map(|entry| show(entry)).collect()))
}

/// Returns the overrides that this gateway applies.
///
/// # Errors
/// The store has not replied since the gateway started, so that it applies none, although there may be some.
fn overrides(admin: &Admin) -> Result<Arc<KnownOverrides>, Problem> {
    let overrides = admin.layer.overrides();
    let detail =
        "this gateway has not read the overrides since it started, because the store does not reply: it applies none";
    if overrides.is_known() { Ok(overrides) } else { Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)) }
}

/// Returns one override.
#[utoipa::path(
    get,
    path = "/overrides/{id}",
    tag = "overrides",
    params(("id" = String, Path, description = "The id of the override", example = "0123456789abcdef")),
    responses((status = 200, description = "The override", body = Object), Problem)
)]
pub(super) async fn get(State(admin): State<Admin>, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    let active = admin.active.load_full();
    let overrides = overrides(&admin)?;
    let found = overrides.in_force(active.store.now()).find(|entry| entry.id == id).map(|entry| show(entry));
    found.map(Json).ok_or_else(unknown)
}

/// Creates an override.
///
/// After `adjust`, `skipped` has the limits of the scope whose rate stays: OVERALL limits, and limits of Redisson.
#[utoipa::path(
    post,
    path = "/overrides",
    tag = "overrides",
    request_body = NewOverride,
    responses((status = 201, description = "The new override", body = Object), Problem),
    security(("token" = []))
)]
pub(super) async fn create(
    State(admin): State<Admin>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let request = NewOverride::parse(&body)?;
    let replaces = request.replace;
    let entry = request.into_override(&active, operator)?;
    let (change, mut response) = (change(&entry, entry.action.name(), &entry.by, Some(&entry.reason)), show(&entry));
    if entry.action == Action::Adjust {
        response["skipped"] = json!(active.not_adjustable(&entry.scope));
    }
    response["stored"] = json!(if active.store.is_redis() { "redis" } else { "memory" });
    admin.make_change(change, move |admin| async move { write(&admin, &active.store, &entry, replaces).await }).await?;
    Ok((StatusCode::CREATED, Json(response)))
}

/// Removes an override.
#[utoipa::path(
    delete,
    path = "/overrides/{id}",
    tag = "overrides",
    params(("id" = String, Path, description = "The id of the override", example = "0123456789abcdef")),
    responses((status = 200, description = "The override that was removed", body = Object), Problem),
    security(("token" = []))
)]
pub(super) async fn remove(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let active = admin.active.load_full();
    let operator = active.authorizer.authorize(&headers).await?;
    let overrides = admin.layer.overrides();
    let change = match overrides.in_force(active.store.now()).find(|entry| entry.id == id) {
        Some(entry) => change(entry, "remove_override", &operator, None),
        // Another gateway may have just created it. The id of no override is not recorded, since it is any text.
        None if !is_id(&id) => return Err(unknown()),
        None => Change { operator, action: "remove_override", target: id.clone(), client: None, reason: None },
    };
    let removed = id.clone();
    let text = admin.make_change(change, move |admin| async move {
        restore(&admin).await;
        let text = active.store.remove_override(&removed).await?;
        refresh(&admin).await;
        text.ok_or_else(unknown)
    });
    // Another version of this program may have written it in another form.
    let removed = serde_json::from_str::<Override>(&text.await?);
    Ok(Json(removed.map_or_else(|_| json!({ "id": id }), |entry| show(&entry))))
}

async fn write(admin: &Admin, store: &Store, entry: &Override, replaces: bool) -> Result<(), Problem> {
    let text = serde_json::to_string(entry);
    let text = text.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    restore(admin).await;
    match store.put_override(&entry.id, &text, entry.until, replaces).await? {
        PutOverride::Done => {}
        PutOverride::Exists => {
            let detail = format!(
                "override {} has this action, scope and target: remove it, or set `replace` (`--replace`)",
                entry.id
            );
            return Err(Problem::new(StatusCode::CONFLICT, detail).with("id", json!(entry.id)));
        }
        PutOverride::Full => {
            let detail =
                format!("there are {MAX_OVERRIDES} overrides: remove some, or ban networks instead of addresses");
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
        }
    }
    refresh(admin).await;
    Ok(())
}

/// Restores overrides that the store has lost, so that a change finds them. If the store does not reply, the change fails.
async fn restore(admin: &Admin) {
    _ = admin.layer.refresh_overrides().await;
}

/// Applies the change on this gateway. If the store does not reply now, the next regular reading applies it.
async fn refresh(admin: &Admin) {
    if let Err(error) = admin.layer.refresh_overrides().await {
        tracing::debug!(%error, "changed overrides are not read yet");
    }
}

/// Returns the JSON of an override: its stored form, with the end as a date.
pub(super) fn show(entry: &Override) -> Value {
    let mut value = json!(entry);
    value["until"] = json!(entry.until.to_rfc3339());
    value
}

/// Describes a change of an override for the audit list.
fn change(entry: &Override, action: &'static str, operator: &str, reason: Option<&str>) -> Change {
    Change {
        operator: operator.to_owned(),
        action,
        target: entry.scope.to_string(),
        client: Some(entry.target.to_string()),
        reason: reason.map(str::to_owned),
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn unknown() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no override has this id")
}

impl Active {
    /// Returns the limits of a scope whose rate an override cannot change, as ROUTE/LIMIT.
    fn not_adjustable(&self, scope: &Scope) -> Vec<String> {
        // OVERALL limits of domains are skipped, too, but there can be very many.
        let has_domain = *scope != Scope::All;
        let limits = limit_list::all(&self.config).filter(|listed| has_domain || listed.domain.is_none());
        let skipped = limits.filter(|ListedLimit { route, limit, .. }| {
            scope.contains_limit(route, &limit.name) && !limit.limiter.is_adjustable()
        });
        skipped.map(|ListedLimit { route, limit, .. }| format!("{route}/{}", limit.name)).collect()
    }

    /// Returns `true` if the scope has only limits of a domain.
    fn is_in_domain(&self, scope: &Scope) -> bool {
        match scope {
            Scope::All => false,
            Scope::Route(route) | Scope::Limit { route, .. } => self.domain(route).is_some(),
        }
    }

    /// Returns the scope with this text, with the names of the rules. The names of domains and of their limits can contain slashes:
    /// a limit has precedence over a domain.
    fn scope(&self, text: &str) -> Result<Scope, Problem> {
        let scope: Scope = text.parse().map_err(|error| Problem::bad_request(format!("{error}")))?;
        match &scope {
            Scope::All => Ok(scope),
            Scope::Route(name) => {
                let mut routes = self.config.rules.routes.iter();
                let is_known = name == SHARED_ROUTE || routes.any(|route| *route.name == **name);
                let is_known = is_known || self.domain(name).is_some();
                if is_known { Ok(scope) } else { Err(Problem::new(StatusCode::NOT_FOUND, "no route has this name")) }
            }
            Scope::Limit { route, limit } => match (self.limit(route, limit), self.domain(text)) {
                (Ok(found), _) => Ok(Scope::Limit { route: found.route.to_owned(), limit: found.limit.name.clone() }),
                (Err(_), Some(domain)) => Ok(Scope::Route(domain.route().to_owned())),
                (Err(error), None) => Err(error),
            },
        }
    }
}
