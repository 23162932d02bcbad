//! The values of variables for one request.

use std::borrow::Cow;
use std::net::IpAddr;

use super::Variable;
use crate::request::facts::Facts;

/// The values of variables for one request. Parts that are unknown have no values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Values<'v> {
    /// The name of the route.
    pub route: &'v str,
    /// The id of the request, if it has one.
    pub request_id: Option<&'v str>,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The properties of the request.
    pub facts: Option<&'v Facts<'v>>,
    /// The seconds of `Retry-After`.
    pub retry_after: Option<u64>,
    /// The first limit that rejected the request.
    pub limit: Option<&'v str>,
}

impl Values<'_> {
    /// Returns the value of a variable, or `None` if the request has none.
    pub(super) fn get(&self, variable: &Variable) -> Option<Cow<'_, str>> {
        match variable {
            Variable::ClientIp => self.client.map(|address| address.to_string().into()),
            Variable::RequestId => self.request_id.map(Cow::Borrowed),
            Variable::Path => self.facts.map(|facts| facts.path.normalized().into()),
            Variable::Query => Some(self.facts?.query.map_or(Cow::Borrowed(""), |query| format!("?{query}").into())),
            Variable::Uri => self.facts.map(|facts| match facts.query {
                Some(query) => format!("{}?{query}", facts.path.normalized()).into(),
                None => facts.path.normalized().into(),
            }),
            Variable::Host => Some(self.facts?.host.as_ref().into()).filter(|host: &Cow<'_, str>| !host.is_empty()),
            Variable::Route => Some(self.route.into()),
            Variable::RetryAfter => self.retry_after.map(|seconds| seconds.to_string().into()),
            Variable::Limit => self.limit.map(Cow::Borrowed),
            Variable::Identity(value) => self.facts?.identity_value(value),
        }
    }
}
