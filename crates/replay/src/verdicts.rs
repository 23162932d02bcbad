//! The decision about each request, for tests that compare a replay with a gateway, and for measurements.

use std::net::IpAddr;
use std::path::PathBuf;

use http::{HeaderMap, Method, StatusCode, Uri};

use super::engine::inputs::Needs;
use super::engine::{Engine, Verdict};
use super::log::LogFormat;
use super::read::{LogFiles, ReadError};
use crate::log::batch::{Batch, Buffers, Kept, ParsedRequest};
use crate::log::recorded::RecordedValues;
use tidegate_rules::request::identity::Identity;
use tidegate_rules::rules::Rules;

/// A request of a test.
#[derive(Clone, Copy, Debug)]
pub struct TracedRequest<'t> {
    /// In milliseconds since the Unix epoch.
    pub time: u64,
    /// The address of the client.
    pub client: IpAddr,
    /// The target of the request.
    pub target: &'t str,
    /// The status of the response, if the request is admitted.
    pub status: u16,
}

/// A request of a test, with header fields and credentials.
#[derive(Clone, Debug)]
pub struct DetailedRequest<'t> {
    /// The request.
    pub request: TracedRequest<'t>,
    /// The header fields of the request.
    pub headers: HeaderMap,
    /// The verified credentials of the request.
    pub identity: Option<Identity>,
}

/// The decision about a line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedLine {
    /// The position of the log.
    pub log: usize,
    /// The number of the line in its log, starting at 0.
    pub line: u64,
    /// Whether the limits admit the request.
    pub admitted: bool,
    /// The limit that rejects the request; of several, the limit with the longest wait.
    pub limit: Option<String>,
    /// All limits that reject the request.
    pub rejected_by: Vec<String>,
}

/// Returns for each request whether the limits admit it. The times must not decrease.
pub fn of_trace(rules: &Rules, trace: &[TracedRequest<'_>]) -> Vec<bool> {
    replay(rules, trace.iter().map(TracedRequest::parsed), &RecordedValues::default())
}

/// Like [`of_trace`], also with limits that read header fields or verified credentials.
pub fn of_detailed_trace(rules: &Rules, trace: &[DetailedRequest<'_>]) -> Vec<bool> {
    let limits = rules.routes.iter().flat_map(|route| &route.limits);
    let values = limits.flat_map(|limit| match Needs::of(limit) {
        Needs::Credentials(values) => values,
        _ => Vec::new(),
    });
    let recorded = RecordedValues { fields: Engine::new(rules).fields(), identity: values.collect() };
    let requests = trace.iter().map(|detailed| ParsedRequest {
        headers: Some(Box::new(detailed.headers.clone())),
        identity: detailed.identity.clone().map(Box::new),
        ..detailed.request.parsed()
    });
    replay(rules, requests, &recorded)
}

/// Returns for each request, in the order of their times, whether the limits admit it.
fn replay(rules: &Rules, requests: impl Iterator<Item = ParsedRequest>, recorded: &RecordedValues) -> Vec<bool> {
    let mut engine = Engine::new(rules);
    for (number, request) in (0..).zip(requests) {
        engine.replay(&request, number, recorded);
    }
    engine.end();
    let mut verdicts: Vec<_> = engine.take_verdicts().map(|verdict| (verdict.number, verdict.admitted)).collect();
    verdicts.sort_unstable();
    verdicts.into_iter().map(|(_, admitted)| admitted).collect()
}

impl TracedRequest<'_> {
    fn parsed(&self) -> ParsedRequest {
        ParsedRequest {
            time: self.time,
            line: 0,
            was_limited: false,
            client: Some(self.client),
            status: StatusCode::from_u16(self.status).ok(),
            target: self.target.parse::<Uri>().ok().map(|uri| (Method::GET, uri)),
            headers: None,
            route: None,
            identity: None,
        }
    }
}

/// Returns the decision about each parsed line of these logs.
pub fn of_logs(rules: &Rules, logs: &[PathBuf]) -> Result<Vec<ReplayedLine>, ReadError> {
    let files = LogFiles { paths: logs.to_owned(), format: None, host: None, progress: None };
    let (mut engine, mut lines) = (Engine::new(rules), Vec::new());
    files.read(engine.fields(), |request, _, (log, line), recorded| {
        engine.replay(request, lines.len() as u64, recorded);
        lines.push(ReplayedLine { log, line, admitted: false, limit: None, rejected_by: Vec::new() });
    })?;
    engine.end();
    let verdicts: Vec<Verdict> = engine.take_verdicts().collect();
    for Verdict { number, route, admitted, rejected_by, limit } in verdicts {
        let Some(line) = usize::try_from(number).ok().and_then(|number| lines.get_mut(number)) else { continue };
        let name = |limit| engine.limit_name(route?, limit).map(str::to_owned);
        line.admitted = admitted;
        line.limit = limit.and_then(name);
        line.rejected_by = (0..64).filter(|limit| (rejected_by >> limit) & 1 == 1).filter_map(name).collect();
    }
    Ok(lines)
}

/// The parsed requests of a log, for measurements of the decisions.
#[derive(Debug)]
pub struct ParsedLog(Vec<ParsedRequest>);

impl ParsedLog {
    /// Parses a log.
    pub fn parse(format: &LogFormat, log: Vec<u8>) -> Self {
        let buffers = Buffers { text: log, requests: Vec::new() };
        Self(Batch::parse(buffers, format, &Kept::default()).requests)
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decides the requests, as a replay without a second rule file. Returns the number of admitted requests.
    pub fn decide(&self, rules: &Rules) -> u64 {
        let mut engine = Engine::new(rules);
        for (number, request) in (0..).zip(&self.0) {
            engine.replay(request, number, &RecordedValues::default());
            _ = engine.take_verdicts();
        }
        engine.end();
        engine.report().allowed
    }
}
