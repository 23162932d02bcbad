//! The cost of requests that is known only after the response.
//!
//! Before a request is forwarded, it reserves the most that it can cost. For a request to a language model, these are the tokens
//! of its input, and of the outputs that it asks for. A request without a bound of its output gets one. All other requests
//! reserve a number of the rule file.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::charge::OnLost;
use crate::limits::cost_error::CostError;
use crate::limits::usage_source::UsageSource;
use tidegate_limit::text::words::words;
use tidegate_usage::{Prices, Request, Usage, Weights};

/// The cost of a request by the usage that its response reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsageCost {
    /// The number in the response.
    #[serde(rename = "usage")]
    pub source: UsageSource,
    /// The permits that tokens cost.
    #[serde(rename = "prices", serialize_with = "path_of_prices")]
    pub rates: TokenRates,
    /// The bound of requests that do not have one.
    pub reserve: Reserve,
    /// The tokens of output that a stream reserves at a time; `None` reserves the whole bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<u32>,
    /// The models with output that streams do not show, which reserve the whole bound. `*` stands for any characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub whole: Vec<String>,
    /// The most tokens of input that the models accept. Without it, requests are rejected that add input which they do not have.
    pub max_input: Option<u32>,
    /// The effect on the reservations of a gateway that has died.
    pub on_lost: OnLost,
    /// The action if the client leaves before the end of the response.
    pub on_disconnect: OnDisconnect,
}

/// The permits that tokens cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenRates {
    /// The same for all models.
    Weights(Weights),
    /// The prices of the model that the request names.
    Prices {
        /// The path of the file with the prices, as the rule file has it.
        path: Arc<str>,
        /// The prices of all models.
        prices: Arc<Prices>,
    },
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

/// Serializes the path of the prices, or null.
fn path_of_prices<S: Serializer>(rates: &TokenRates, serializer: S) -> Result<S::Ok, S::Error> {
    let path = match rates {
        TokenRates::Weights(_) => None,
        TokenRates::Prices { path, .. } => Some(&**path),
    };
    path.serialize(serializer)
}

impl UsageCost {
    /// Returns the permits that a request reserves at first: the most that it can cost, or its input and the
    /// [first slice](Self::first_slice) of its output.
    ///
    /// # Errors
    /// The request is unknown, or its cost has no bound.
    pub fn bound(&self, request: Option<&Request>) -> Result<u32, CostError> {
        let Reserve::Output(_) = self.reserve else { return Ok(self.least_bound()) };
        let request = request.ok_or(CostError::NoBody)?;
        let input = self.input_bound(request)?;
        let output = self.first_slice(request).unwrap_or_else(|| self.output_bound(request));
        let weights = self.weights(request.model.as_deref()).ok_or(CostError::NoPrice)?;
        Ok(u32::try_from(weights.bound(input, output)).unwrap_or(u32::MAX))
    }

    /// Returns the most tokens of input that a request can have.
    ///
    /// # Errors
    /// The input has no bound.
    pub fn input_bound(&self, request: &Request) -> Result<u64, CostError> {
        match (request.hidden, self.max_input.map(u64::from)) {
            (Some(member), None) => Err(CostError::Hidden(member)),
            (Some(_), Some(max)) => Ok(max),
            (None, max) => Ok(request.input.min(max.unwrap_or(u64::MAX))),
        }
    }

    /// Returns the most tokens of output that a request can have.
    pub fn output_bound(&self, request: &Request) -> u64 {
        request.output.or(self.output().map(u64::from)).unwrap_or_default().saturating_mul(request.outputs)
    }

    /// Returns the tokens of output that a request reserves at first. Returns `None` if it reserves its whole bound: it is no stream
    /// that the gateway can end, or has output that its stream does not show.
    pub fn first_slice(&self, request: &Request) -> Option<u64> {
        let (slice, api) = (u64::from(self.slice?), self.source.api()?);
        let shows_all = request.outputs == 1 && request.hidden.is_none() && !request.reasons;
        let is_whole = |model: &str| self.whole.iter().any(|pattern| matches(pattern.as_bytes(), model.as_bytes()));
        let is_sliced = request.is_stream && shows_all && !request.model.as_deref().is_none_or(is_whole);
        (is_sliced && api.has_endable_streams() && slice < self.output_bound(request)).then_some(slice)
    }

    /// Returns the permits that the tokens of a model cost. Returns `None` if the model has no price.
    pub fn weights(&self, model: Option<&str>) -> Option<Weights> {
        match &self.rates {
            TokenRates::Weights(weights) => Some(*weights),
            TokenRates::Prices { prices, .. } => prices.find(model).copied(),
        }
    }

