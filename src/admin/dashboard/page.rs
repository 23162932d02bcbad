//! The files of the page. They are part of the program.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};

use crate::admin::Admin;
use crate::admin::problem::Problem;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const STYLE: &str =
    concat!(include_str!("../../../dashboard/colors.css"), include_str!("../../../dashboard/dashboard.css"));

/// The files by name, with their types.
const FILES: [(&str, &str, &str); 13] = [
    ("dashboard.css", "text/css; charset=utf-8", STYLE),
    ("main.js", SCRIPT, include_str!("../../../dashboard/main.js")),
    ("data.js", SCRIPT, include_str!("../../../dashboard/data.js")),
    ("draw.js", SCRIPT, include_str!("../../../dashboard/draw.js")),
    ("table.js", SCRIPT, include_str!("../../../dashboard/table.js")),
    ("clients.js", SCRIPT, include_str!("../../../dashboard/clients.js")),
    ("overview.js", SCRIPT, include_str!("../../../dashboard/overview.js")),
    ("details.js", SCRIPT, include_str!("../../../dashboard/details.js")),
    ("client.js", SCRIPT, include_str!("../../../dashboard/client.js")),
    ("changes.js", SCRIPT, include_str!("../../../dashboard/changes.js")),
    ("explain.js", SCRIPT, include_str!("../../../dashboard/explain.js")),
    ("fleet.js", SCRIPT, include_str!("../../../dashboard/fleet.js")),
    ("problems.js", SCRIPT, include_str!("../../../dashboard/problems.js")),
];

/// Returns the page.
pub(super) async fn index(State(admin): State<Admin>) -> Result<Response, Problem> {
    admin.check_dashboard()?;
    Ok(respond(HTML, include_str!("../../../dashboard/index.html")))
}

/// Returns a file of the page.
pub(super) async fn file(State(admin): State<Admin>, Path(file): Path<String>) -> Result<Response, Problem> {
    admin.check_dashboard()?;
    let found = FILES.iter().find(|(name, ..)| *name == file);
    let (_, kind, text) = found.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "the page has no such file"))?;
    Ok(respond(kind, text))
}

fn respond(kind: &'static str, text: &'static str) -> Response {
    let fields = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // Another version of the gateway may serve other files at this address.
        (CACHE_CONTROL, "no-store"),
    ];
    (fields, text).into_response()
}
