//! `Date` (RFC 9110 section 6.6.1), as it is written once in a second.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;

use crate::clock;

/// The text of a second.
struct Written {
    second: u64,
    text: String,
}

thread_local! {
    static LAST: RefCell<Written> = const { RefCell::new(Written { second: 0, text: String::new() }) };
}

/// Shows the present date.
pub(super) fn date(show: impl FnOnce(&[u8])) {
    let second = clock::unix_seconds();
    LAST.with_borrow_mut(|last| {
        if last.second != second || last.text.is_empty() {
            let text = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string();
            *last = Written { second, text };
        }
        show(last.text.as_bytes());
    });
}
