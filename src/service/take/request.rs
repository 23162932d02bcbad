//! Reads the bodies of requests. They are strict JSON: an unknown or repeated member is an error.

use std::time::Duration;

use serde::Deserialize;

use crate::service::lists::AtMost;
use crate::service::problem::Problem;
use tidegate_config::Millis;
use tidegate_layer::layer::take::{PermitRequest, Take};

/// The most limits of a request.
const MAX_LIMITS: usize = 16;

/// The most values of a client: of the entries of a descriptor, with a key for each.
const MAX_VALUES: usize = 64;

/// The longest wait for permits.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The longest id, in bytes.
const MAX_ID: usize = 128;

/// The longest text of an error of the JSON, in bytes: it can repeat a name of the body.
const MAX_DETAIL: usize = 256;

/// The body of `POST /v1/take`. `null` has the same meaning as an absent member.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeBody {
    limits: AtMost<LimitEntry, MAX_LIMITS>,
    max_wait: Option<String>,
    id: Option<String>,
}

/// The body of `POST /v1/return`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReturnBody {
    id: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitEntry {
    limit: String,
    client: Option<Client>,
    permits: Option<u32>,
}

/// One value, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a list of at most 64 texts")]
enum Client {
    One(String),
    Several(AtMost<String, MAX_VALUES>),
}

/// Reads a request for permits.
///
/// # Errors
/// The body is no such JSON, or exceeds a bound.
pub(in crate::service) fn read_take(body: &[u8]) -> Result<Take, Problem> {
    let TakeBody { limits, max_wait, id } = read(body)?;
    if limits.0.is_empty() {
        return Err(Problem::bad_request("`limits` is empty"));
    }
    let requests = limits.0.into_iter().map(LimitEntry::into_request).collect();
    let max_wait = max_wait.as_deref().map_or(Ok(Duration::ZERO), read_wait)?;
    let id = id.map(check_id).transpose()?;
    Ok(Take { requests, max_wait, id })
}

/// Reads a request to give permits back. Returns their id.
///
/// # Errors
/// The body is no such JSON, or exceeds a bound.
pub(in crate::service) fn read_return(body: &[u8]) -> Result<String, Problem> {
    check_id(read::<ReturnBody>(body)?.id)
}

fn check_id(id: String) -> Result<String, Problem> {
    match (1..=MAX_ID).contains(&id.len()) {
        true => Ok(id),
        false => Err(Problem::bad_request(format!("`id` must have 1 to {MAX_ID} bytes"))),
    }
}

impl LimitEntry {
    fn into_request(self) -> PermitRequest {
        let client = match self.client {
            None => Vec::new(),
            Some(Client::One(value)) => vec![value],
            Some(Client::Several(values)) => values.0,
        };
        PermitRequest { limit: self.limit, client, permits: self.permits.unwrap_or(1) }
    }
}

fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let detail = error.to_string();
        let end = (0..=MAX_DETAIL.min(detail.len())).rev().find(|end| detail.is_char_boundary(*end));
        Problem::bad_request(format!("the body is invalid: {}", &detail[..end.unwrap_or_default()]))
    })
}

/// Reads a duration such as `250ms`, as in the rule file.
fn read_wait(text: &str) -> Result<Duration, Problem> {
    let wait = Millis::parse(text).map(Millis::duration).filter(|wait| *wait <= MAX_WAIT);
    wait.ok_or_else(|| Problem::bad_request("`max_wait` must be a duration from 0ms to 60s, such as `250ms`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(body: &str) -> String {
        read_take(body.as_bytes()).expect_err("an error").detail().to_owned()
    }

    #[test]
    fn request_has_the_members_of_the_body() {
        let body = r#"{"limits":[{"limit":"a/b","client":"x","permits":3},{"limit":"c/d"},
            {"limit":"e/f","client":["x","y"],"permits":null}],"max_wait":"1s250ms","id":"order-1"}"#;
        let request = |limit: &str, client: &[&str], permits| {
            let client = client.iter().map(|value| (*value).to_owned()).collect();
            PermitRequest { limit: limit.to_owned(), client, permits }
        };
        let requests = vec![request("a/b", &["x"], 3), request("c/d", &[], 1), request("e/f", &["x", "y"], 1)];
        let take = Take { requests, max_wait: Duration::from_millis(1_250), id: Some("order-1".to_owned()) };
        assert_eq!(read_take(body.as_bytes()).expect("a request"), take);
    }

    #[test]
    fn invalid_bodies_have_their_fault() {
        for (body, fault) in [
            ("", "the body is invalid: EOF while parsing a value at line 1 column 0"),
            ("{}", "the body is invalid: missing field `limits` at line 1 column 2"),
            (r#"{"limits":[]}"#, "`limits` is empty"),
            (r#"{"limits":[],"limits":[]}"#, "the body is invalid: duplicate field `limits`"),
            (r#"{"limits":[{"limit":"a/b"}],"max_wait":"soon"}"#, "`max_wait` must be a duration"),
            (r#"{"limits":[{"limit":"a/b"}],"max_wait":"61s"}"#, "`max_wait` must be a duration"),
            (r#"{"limits":[{"limit":"a/b"}],"id":""}"#, "`id` must have 1 to 128 bytes"),
            (r#"{"limits":[{"limit":"a/b","client":7}]}"#, "a text or a list of at most 64 texts"),
            (r#"{"limits":[{"limit":"a/b","permits":-1}]}"#, "invalid value: integer `-1`, expected u32"),
            (r#"{"limits":[{"limit":"a/b","permits":1.5}]}"#, "expected u32"),
            (r#"{"limits":[{"limit":"a/b","permit":1}]}"#, "unknown field `permit`"),
            (r#"{"limits":[{"limit":"a/b"}]} x"#, "trailing characters"),
        ] {
            assert!(error(body).contains(fault), "{body}: {}", error(body));
        }
        let many = format!(r#"{{"limits":[{}{{"limit":"a/b"}}]}}"#, r#"{"limit":"a/b"},"#.repeat(16));
        assert!(error(&many).contains("a list with at most 16 elements"), "{}", error(&many));
        let long = format!(r#"{{"{}":1}}"#, "é".repeat(10_000));
        assert!(error(&long).len() < 300, "{}", error(&long));
    }
}
