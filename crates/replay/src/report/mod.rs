//! The result of a replay, for people, programs and pages.

pub(crate) mod clients;
pub(crate) mod counted;
pub(crate) mod curve;
pub(crate) mod decided;
pub(crate) mod people;
pub(crate) mod ranks;
pub(crate) mod rejected;
pub(crate) mod responses;
pub(crate) mod series;
pub(crate) mod tallies;
pub(crate) mod tally;

use std::collections::BTreeMap;

use serde::Serialize;

use self::curve::CurvePoint;
use self::ranks::RankPoint;
use self::series::Series;

/// The result of a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The parsed requests: the sum of the next four numbers.
    pub requests: u64,
    /// The requests that the gateway forwards or answers free of charge.
    pub allowed: u64,
    /// The requests that limits reject.
    pub rejected: u64,
    /// The requests that match no route.
    pub unmatched: u64,
    /// The requests that the gateway answers with 400.
    pub invalid: u64,
    /// The allowed requests that waited for permits.
    pub waited: u64,
    /// The lines that do not match the format.
    pub unparsed: u64,
    /// The first line that could not be parsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_unparsed: Option<UnparsedLine>,
    /// The requests that came after a decided request with a later time.
    pub late: u64,
    /// The times of the first and the last request.
    pub first: Option<String>,
    /// The time of the last request, in RFC 3339.
    pub last: Option<String>,
    /// The formats of the logs.
    pub formats: Vec<String>,
    /// The limits and inputs that the replay could not take into account.
    pub notes: Vec<String>,
    /// By route and limit.
    pub limits: BTreeMap<String, LimitReport>,
    /// The comparison with other rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Box<Difference>>,
}

impl Report {
    /// Returns the notes, and the other ones about the other rules with the name of their file.
    pub fn all_notes(&self) -> impl Iterator<Item = String> {
        let others = self.against.iter().flat_map(|other| other.report.notes.iter().map(|note| (&other.file, note)));
        let others = others.filter(|(_, note)| !self.notes.contains(note));
        self.notes.iter().cloned().chain(others.map(|(file, note)| format!("{file}: {note}")))
    }
}

/// The first line that was not parsed.
#[derive(Clone, Debug, Serialize)]
pub struct UnparsedLine {
    pub file: String,
    pub line: u64,
    /// The escaped start of the line.
    pub text: String,
}

/// The statistics of a limit.
#[derive(Clone, Debug, Serialize)]
pub struct LimitReport {
    pub mode: &'static str,
    pub rate: u32,
    pub interval: String,
    pub interval_ms: u64,
    pub algorithm: &'static str,
    pub shadow: bool,
    /// The requests that this limit grants, whatever others decide.
    pub allowed: u64,
    /// The requests that this limit refuses.
    pub rejected: u64,
    /// The requests whose client the log lacks.
    pub unknown: u64,
    /// The requests whose credentials cannot be verified.
    pub unverified: u64,
    /// The largest share of the permits that was in use.
    pub peak: f64,
    /// The clients of these requests: for an OVERALL limit, the addresses.
    pub clients: usize,
    /// The clients with a rejected request.
    pub affected: usize,
    /// The clients rejected most, worst first.
    pub top: Vec<RejectedClient>,
    pub series: Series,
    /// The rejections of other rates, counted in consecutive intervals.
    pub curve: Vec<CurvePoint>,
    /// The demands of the clients, for pages. For an OVERALL limit, of the addresses.
    #[serde(skip)]
    pub ranks: Vec<RankPoint>,
}

/// A client that a limit rejected.
#[derive(Clone, Debug, Serialize)]
pub struct RejectedClient {
    /// The client, as operators see it.
    pub client: String,
    /// The number of rejected requests.
    pub count: u64,
    /// The time of the first rejected request, in RFC 3339.
    pub first: String,
    /// The time of the last rejected request, in RFC 3339.
    pub last: String,
}

/// The decisions of other rules about the same requests.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The name of the other rule file.
    pub file: String,
    /// The requests that only the other rules reject.
    pub newly_rejected: u64,
    /// The requests that only the first rules reject.
    pub newly_allowed: u64,
    /// By the route of the first rules.
    pub routes: BTreeMap<String, RouteDifference>,
    /// The result of the other rules.
    #[serde(flatten)]
    pub report: Box<Report>,
}

/// The decisions of other rules about the requests of a route.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct RouteDifference {
    pub requests: u64,
    pub newly_rejected: u64,
    pub newly_allowed: u64,
}
