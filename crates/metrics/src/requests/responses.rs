//! Counts the responses of each route by status code.
//!
//! The set of codes is bounded: an upstream may send any three digits, so an unregistered code is counted under its
//! class or as `other`. The counters of a route are one allocation, so that counting a response takes no lock.

use crate::instruments::count::Count;
use crate::instruments::sample::ResponseKind;

/// The labels of the status codes of the IANA registry, and of 499 for a client that disconnected before its response.
/// Then the labels of unregistered codes, by class. The last label is for codes outside 100 to 599.
pub(crate) const LABELS: [&str; 70] = [
    "100", "101", "102", "103", "104", "200", "201", "202", "203", "204", "205", "206", "207", "208", "226", "300",
    "301", "302", "303", "304", "305", "307", "308", "400", "401", "402", "403", "404", "405", "406", "407", "408",
    "409", "410", "411", "412", "413", "414", "415", "416", "417", "418", "421", "422", "423", "424", "425", "426",
    "428", "429", "431", "451", "499", "500", "501", "502", "503", "504", "505", "506", "507", "508", "510", "511",
    "1xx", "2xx", "3xx", "4xx", "5xx", "other",
];

/// The codes that have their own label, in ascending order.
const CODES: [u16; 64] = {
    let mut codes = [0; 64];
    let mut position = 0;
    while position < codes.len() {
        let digits = LABELS[position].as_bytes();
        codes[position] = (digits[0] - b'0') as u16 * 100 + (digits[1] - b'0') as u16 * 10 + (digits[2] - b'0') as u16;
        position += 1;
    }
    codes
};

/// The counters of one route, in the order of [`LABELS`].
#[derive(Debug)]
pub(crate) struct Responses([Count; LABELS.len()]);

impl Responses {
    /// Counts a response.
    pub(crate) fn count(&self, code: u16) {
        self.0[position(code)].inc();
    }

    /// Returns the counters, in the order of [`LABELS`].
    pub(crate) fn counts(&self) -> &[Count] {
        &self.0
    }

    /// Returns the number of responses of each [`ResponseKind`].
    pub(crate) fn by_kind(&self) -> [u64; 5] {
        let mut kinds = [0; 5];
        for (position, count) in self.0.iter().enumerate() {
            kinds[ResponseKind::of(position) as usize] += count.get();
        }
        kinds
    }
}

impl Default for Responses {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

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

fn position(code: u16) -> usize {
    CODES.binary_search(&code).unwrap_or_else(|_| match code {
        100..=599 => CODES.len() + usize::from(code / 100) - 1,
        _ => LABELS.len() - 1,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Metrics;

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
        (0..=999).for_each(|code| responses.count(code));
        let counts: Vec<_> = responses.counts().iter().map(Count::get).collect();
        assert!(!counts.contains(&0), "{counts:?}");
        assert_eq!(counts.iter().sum::<u64>(), 1000);
        for (code, label) in [(104, "104"), (199, "1xx"), (299, "2xx"), (306, "3xx"), (460, "4xx"), (520, "5xx")] {
            assert_eq!(LABELS[position(code)], label, "{code}");
        }
        for code in [0, 99, 600, 999, u16::MAX] {
            assert_eq!(LABELS[position(code)], "other", "{code}");
        }
    }

    #[test]
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
