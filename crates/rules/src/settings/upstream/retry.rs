//! The retries of requests to an upstream.

use serde::Serialize;

use tidegate_limit::text::words::words;

/// When and how often failed requests are sent again: `retry:` of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RetrySettings {
    /// How many times a request is sent again.
    pub attempts: u32,
    /// The failures after which a request is sent again.
    pub on: Vec<RetryOn>,
    /// The highest share of retries, in percent of the requests.
    pub budget_percent: u8,
    /// The longest body that is kept to send it again, in bytes.
    #[serde(rename = "body_bytes")]
    pub body: usize,
}

words! {
    /// A failure after which a request can be sent again.
    pub enum RetryOn, default Connect {
        /// No connection was opened.
        Connect = "connect",
        /// The request was not sent, or the target did not process it.
        Unsent = "unsent",
        /// The connection was closed before the response.
        Reset = "reset",
        /// The response did not begin in time.
        Timeout = "timeout",
        /// The response has the status 500.
        InternalError = "500",
        /// The response has the status 502.
        BadGateway = "502",
        /// The response has the status 503.
        Unavailable = "503",
        /// The response has the status 504.
        GatewayTimeout = "504",
    }
}

words! {
    /// The short form of `retry:`.
    pub enum RetryMode, default Off {
        /// The gateway sends no request to a second target.
        Off = "off",
    }
}

impl RetrySettings {
    /// The longest body that is kept by default.
    pub const DEFAULT_BODY: usize = 64 * 1024;
}

impl Default for RetrySettings {
    /// Returns the defaults of the rule file.
    fn default() -> Self {
        let on = vec![RetryOn::Connect, RetryOn::Unsent, RetryOn::Reset, RetryOn::Timeout];
        Self { attempts: 1, on, budget_percent: 20, body: Self::DEFAULT_BODY }
    }
}
