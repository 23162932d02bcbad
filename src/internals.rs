//! What benchmarks measure beneath the public names. It is no API: what is here changes and vanishes without notice.

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::Full;

use crate::admission::Standing;
pub use crate::facts::Facts;
use crate::headers::Members;
use crate::limit::{Charge, Decision};
use crate::refusal::Refusal;
use crate::rule::Limit;
use crate::store::settings::KeySecret;

/// Writes the keys of a charge's bucket in Redis, one after the other, into `key`; returns their length together, in bytes.
pub fn redis_keys(charge: &Charge, secret: &KeySecret, key: &mut String) -> usize {
    let mut length = 0;
    crate::store::redis_keys(charge, secret, key, |key| length += key.len());
    length
}

/// What `RateLimit` is made of: the limits of a route, as they are prepared at load, and what each of them said.
#[derive(Debug)]
pub struct RateLimitField {
    members: Members,
    standing: Standing,
}

impl RateLimitField {
    /// Of these limits, with what each said.
    pub fn new(limits: &[Limit], said: &[Decision]) -> Self {
        Self { members: Members::new(limits), standing: said.iter().copied().enumerate().collect() }
    }

    /// The field; none if no limit is told of.
    pub fn write(&self) -> Option<HeaderValue> {
        self.members.rate_limit(&self.standing)
    }
}

/// The answer to a request that the limits of these names refused for so many seconds.
pub fn limited(names: &[&str], seconds: u64) -> Response<Full<Bytes>> {
    let violated = names.iter().copied().collect();
    Refusal::Limited { violated, retry_after: Some(seconds) }.into_response()
}
