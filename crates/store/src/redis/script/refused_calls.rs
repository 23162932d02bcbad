//! Records the calls that Redis refuses, with its error.

use deadpool_redis::redis::RedisError;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::store_error;
use crate::StoreError;

/// The longest text of an error of Redis that is logged, in characters.
const MAX_TEXT: usize = 200;

/// The calls that a node has refused.
#[derive(Debug, Default)]
pub(crate) struct RefusedCalls {
    /// The error of the last one.
    last: Mutex<Option<String>>,
    refused: Notify,
}

impl RefusedCalls {
    /// Converts the error of a call. Records the call if Redis has refused it.
    pub(super) fn record(&self, error: &RedisError) -> StoreError {
        let converted = store_error(error);
        if is_refusal(&converted) {
            *self.last.lock() = Some(text_of(error));
            self.refused.notify_one();
        }
        converted
    }

    /// Returns the error of the last refused call since the previous call of this function.
    pub(crate) fn take_last(&self) -> Option<String> {
        self.last.lock().take()
    }

    /// Waits until Redis refuses a call.
    pub(crate) async fn refused(&self) {
        self.refused.notified().await;
    }
}

/// Returns `true` if Redis refused a call, so that a self-test can find the cause.
pub(crate) fn is_refusal(error: &StoreError) -> bool {
    matches!(error, StoreError::ErrorReply(_)) && !error.breaks_connection() && !error.is_redirected()
}

/// Returns an error of Redis as text, without the arguments of the command, which may contain clients.
pub(crate) fn text_of(error: &RedisError) -> String {
    let (code, detail) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    let detail = detail.split_once(", with args").map_or(detail, |(before, _)| before);
    cut(format!("{code} {detail}").trim_end())
}

/// Returns the start of a text.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}
