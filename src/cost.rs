//! What one request costs: a number of the rule file, or one that the request brings in a header field.
//!
//! A field is whatever a client makes of it. So what is no cost is a bad request and never a guess: a guess that is too
//! low walks around the limit, one that is too high lets a typing error spend the quota of all clients.

use http::HeaderName;

use crate::facts::Facts;

/// What a limit's `permits` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for every request.
    Fixed(u32),
    /// What the request says.
    Header(HeaderCost),
}

/// A cost that a header field tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderCost {
    /// The field.
    pub name: HeaderName,
    /// What a request without the field costs.
    pub default: u32,
    /// The most that a request may say; anything without it. What a limit can never grant it refuses, without a
    /// `Retry-After`.
    pub max: Option<u32>,
}

/// Why a request has no cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// The field holds something other than digits.
    #[error("is not a whole number")]
    NotWhole,
    /// The field says more than `max`.
    #[error("is above {0}")]
    AboveMax(u32),
    /// The field is there more than once; which of them the upstream would believe is anybody's guess.
    #[error("was sent twice")]
    Ambiguous,
}

impl Cost {
    /// What a request with these facts costs; 0 asks for what is left and takes nothing.
    ///
    /// # Errors
    /// The request tells its cost in a way that is none.
    pub fn for_request(&self, facts: &Facts<'_>) -> Result<u32, CostError> {
        match self {
            Self::Fixed(permits) => Ok(*permits),
            Self::Header(cost) => cost.read(facts),
        }
    }
}

impl HeaderCost {
    fn read(&self, facts: &Facts<'_>) -> Result<u32, CostError> {
        let mut values = facts.headers.get_all(&self.name).iter();
        let permits = match (values.next(), values.next()) {
            (None, _) => return Ok(self.default),
            (Some(_), Some(_)) => return Err(CostError::Ambiguous),
            (Some(value), None) => parse_digits(value.as_bytes().trim_ascii()).ok_or(CostError::NotWhole)?,
        };
        match self.max {
            Some(max) if permits > max => Err(CostError::AboveMax(max)),
            _ => Ok(permits),
        }
    }
}

/// Digits, however many: a number that is too large to count is larger than any limit's.
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
            tls: None,
            key: None,
        };
        Cost::Header(HeaderCost { name: FIELD, default: 3, max }).for_request(&facts)
    }

    #[test]
    fn a_request_costs_what_its_field_says_and_without_one_the_default() {
        assert_eq!(cost(Some(50), &[]), Ok(3));
        assert_eq!(cost(Some(50), &[b"0"]), Ok(0));
        assert_eq!(cost(Some(50), &[b" 050\t"]), Ok(50));
        assert_eq!(cost(None, &[b"4294967295"]), Ok(u32::MAX));
        assert_eq!(cost(None, &[b"99999999999999999999999"]), Ok(u32::MAX));
    }

    #[test]
    fn what_is_no_cost_is_never_guessed_at() {
        for garbage in
            [&b""[..], b" ", b"-1", b"+1", b"1.5", b"1e3", b"0x10", b"1,1", b"1 1", b"many", b"\xff", b"\xd9\xa3"]
        {
            assert_eq!(cost(None, &[garbage]), Err(CostError::NotWhole), "{garbage:?}");
        }
        assert_eq!(cost(Some(50), &[b"51"]), Err(CostError::AboveMax(50)));
        assert_eq!(cost(Some(50), &[b"18446744073709551617"]), Err(CostError::AboveMax(50)));
        assert_eq!(cost(Some(50), &[b"1", b"1"]), Err(CostError::Ambiguous));
    }

    proptest! {
        #[test]
        fn no_field_makes_a_cost_above_the_most(max: u32, value in "[ -~]{0,40}") {
            let cost = cost(Some(max), &[value.as_bytes()]);
            prop_assert!(cost.is_err() || cost.is_ok_and(|cost| cost <= max));
        }
    }
}