    /// Returns the most that an empty request without a bound can cost, with the cheapest model.
    pub fn least_bound(&self) -> u32 {
        let bound = match (self.reserve, &self.rates) {
            (Reserve::Output(output), TokenRates::Weights(weights)) => weights.bound(0, output.into()),
            (Reserve::Output(output), TokenRates::Prices { prices, .. }) => {
                prices.least(&Usage { output: output.into(), ..Usage::default() }).unwrap_or_default()
            }
            (Reserve::Total(total), TokenRates::Weights(weights)) => self.source.most(weights, total.into()),
            // Prices need the model of a request, whose bound has another form.
            (Reserve::Total(_), TokenRates::Prices { .. }) => 0,
        };
        u32::try_from(bound).unwrap_or(u32::MAX)
    }

    /// Returns `true` if permits are tokens, and not money or numbers of other responses.
    pub fn counts_tokens(&self) -> bool {
        self.source.counts_tokens() && matches!(self.rates, TokenRates::Weights(_))
    }

    /// Returns the bound of each output that is written into requests without one, in tokens.
    pub fn output(&self) -> Option<u32> {
        if let Reserve::Output(output) = self.reserve { Some(output) } else { None }
    }
}

/// Returns `true` if a pattern with `*` matches the name of a model. The time is at most the product of their lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let (Some(first), Some(last)) = (parts.next(), parts.next_back()) else { return pattern == name };
    let inner = name.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    // The first place of each part leaves the longest rest for the other parts.
    inner.is_some_and(|inner| parts.try_fold(inner, after).is_some())
}

/// Returns the bytes after the first place of a part.
fn after<'n>(name: &'n [u8], part: &[u8]) -> Option<&'n [u8]> {
    let at = (0..=name.len()).find(|at| name[*at..].starts_with(part))?;
    Some(&name[at + part.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_usage::Api;

    fn cost(max_input: Option<u32>) -> UsageCost {
        let (weights, on_lost, on_disconnect) = Default::default();
        let rates = TokenRates::Weights(weights);
        let (source, reserve) = (UsageSource::Api(Api::OpenAi), Reserve::Output(100));
        let (slice, whole) = (None, Vec::new());
        UsageCost { source, rates, reserve, slice, whole, max_input, on_lost, on_disconnect }
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
    fn price_of_the_model_bounds_a_request() {
        let price = |output| Weights::new(0.0, 0.0, 0.0, output).expect("valid");
        let prices = Arc::new(Prices::new(None).with("small", price(1.0)).with("large*", price(20.0)));
        let cost = UsageCost { rates: TokenRates::Prices { path: "prices.yaml".into(), prices }, ..cost(None) };
        let bound = |model: &str| {
            let body = format!(r#"{{"messages":[],"max_tokens":7,"model":"{model}"}}"#);
            cost.bound(Some(&Request::read(Api::OpenAi, body.as_bytes()).expect("valid")))
        };
        assert_eq!([bound("small"), bound("large-2"), bound("other")], [Ok(7), Ok(140), Err(CostError::NoPrice)]);
        assert_eq!(cost.least_bound(), 100);
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

    #[test]
    fn stream_reserves_a_slice_of_its_output() {
        let whole = ["o1*", "*think*"].map(str::to_owned).into();
        let cost = UsageCost { slice: Some(10), whole, ..cost(Some(0)) };
        let bound = |body: &str| {
            cost.bound(Some(&Request::read(Api::OpenAi, body.as_bytes()).expect("valid"))).expect("a bound")
        };
        assert_eq!(bound(r#"{"messages":[],"stream":true,"model":"m"}"#), 10);
        assert_eq!(bound(r#"{"messages":[],"stream":true,"model":"m","max_tokens":9}"#), 9);
        for whole in [
            r#"{"messages":[],"model":"m"}"#,
            r#"{"messages":[],"stream":true}"#,
            r#"{"messages":[],"stream":true,"model":"o1-mini"}"#,
            r#"{"messages":[],"stream":true,"model":"m","reasoning_effort":"low"}"#,
        ] {
            assert_eq!(bound(whole), 100, "{whole}");
        }
        assert_eq!(bound(r#"{"messages":[],"stream":true,"model":"m","n":2}"#), 200);
    }

    #[test]
    fn patterns_of_models_match_whole_names() {
        let is_matched = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        assert!(is_matched("o1*", "o1") && is_matched("*o1*", "openai/o1-mini") && is_matched("a*b*c", "axbxbc"));
        assert!(is_matched("o1", "o1") && !is_matched("o1", "o1-mini") && !is_matched("a*a", "a"));
    }
}
