//! The `Date` field (RFC 9110 section 6.6.1), formatted once a second.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;
use httpdate::HttpDate;
use tokio::time::Instant;

use tidegate_limit::clock::{poll_time, since_epoch};

/// The formatted date, and the end of its second.
struct CachedDate {
    until: Instant,
    text: HeaderValue,
}

thread_local! {
    static LAST: RefCell<Option<CachedDate>> = const { RefCell::new(None) };
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
    let now = poll_time();
    LAST.with_borrow_mut(|last| {
        let date = match last {
            Some(known) if now < known.until => known,
            outdated => outdated.insert(CachedDate::new(now)),
        };
        read(&date.text)
    })
}

impl CachedDate {
    fn new(now: Instant) -> Self {
        let since_epoch = since_epoch();
        let second = Duration::from_secs(since_epoch.as_secs());
        let text = HeaderValue::try_from(HttpDate::from(UNIX_EPOCH + second).to_string());
        let until = now + (second + Duration::from_secs(1)).saturating_sub(since_epoch);
        Self { until, text: text.unwrap_or(HeaderValue::from_static("")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_is_kept_until_its_second_ends() {
        let now = poll_time();
        let date = CachedDate::new(now);
        let left = date.until - now;
        assert!(Duration::ZERO < left && left <= Duration::from_secs(1), "{left:?}");
        LAST.set(Some(CachedDate { until: now + Duration::from_secs(3600), text: HeaderValue::from_static("kept") }));
        assert_eq!(date_value(), "kept");
        LAST.set(Some(CachedDate { until: now, text: HeaderValue::from_static("outdated") }));
        assert!(date_value().to_str().unwrap().ends_with(" GMT"));
    }
}
