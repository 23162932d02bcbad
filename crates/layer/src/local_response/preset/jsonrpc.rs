//! The errors of JSON-RPC 2.0, and so of MCP.
//!
//! Clients read an error only from a response with status 200: an error of HTTP breaks the session of many MCP clients. A
//! notification has no response, so it gets an error of HTTP.

use http::StatusCode;
use serde_json::{Value, json};

use super::Refusal;
use crate::local_response::ConfiguredResponse;

/// The code of a call over a limit: one of the codes that JSON-RPC leaves to servers.
const CODE: i32 = -32_029;

/// Returns the response to a request that limits reject: an error for each call with an id.
pub(super) fn response(refusal: Refusal<'_>) -> ConfiguredResponse {
    let data = match refusal.seconds() {
        Some(seconds) => json!({ "retry_after": seconds, "limits": refusal.limits }),
        None => json!({ "limits": refusal.limits }),
    };
    let error = json!({ "code": CODE, "message": refusal.message(), "data": data });
    let error = |id: Value| json!({ "jsonrpc": "2.0", "id": id, "error": error });
    let (ids, is_batch) =
        refusal.body.map_or_else(Default::default, |body| (body.call_ids().collect::<Vec<_>>(), body.is_batch()));
    let mut errors: Vec<_> = ids.into_iter().map(error).collect();
    match (errors.pop(), is_batch) {
        (None, _) => refusal.respond(StatusCode::TOO_MANY_REQUESTS, &error(Value::Null)),
        (Some(only), false) => refusal.respond(StatusCode::OK, &only),
        (Some(last), true) => {
            errors.push(last);
            refusal.respond(StatusCode::OK, &errors)
        }
    }
}
