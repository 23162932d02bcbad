//! Numbers of things in sentences.

/// Returns a number of requests, such as `1 request`.
pub(crate) fn requests(count: u64) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}
