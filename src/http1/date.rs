//! The `Date` field (RFC 9110 section 6.6.1), formatted once a second.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;
use httpdate::HttpDate;

use crate::clock;

/// A second and its formatted date.
struct CachedDate {
    second: u64,
    text: HeaderValue,
}

thread_local! {
    static LAST: RefCell<CachedDate> =
        const { RefCell::new(CachedDate { second: 0, text: HeaderValue::from_static("") }) };
}

/// Calls `write` with the current date.
pub(super) fn with_date(write: impl FnOnce(&[u8])) {
    with_date_value(|text| write(text.as_bytes()));
}

/// Returns the current date as a field value.
pub(crate) fn date_value() -> HeaderValue {
    with_date_value(HeaderValue::clone)
}

fn with_date_value<T>(read: impl FnOnce(&HeaderValue) -> T) -> T {
    let second = clock::unix_seconds();
    LAST.with_borrow_mut(|last| {
        if last.second != second || last.text.is_empty() {
            let text = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string();
            *last = CachedDate { second, text: HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("")) };
        }
        read(&last.text)
    })
}
