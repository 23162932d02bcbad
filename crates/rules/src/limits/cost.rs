//! The cost of a request: a number in the rule file, a number in a header field or in the body of the request, or the usage that
//! its response reports.
//!
//! Clients control header fields and bodies, so an invalid cost is a bad request and is never replaced by a guess. A low guess
//! would bypass the limit; with a high guess, a typing error could use up the quota of all clients.

use http::HeaderName;
use serde::Serialize;

use crate::json;
use crate::limits::budget::UsageCost;
pub use crate::limits::cost_error::CostError;
use crate::request::facts::Facts;
use tidegate_usage::{MemberValue, Pointer};

/// The cost of a request: the `permits` of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Cost {
    /// The same for every request.
    Fixed(u32),
    /// The number in a header field.
    Header(HeaderCost),
    /// The number in a JSON body.
    Json(JsonCost),
    /// The usage that the response reports. The request reserves the most that it can cost.
    Usage(Box<UsageCost>),
}

/// A cost from a header field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeaderCost {
    /// The name of the field.
    #[serde(rename = "header", serialize_with = "json::text")]
    pub name: HeaderName,
    /// The cost of a request without the field.
    pub default: u32,
    /// The maximal cost; `None` accepts any number. A limit refuses costs that it can never grant, without
    /// `Retry-After`.
    pub max: Option<u32>,
}

/// A cost from a JSON body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JsonCost {
    /// The place of the number.
    #[serde(rename = "json", serialize_with = "json::text")]
    pub pointer: Pointer,
    /// The cost of a request without the value.
    pub default: u32,
    /// The maximal cost; `None` accepts any number.
    pub max: Option<u32>,
}

impl Cost {
    /// Returns the largest known cost of a request.
    pub fn max(&self) -> u32 {
        match self {
            Self::Fixed(permits) => *permits,
            Self::Header(HeaderCost { default, max, .. }) | Self::Json(JsonCost { default, max, .. }) => {
                max.unwrap_or(0).max(*default)
            }
            Self::Usage(cost) => cost.least_bound(),
        }
    }

    /// Returns the cost of a request with these facts. A request with the cost 0 takes no permits.
    ///
    /// # Errors
    /// The header field or the value of the body is not a valid cost.
    pub fn for_request(&self, facts: &Facts<'_>) -> Result<u32, CostError> {
        match self {
            Self::Fixed(permits) => Ok(*permits),
            Self::Header(cost) => cost.read(facts),
            Self::Json(cost) => cost.read(facts),
            Self::Usage(cost) => cost.bound(facts.body.as_ref().and_then(|body| body.model.as_ref())),
        }
    }

    /// Returns the cost by the usage of a response.
    pub fn usage(&self) -> Option<&UsageCost> {
        match self {
            Self::Usage(cost) => Some(cost),
            Self::Fixed(_) | Self::Header(_) | Self::Json(_) => None,
        }
    }
}

impl HeaderCost {
    /// Returns the cost of a request with these facts.
    ///
    /// # Errors
    /// The header field is not a valid cost.
    pub fn read(&self, facts: &Facts<'_>) -> Result<u32, CostError> {
        let mut values = facts.headers.get_all(&self.name).iter().map(|value| value.as_bytes().trim_ascii());
        let Some(value) = values.next() else { return Ok(self.default) };
        if values.any(|other| other != value) {
            return Err(CostError::Ambiguous);
        }
        bounded(value, self.max)
    }
}

impl JsonCost {
    /// Returns the cost of a request with these facts. `null` is as no value.
    ///
    /// # Errors
    /// The value of the body is not a valid cost.
    pub fn read(&self, facts: &Facts<'_>) -> Result<u32, CostError> {
        let body = facts.body.as_ref().ok_or(CostError::NoBody)?;
        match body.value(&self.pointer) {
            None | Some(MemberValue::Null) => Ok(self.default),
            Some(MemberValue::Number(number)) => bounded(number.as_bytes(), self.max),
            Some(_) => Err(CostError::NotWhole),
        }
    }
}

fn bounded(digits: &[u8], max: Option<u32>) -> Result<u32, CostError> {
    let permits = parse_digits(digits).ok_or(CostError::NotWhole)?;
    match max {
        Some(max) if permits > max => Err(CostError::AboveMax(max)),
        _ => Ok(permits),
    }
}

/// Parses any number of digits. A number that is too large becomes `u32::MAX`, a cost that no limit grants.
fn parse_digits(digits: &[u8]) -> Option<u32> {
    let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |number: u32, digit: &u8| number.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    valid.then(|| digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;

    const FIELD: HeaderName = HeaderName::from_static("x-cost");

    fn cost(max: Option<u32>, values: &[&[u8]]) -> Result<u32, CostError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(FIELD, HeaderValue::from_bytes(value).expect("a header value"));
        }
        let peer = std::net::Ipv4Addr::LOCALHOST.into();
        let facts = Facts {
            method: &Method::GET,
            host: "a".into(),
            path: "/".into(),
            query: None,
            headers: &headers,
            peer: Some(peer),
            peer_is_client: false,
            peer_is_trusted: false,
            tls: None,
            extensions: None,
            identity: None,
            time: None,
            body: None,
        };
        Cost::Header(HeaderCost { name: FIELD, default: 3, max }).for_request(&facts)
    }

    #[test]
    fn cost_is_the_field_or_the_default() {
        assert_eq!(cost(Some(50), &[]), Ok(3));
        assert_eq!(cost(Some(50), &[b"0"]), Ok(0));
        assert_eq!(cost(Some(50), &[b" 050\t"]), Ok(50));
        assert_eq!(cost(None, &[b"4294967295"]), Ok(u32::MAX));
        assert_eq!(cost(None, &[b"99999999999999999999999"]), Ok(u32::MAX));
    }

    #[test]
    fn invalid_cost_is_an_error() {
        for garbage in
            [&b""[..], b" ", b"-1", b"+1", b"1.5", b"1e3", b"0x10", b"1,1", b"1 1", b"many", b"\xff", b"\xd9\xa3"]
        {
            assert_eq!(cost(None, &[garbage]), Err(CostError::NotWhole), "{garbage:?}");
        }
        assert_eq!(cost(Some(50), &[b"51"]), Err(CostError::AboveMax(50)));
        assert_eq!(cost(Some(50), &[b"18446744073709551617"]), Err(CostError::AboveMax(50)));
        assert_eq!(cost(Some(50), &[b"1", b"2"]), Err(CostError::Ambiguous));
        assert_eq!(cost(Some(50), &[b"7", b" 7"]), Ok(7));
    }

    proptest! {
        #[test]
        fn cost_is_never_above_max(max: u32, value in "[ -~]{0,40}") {
            let cost = cost(Some(max), &[value.as_bytes()]);
            prop_assert!(cost.is_err() || cost.is_ok_and(|cost| cost <= max));
        }
    }
}
