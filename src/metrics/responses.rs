//! Counts the responses of each route by status code.
//!
//! The set of codes is bounded: an upstream may send any three digits, so an unregistered code is counted under its
//! class or as `other`. The counters of a route are created when its rules are loaded, so that counting a response
//! takes no lock.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

#[cfg(feature = "gateway")]
use super::sample::{ResponseKind, Sample};

/// The status codes of the IANA registry, and 499 for a client that disconnected before its response.
const CODES: [u16; 64] = [
    100, 101, 102, 103, 104, 200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 307, 308,
    400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424,
    425, 426, 428, 429, 431, 451, 499, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511,
];

/// The labels of unregistered codes, by class. The last one is for codes outside 100 to 599.
const OTHERS: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

const SERIES: usize = CODES.len() + OTHERS.len();

/// The counters of all routes.
#[derive(Clone, Debug, Default)]
pub(super) struct Responses(Arc<RwLock<BTreeMap<String, RouteResponses>>>);

/// The counters of one route. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct RouteResponses(Arc<[AtomicU64; SERIES]>);

// === impl Responses ===

impl Responses {
    /// Returns the counters of a route.
    pub(super) fn route(&self, route: &str) -> RouteResponses {
        self.0.write().entry(route.to_owned()).or_default().clone()
    }

    /// Adds the responses of all routes to a sample.
    #[cfg(feature = "gateway")]
    pub(super) fn sample(&self, sample: &mut Sample) {
        for (route, responses) in self.0.read().iter() {
            for (position, count) in responses.counted() {
                sample.route(route)[ResponseKind::of(position) as usize] += count;
            }
        }
    }

    /// Removes the series of a route. Existing clones still count, but are no longer exported.
    pub(super) fn remove(&self, route: &str) {
        self.0.write().remove(route);
    }
}

impl EncodeMetric for Responses {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.read().iter().try_for_each(|(route, responses)| {
            responses.counted().try_for_each(|(position, count)| {
                let labels = [("route", Cow::Borrowed(route.as_str())), ("code", label(position))];
                encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
            })
        })
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }

    fn is_empty(&self) -> bool {
        self.0.read().values().all(|responses| responses.counted().next().is_none())
    }
}

// === impl RouteResponses ===

impl RouteResponses {
    /// Counts a response.
    pub(super) fn count(&self, code: u16) {
        self.0[position(code)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the positions with counts above zero.
    fn counted(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0)
    }
}

impl Default for RouteResponses {
    fn default() -> Self {
        Self(Arc::new([const { AtomicU64::new(0) }; SERIES]))
    }
}

#[cfg(feature = "gateway")]
impl ResponseKind {
    /// Returns the kind of the codes that are counted at this position.
    fn of(position: usize) -> Self {
        let class = || u16::try_from((position - CODES.len() + 1) * 100).unwrap_or(0);
        match CODES.get(position).copied().unwrap_or_else(class) {
            429 => Self::Limited,
            499 => Self::ClientGone,
            400..=498 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Successful,
        }
    }
}

/// Returns the position of the counter for a code.
fn position(code: u16) -> usize {
    CODES.binary_search(&code).unwrap_or_else(|_| match code {
        100..=599 => CODES.len() + usize::from(code / 100) - 1,
        _ => SERIES - 1,
    })
}

/// Returns the code, or the class, that is counted at this position.
fn label(position: usize) -> Cow<'static, str> {
    match CODES.get(position) {
        Some(code) => code.to_string().into(),
        None => OTHERS[position - CODES.len()].into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn responses_have_their_exact_code() {
        let metrics = Metrics::new();
        let route = metrics.route("api");
        [200, 429, 429, 503].into_iter().for_each(|code| route.responded(code, Duration::ZERO));
        route.abandoned(Duration::ZERO);
        let text = metrics.render();
        for (code, count) in [(200, 1), (429, 2), (499, 1), (503, 1)] {
            let line = format!("tidegate_responses_total{{route=\"api\",code=\"{code}\"}} {count}\n");
            assert!(text.contains(&line), "no {line} in\n{text}");
        }
        assert_eq!(text.matches("tidegate_responses_total{").count(), 4, "{text}");
    }

    #[test]
    fn status_codes_have_a_bounded_set_of_labels() {
        let responses = Responses::default();
        let route = responses.route("api");
        (0..=999).for_each(|code| route.count(code));
        let series: Vec<_> = route.counted().collect();
        assert_eq!(series.len(), SERIES);
        assert_eq!(series.iter().map(|(_, count)| count).sum::<u64>(), 1000);
        for (code, label) in [(104, "104"), (199, "1xx"), (299, "2xx"), (306, "3xx"), (460, "4xx"), (520, "5xx")] {
            assert_eq!(super::label(position(code)), label, "{code}");
        }
        for code in [0, 99, 600, 999, u16::MAX] {
            assert_eq!(position(code), SERIES - 1, "{code}");
        }
    }

    #[test]
    #[cfg(feature = "gateway")]
    fn kinds_follow_the_code_or_its_class() {
        use ResponseKind::{ClientError, ClientGone, Limited, ServerError, Successful};
        let kinds = [
            (101, Successful),
            (204, Successful),
            (306, Successful),
            (404, ClientError),
            (460, ClientError),
            (429, Limited),
            (499, ClientGone),
            (503, ServerError),
            (520, ServerError),
            (700, Successful),
        ];
        for (code, kind) in kinds {
            assert_eq!(ResponseKind::of(position(code)), kind, "{code}");
        }
    }

    #[test]
    fn status_codes_are_in_ascending_order() {
        assert!(CODES.is_sorted());
    }
}
