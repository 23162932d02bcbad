//! The abusers among the clients of a limit.
//!
//! A client is an abuser by its responses if at least 10 of its requests failed, and at least 80 % of those that no limit
//! rejected. It is an abuser by its demand if it is above the widest gap between the demands of the other clients. An address
//! that many people share is never an abuser.

use hashbrown::HashSet;
use serde::Serialize;

use crate::report::responses::{ClientResponse, ClientResponses, Counts};

/// The fewest failed requests of an abuser.
const MIN_FAILED: u32 = 10;

/// The smallest share of failed requests of an abuser, in percent.
const MIN_SHARE: u64 = 80;

/// Clients above a gap have at least twice as many permits, and this many more.
const MIN_GAP: u32 = 5;

/// The abusers, by their hashes.
#[derive(Debug, Default)]
pub(super) struct Abusers {
    by_responses: HashSet<u64>,
    by_demand: HashSet<u64>,
    /// The number of clients that fail so often that failures cannot show abusers. 0 if they can.
    pub(super) failing: usize,
}

/// Why a client is an abuser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// Most of its requests failed.
    Responses,
    /// Its demand is above the widest gap.
    Demand,
}

/// The number of abusers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AbuserCounts {
    /// The abusers whose requests failed.
    pub by_responses: usize,
    /// The other abusers.
    pub by_demand: usize,
}

impl Abusers {
    /// Finds the abusers. The limits of the responses are the intervals.
    pub(super) fn find(clients: &ClientResponses, intervals: usize) -> Self {
        let all = clients.iter().count();
        let mut abusers = Self::default();
        abusers.by_responses.extend(clients.iter().filter(|client| fails(client.counts)).map(|client| client.hash));
        if abusers.by_responses.len() > all / 2 {
            abusers.failing = abusers.by_responses.len();
            abusers.by_responses.clear();
        }
        let is_other =
            |client: &ClientResponse<'_>| client.counts.people <= 1 && !abusers.by_responses.contains(&client.hash);
        let gaps = (0..intervals).filter_map(|interval| {
            let mut peaks: Vec<_> = clients.iter().filter(is_other).map(|client| client.peaks[interval]).collect();
            peaks.sort_unstable();
            widest_gap(&peaks).map(|(at, width)| (interval, peaks[at], width))
        });
        if let Some((interval, lowest, _)) = gaps.max_by(|(.., left), (.., right)| left.total_cmp(right)) {
            let above = clients.iter().filter(is_other).filter(|client| client.peaks[interval] >= lowest);
            abusers.by_demand = above.map(|client| client.hash).collect();
        }
        abusers
    }

    /// Returns why the client with this hash is an abuser. Returns `None` for other clients.
    pub(super) fn sign(&self, hash: u64) -> Option<Sign> {
        match (self.by_responses.contains(&hash), self.by_demand.contains(&hash)) {
            (true, _) => Some(Sign::Responses),
            (false, true) => Some(Sign::Demand),
            (false, false) => None,
        }
    }

    pub(super) fn counts(&self) -> AbuserCounts {
        AbuserCounts { by_responses: self.by_responses.len(), by_demand: self.by_demand.len() }
    }
}

impl AbuserCounts {
    /// Returns the number of all abusers.
    pub fn total(self) -> usize {
        self.by_responses + self.by_demand
    }
}

/// Returns `true` if the responses to a client show an abuser.
fn fails(Counts { people, requests, failed, limited }: Counts) -> bool {
    let decided = u64::from(requests - limited.min(requests));
    people <= 1 && failed >= MIN_FAILED && u64::from(failed) * 100 >= decided * MIN_SHARE
}

/// Returns the position above the widest gap between the peaks in the upper tenth of the clients, and the ratio of the peaks
/// around it. Of at most 100 clients, the upper ten or the upper half.
fn widest_gap(peaks: &[u32]) -> Option<(usize, f64)> {
    let upper = (peaks.len() / 10).max(10).min(peaks.len() / 2);
    let from = (peaks.len() - upper).max(1);
    let width = |at: usize| f64::from(peaks[at]) / f64::from(peaks[at - 1].max(1));
    let is_wide = |at: &usize| peaks[*at] >= peaks[at - 1].saturating_mul(2).saturating_add(MIN_GAP);
    let gaps = (from..peaks.len()).filter(is_wide).map(|at| (at, width(at)));
    gaps.max_by(|(_, left), (_, right)| left.total_cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_above_the_widest_gap_are_abusers() {
        let count = |peaks: &[u32]| widest_gap(peaks).map_or(0, |(at, _)| peaks.len() - at);
        let mut peaks = vec![1; 900];
        peaks.extend([3; 97]);
        peaks.extend([40, 300, 310]);
        assert_eq!(count(&peaks), 3);
        assert_eq!(count(&[1, 2, 3, 4, 5, 6]), 0);
        assert_eq!(count(&[1, 1, 1, 90]), 1);
        assert_eq!((count(&[]), count(&[500])), (0, 0));
    }

    #[test]
    fn failed_requests_show_an_abuser() {
        let counts = |people, requests, failed, limited| Counts { people, requests, failed, limited };
        for (counts, expected) in [
            (counts(1, 10, 10, 0), true),
            (counts(1, 100, 80, 0), true),
            (counts(1, 100, 79, 0), false),
            (counts(1, 9, 9, 0), false),
            (counts(1, 1_000, 10, 990), true),
            (counts(1, 1_000, 0, 1_000), false),
            (counts(2, 100, 100, 0), false),
        ] {
            assert_eq!(fails(counts), expected, "{counts:?}");
        }
    }
}
