//! The cost of requests that is known only after the response.
//!
//! Before a request is forwarded, it reserves the most that it can cost. For a request to a language model, these are the tokens
//! of its input, and of the outputs that it asks for. A request without a bound of its output gets one. All other requests
//! reserve a number of the rule file.

use serde::Serialize;

use crate::charge::OnLost;
use crate::limits::cost_error::CostError;
use crate::limits::usage_source::UsageSource;
use tidegate_limit::text::words::words;
use tidegate_usage::{Request, Weights};

/// The cost of a request by the usage that its response reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsageCost {
    /// The number in the response.
    #[serde(rename = "usage")]
    pub source: UsageSource,
    /// The permits that tokens cost.
    #[serde(skip)]
    pub weights: Weights,
    /// The bound of requests that do not have one.
    pub reserve: Reserve,
    /// The most tokens of input that the models accept. Without it, requests are rejected that add input which they do not have.
    pub max_input: Option<u32>,
    /// The effect on the reservations of a gateway that has died.
    pub on_lost: OnLost,
    /// The action if the client leaves before the end of the response.
    pub on_disconnect: OnDisconnect,
}

/// The bound of requests that do not have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reserve {
    /// The tokens of each output. The bound is written into requests to a language model.
    Output(u32),
    /// The most that each response reports.
    Total(u32),
}

words! {
    /// The action if a client leaves before the usage of its request is known.
    pub enum OnDisconnect, default Drain {
        /// The gateway reads the rest of the response, and charges the usage.
        Drain = "drain",
        /// The gateway ends the request, and charges what it has reserved.
        Cancel = "cancel",
    }
}

impl UsageCost {
    /// Returns the most that a request can cost, in permits.
    ///
    /// # Errors
    /// The request is unknown, or its cost has no bound.
    pub fn bound(&self, request: Option<&Request>) -> Result<u32, CostError> {
        let Reserve::Output(output) = self.reserve else { return Ok(self.least_bound()) };
        let request = request.ok_or(CostError::NoBody)?;
        let max_input = self.max_input.map(u64::from);
        let input = match (request.hidden, max_input) {
            (Some(member), None) => return Err(CostError::Hidden(member)),
            (Some(_), Some(max)) => max,
            (None, max) => request.input.min(max.unwrap_or(u64::MAX)),
        };
        let output = request.output.unwrap_or(output.into()).saturating_mul(request.outputs);
        Ok(u32::try_from(self.weights.bound(input, output)).unwrap_or(u32::MAX))
    }

    /// Returns the most that an empty request without a bound can cost.
    pub fn least_bound(&self) -> u32 {
        let bound = match self.reserve {
            Reserve::Output(output) => self.weights.bound(0, output.into()),
            Reserve::Total(total) => self.source.most(&self.weights, total.into()),
        };
        u32::try_from(bound).unwrap_or(u32::MAX)
    }

    /// Returns the bound of each output that is written into requests without one, in tokens.
    pub fn output(&self) -> Option<u32> {
        if let Reserve::Output(output) = self.reserve { Some(output) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_usage::Api;

    fn cost(max_input: Option<u32>) -> UsageCost {
        let (weights, on_lost, on_disconnect) = Default::default();
        let (source, reserve) = (UsageSource::Api(Api::OpenAi), Reserve::Output(100));
        UsageCost { source, weights, reserve, max_input, on_lost, on_disconnect }
    }

    fn bound(max_input: Option<u32>, body: &str) -> Result<u32, CostError> {
        cost(max_input).bound(Some(&Request::read(Api::OpenAi, body.as_bytes()).expect("valid")))
    }

    #[test]
    fn bound_is_the_input_and_all_outputs() {
        let body = r#"{"messages":[],"max_tokens":7,"n":3}"#;
        assert_eq!(bound(None, body), Ok(u32::try_from(body.len()).expect("short") + 21));
        assert_eq!(bound(Some(5), body), Ok(26));
        let unbounded = r#"{"messages":[]}"#;
        assert_eq!(bound(Some(0), unbounded), Ok(100));
    }

    #[test]
    fn cost_of_other_responses_is_bound_by_the_rule_file() {
        let bytes = UsageCost { source: UsageSource::Bytes, reserve: Reserve::Total(70), ..cost(None) };
        assert_eq!((bytes.bound(None), bytes.least_bound(), bytes.output()), (Ok(70), 70, None));
    }

    #[test]
    fn hidden_input_needs_its_bound() {
        let body = r#"{"messages":[],"max_tokens":7,"web_search_options":{}}"#;
        assert_eq!(bound(None, body), Err(CostError::Hidden("/web_search_options")));
        assert_eq!(bound(Some(1_000), body), Ok(1_007));
        assert_eq!(cost(None).bound(None), Err(CostError::NoBody));
    }

    #[test]
    fn cost_above_all_numbers_is_never_granted() {
        assert_eq!(bound(None, r#"{"messages":[],"max_tokens":9007199254740992,"n":9007199254740992}"#), Ok(u32::MAX));
    }
}
