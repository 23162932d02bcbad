//! The result of a replay, for people, programs and pages.

use std::collections::BTreeMap;

use serde::Serialize;

use super::curve::CurvePoint;
use super::ranks::RankPoint;
use super::series::Series;

/// The result of a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The parsed requests: the sum of the next four numbers.
    pub(crate) requests: u64,
    /// The requests that the gateway forwards or answers free of charge.
    pub(crate) allowed: u64,
    /// The requests that limits reject.
    pub(crate) rejected: u64,
    /// The requests that match no route.
    pub(crate) unmatched: u64,
    /// The requests that the gateway answers with 400.
    pub(crate) invalid: u64,
    /// The allowed requests that waited for permits.
    pub(crate) waited: u64,
    /// The lines that do not match the format.
    pub(crate) unparsed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_unparsed: Option<UnparsedLine>,
    /// The requests that came after a decided request with a later time.
    pub(crate) late: u64,
    /// The times of the first and the last request.
    pub(crate) first: Option<String>,
    pub(crate) last: Option<String>,
    /// The formats of the logs.
    pub(crate) formats: Vec<String>,
    /// The limits and inputs that the replay could not take into account.
    pub(crate) notes: Vec<String>,
    /// By route and limit.
    pub(crate) limits: BTreeMap<String, LimitReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) against: Option<Box<Difference>>,
}

impl Report {
    /// Returns the notes, and the other ones about the other rules with the name of their file.
    pub(crate) fn all_notes(&self) -> impl Iterator<Item = String> {
        let others = self.against.iter().flat_map(|other| other.report.notes.iter().map(|note| (&other.file, note)));
        let others = others.filter(|(_, note)| !self.notes.contains(note));
        self.notes.iter().cloned().chain(others.map(|(file, note)| format!("{file}: {note}")))
    }
}

/// The first line that was not parsed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UnparsedLine {
    pub(crate) file: String,
    pub(crate) line: u64,
    /// The escaped start of the line.
    pub(crate) text: String,
}

/// The statistics of a limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LimitReport {
    pub(crate) mode: &'static str,
    pub(crate) rate: u32,
    pub(crate) interval: String,
    pub(crate) interval_ms: u64,
    pub(crate) algorithm: &'static str,
    pub(crate) shadow: bool,
    /// The requests that this limit grants, whatever others decide.
    pub(crate) allowed: u64,
    /// The requests that this limit refuses.
    pub(crate) rejected: u64,
    /// The requests whose client the log lacks.
    pub(crate) unknown: u64,
    /// The requests whose credentials cannot be verified.
    pub(crate) unverified: u64,
    /// The largest share of the permits that was in use.
    pub(crate) peak: f64,
    /// The clients of these requests: for an OVERALL limit, the addresses.
    pub(crate) clients: usize,
    /// The clients with a rejected request.
    pub(crate) affected: usize,
    /// The clients rejected most, worst first.
    pub(crate) top: Vec<RejectedClient>,
    pub(crate) series: Series,
    /// The rejections of other rates, counted in consecutive intervals.
    pub(crate) curve: Vec<CurvePoint>,
    /// The demands of the clients, for pages. For an OVERALL limit, of the addresses.
    #[serde(skip)]
    pub(crate) ranks: Vec<RankPoint>,
}

/// A client that a limit rejected.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RejectedClient {
    pub(crate) client: String,
    pub(crate) count: u64,
    pub(crate) first: String,
    pub(crate) last: String,
}

/// The decisions of other rules about the same requests.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Difference {
    /// The name of the other rule file.
    pub(crate) file: String,
    /// The requests that only the other rules reject.
    pub(crate) newly_rejected: u64,
    /// The requests that only the first rules reject.
    pub(crate) newly_allowed: u64,
    /// By the route of the first rules.
    pub(crate) routes: BTreeMap<String, RouteDifference>,
    /// The result of the other rules.
    #[serde(flatten)]
    pub(crate) report: Box<Report>,
}

/// The decisions of other rules about the requests of a route.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RouteDifference {
    pub(crate) requests: u64,
    pub(crate) newly_rejected: u64,
    pub(crate) newly_allowed: u64,
}
