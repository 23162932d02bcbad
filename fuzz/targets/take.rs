//! Fuzzes the bodies of `POST /v1/take` and `POST /v1/return`.

use std::time::Duration;

use super::call::json_text;
use tidegate::internals::{PermitRequest, Take, read_return, read_take};

/// The bounds of docs/take.md.
const MAX_LIMITS: usize = 16;
const MAX_VALUES: usize = 64;
const MAX_ID: usize = 128;
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The longest error, in bytes.
const MAX_ERROR: usize = 512;

/// Checks that requests keep the bounds, and that their JSON has the same meaning.
pub fn take(data: &[u8]) {
    match read_take(data) {
        Err(error) => check_error(&error),
        Ok(take) => {
            check_bounds(&take);
            let json = json(&take);
            assert_eq!(read_take(json.as_bytes()).as_ref(), Ok(&take), "{json}");
            assert!(read_return(data).is_err(), "`limits` is no member");
        }
    }
    match read_return(data) {
        Err(error) => check_error(&error),
        Ok(id) => {
            assert!((1..=MAX_ID).contains(&id.len()));
            let json = format!("{{\"id\":{}}}", json_text(&id));
            assert_eq!(read_return(json.as_bytes()).as_ref(), Ok(&id), "{json}");
        }
    }
}

fn check_error(error: &str) {
    assert!((1..=MAX_ERROR).contains(&error.len()), "{error}");
}

fn check_bounds(take: &Take) {
    assert!((1..=MAX_LIMITS).contains(&take.requests.len()));
    assert!(take.requests.iter().all(|request| request.client.len() <= MAX_VALUES));
    assert!(take.max_wait <= MAX_WAIT);
    assert!(take.id.as_ref().is_none_or(|id| (1..=MAX_ID).contains(&id.len())));
}

fn json(take: &Take) -> String {
    let limits: Vec<_> = take.requests.iter().map(json_limit).collect();
    let (limits, wait) = (limits.join(","), take.max_wait.as_millis());
    let id = take.id.as_ref().map_or("null".to_owned(), |id| json_text(id));
    format!("{{\"limits\":[{limits}],\"max_wait\":\"{wait}ms\",\"id\":{id}}}")
}

fn json_limit(PermitRequest { limit, client, permits }: &PermitRequest) -> String {
    let values: Vec<_> = client.iter().map(|value| json_text(value)).collect();
    let (limit, values) = (json_text(limit), values.join(","));
    format!("{{\"limit\":{limit},\"client\":[{values}],\"permits\":{permits}}}")
}
