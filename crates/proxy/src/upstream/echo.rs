//! `builtin:echo`: the gateway echoes the request, to try out rules without a server.

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body::Body;
use http_body_util::Full;
use serde_json::{Map, Value, json};

use super::body::RequestBody;
use super::response_body::ResponseBody;

/// Replaces the value of a secret field.
const MASK: &str = "***";

/// Responds with the request's body. Responds to a request without a body with a description of the request.
pub(crate) fn respond(request: &mut Request<RequestBody>) -> Response<ResponseBody> {
    let body = request.body_mut().take();
    if body.is_end_stream() {
        let page = json!({
            "method": request.method().as_str(),
            "path": request.uri().path_and_query().map_or("", |path| path.as_str()),
            "headers": fields(request.headers()),
        });
        let page = ResponseBody::from(Full::from(format!("{page:#}\n")));
        return with_type(page, HeaderValue::from_static("application/json"));
    }
    let octets = HeaderValue::from_static("application/octet-stream");
    let mut response =
        with_type(ResponseBody::echo(body), request.headers().get(header::CONTENT_TYPE).cloned().unwrap_or(octets));
    for name in [header::CONTENT_ENCODING, header::TRAILER] {
        if let Some(value) = request.headers().get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn with_type(body: ResponseBody, content_type: HeaderValue) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Returns the fields in the order of their names. Joins the values of a repeated field.
fn fields(headers: &HeaderMap) -> Map<String, Value> {
    let value_of = |name: &HeaderName| {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        values.join(", ")
    };
    let shown = |name: &HeaderName| if is_secret(name) { MASK.to_owned() } else { value_of(name) };
    headers.keys().map(|name| (name.to_string(), Value::from(shown(name)))).collect()
}

fn is_secret(name: &HeaderName) -> bool {
    let words = ["authorization", "cookie", "token", "secret", "password", "api-key", "apikey"];
    words.iter().any(|word| name.as_str().contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_repeated_fields_joined() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("a", "1"), ("a", "2"), ("authorization", "x"), ("cookie", "x"), ("x-api-key", "x")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let shown = Value::Object(fields(&headers));
        let expected = json!({"a": "1, 2", "authorization": "***", "cookie": "***", "x-api-key": "***"});
        assert_eq!(shown, expected);
    }
}
