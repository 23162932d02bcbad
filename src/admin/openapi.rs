//! `/api/openapi.json`: the OpenAPI document of the admin listener. The annotations of the handlers describe the
//! operations; `routes!` adds a handler to the router and to the document.

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::Admin;
use super::problem::ProblemBody;

/// The document without its operations.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tidegate admin API",
        description = "Shows and changes the state of a running gateway. Errors are `application/problem+json` \
                       (RFC 9457). Changes over TCP need a token of the token file.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    components(schemas(ProblemBody)),
    modifiers(&Token),
    tags(
        (name = "configuration", description = "The rule file"),
        (name = "state", description = "The state of this gateway"),
        (name = "limits", description = "Limits and their clients"),
        (name = "overrides", description = "Bans, exemptions and other rates for one client"),
        (name = "health", description = "Health checks and metrics")
    )
)]
struct Base;

/// The token for changes.
struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut Document) {
        let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("token", token);
    }
}

/// Returns the document without its operations.
pub(super) fn base() -> Document {
    Base::openapi()
}

/// Serves the document. It describes all routes but its own.
pub(super) fn serve(document: &Document) -> Router<Admin> {
    let text = Bytes::from(document.to_json().unwrap_or_default());
    Router::new().route("/api/openapi.json", get(move || async move { ([(CONTENT_TYPE, "application/json")], text) }))
}
