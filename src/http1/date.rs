//! The `Date` field (RFC 9110 section 6.6.1), formatted once a second.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;
use httpdate::HttpDate;

use crate::clock;

/// A second and its text.
struct Written {
    second: u64,
    text: HeaderValue,
}

thread_local! {
    static LAST: RefCell<Written> = const { RefCell::new(Written { second: 0, text: HeaderValue::from_static("") }) };
}

/// Passes the present date to `show`.
pub(super) fn date(show: impl FnOnce(&[u8])) {
    with_present(|text| show(text.as_bytes()));
}

/// The present date as a field value.
pub(crate) fn date_value() -> HeaderValue {
    with_present(HeaderValue::clone)
}

fn with_present<T>(show: impl FnOnce(&HeaderValue) -> T) -> T {
    let second = clock::unix_seconds();
    LAST.with_borrow_mut(|last| {
        if last.second != second || last.text.is_empty() {
            let text = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string();
            *last = Written { second, text: HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("")) };
        }
        show(&last.text)
    })
}
