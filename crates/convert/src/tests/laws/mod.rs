//! The laws of the sources: how each of them decides about a trace, from its published source. Tests compare them with
//! the decisions of the rule file in virtual time.

pub(crate) mod kong;
pub(crate) mod sentinel;
pub(crate) mod spring;
pub(crate) mod traefik;

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_config::{AnyIdentities, Config};
use tidegate_replay::verdicts::{DetailedRequest, TracedRequest, of_detailed_trace};
use tidegate_rules::request::identity::{ApiKey, AttributeNames, Identity, IdentityKinds};

use crate::Conversion;

/// A Monday at midnight in UTC, the first of a month, in milliseconds since the Unix epoch.
pub(crate) const MONDAY: u64 = 1_764_547_200_000;

/// A request of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// In milliseconds since the start of the trace.
    pub(crate) time: u64,
    /// The last number of the address of the client.
    pub(crate) client: u8,
    pub(crate) target: &'static str,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    /// The id of the API key that was verified.
    pub(crate) key: Option<&'static str>,
}

/// Returns requests of one client for one target, at these times.
pub(crate) fn at<const N: usize>(target: &'static str, times: [u64; N]) -> Vec<Request> {
    times.into_iter().map(|time| Request { time, client: 1, target, ..Request::default() }).collect()
}

/// Returns whether the rule file admits each request of a trace.
#[track_caller]
pub(crate) fn decisions(conversion: &Conversion, trace: &[Request]) -> Vec<bool> {
    let config = match Config::parse_for_gateway(&conversion.rules, &AnyIdentities) {
        Ok(config) => config,
        Err(problems) => panic!("the rule file is not valid:\n{}\n{problems}", conversion.rules),
    };
    let detailed: Vec<_> = trace.iter().map(Request::detailed).collect();
    of_detailed_trace(&config.rules, &detailed)
}

impl Request {
    fn detailed(&self) -> DetailedRequest<'static> {
        let client = IpAddr::from([192, 0, 2, self.client]);
        let request = TracedRequest { time: MONDAY + self.time, client, target: self.target, status: 200 };
        let fields =
            self.headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        DetailedRequest { request, headers: fields.collect::<HeaderMap>(), identity: Some(self.identity()) }
    }

    fn identity(&self) -> Identity {
        let key = self.key.and_then(|id| ApiKey::new(id, None, AttributeNames::default(), [])).map(Arc::new);
        Identity { key, verified: IdentityKinds { key: true, ..IdentityKinds::default() }, ..Identity::default() }
    }
}
