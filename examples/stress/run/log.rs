//! Reads the decisions of the gateways from their access logs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use serde::Deserialize;

use super::RunError;
use super::checker::Grant;
use super::fleet::StartedGateway;
use super::load::StatusCounts;
use super::table::{Limit, ROUTES};

/// All decisions of a run.
#[derive(Debug, Default)]
pub struct Decisions {
    /// The grants by path: a route and a client.
    pub grants: BTreeMap<Path, Vec<Grant>>,
    /// The times of rejected requests by path.
    pub rejections: BTreeMap<Path, Vec<u64>>,
    /// The number of log lines by outcome.
    pub outcomes: BTreeMap<String, u64>,
    pub statuses: StatusCounts,
    /// The time of the last decision.
    pub end: u64,
    /// The lines of each log.
    pub lines: Vec<Vec<LoggedDecision>>,
}

/// The decision in a line of a log.
#[derive(Clone, Debug)]
pub struct LoggedDecision {
    pub route: &'static str,
    /// By the store's clock, in milliseconds; `None` if the store did not decide.
    pub at: Option<u64>,
    /// Whether a limit rejected the request.
    pub limited: bool,
    /// The limit that rejected the request; of several, the one with the longest wait.
    pub limit: Option<String>,
}

/// The route of a request, and the number of its client.
pub type Path = (&'static str, String);

/// The relevant fields of an access log line.
#[derive(Debug, Deserialize)]
struct Line {
    message: String,
    status: u16,
    route: String,
    limits: String,
    limit: Option<String>,
    at: Option<u64>,
}

impl Decisions {
    /// Reads the logs of all processes.
    pub fn read(started: &[StartedGateway]) -> Result<Self, RunError> {
        let mut decisions = Self::default();
        for StartedGateway { version, access_log, .. } in started {
            decisions.lines.push(Vec::new());
            for line in BufReader::new(File::open(access_log)?).lines() {
                let line = line?;
                let read: Line = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
                decisions.add(read, *version)?;
            }
        }
        Ok(decisions)
    }

    /// Returns the grants of each bucket of a limit.
    pub fn buckets(&self, limit: &Limit) -> Vec<Vec<Grant>> {
        let of_route = self.grants.iter().filter(|((route, _), _)| *route == limit.route);
        let of_clients: Vec<Vec<Grant>> = of_route.map(|(_, grants)| grants.clone()).collect();
        if limit.per_client { of_clients } else { vec![of_clients.concat()] }
    }

    /// Returns for each path with rejections their times, and the limits of its route with their grants.
    pub fn rejected<'l>(&self, limits: &'l [Limit]) -> impl Iterator<Item = (&[u64], Vec<(&'l Limit, Vec<Grant>)>)> {
        self.rejections.iter().map(|(path, rejections)| {
            let limits = limits.iter().filter(|limit| limit.route == path.0);
            let grants = |limit: &Limit| match limit.per_client {
                true => self.grants.get(path).cloned().unwrap_or_default(),
                false => self.buckets(limit).concat(),
            };
            (rejections.as_slice(), limits.map(|limit| (limit, grants(limit))).collect())
        })
    }

    fn add(&mut self, line: Line, version: usize) -> Result<(), RunError> {
        let path = || {
            let (_, client) = line.message.rsplit_once('/')?;
            let route = ROUTES.iter().find(|route| route.name == line.route)?;
            Some((route.name, client.to_owned()))
        };
        let path = path().ok_or_else(|| format!("unknown request: {line:?}"))?;
        let limited = line.limits == "limited";
        let logged = LoggedDecision { route: path.0, at: line.at, limited, limit: line.limit.clone() };
        self.lines.last_mut().ok_or("no log")?.push(logged);
        match (line.limits.as_str(), line.at) {
            ("allowed", Some(at)) => {
                self.grants.entry(path).or_default().push(Grant { at, permits: 1, rule: version });
            }
            ("limited", Some(at)) => self.rejections.entry(path).or_default().push(at),
            ("store_failed" | "undecided", None) => {} // neither granted nor counted
            _ => {
                return Err(
                    format!("the line has a decision without a time, or a time without a decision: {line:?}").into()
                );
            }
        }
        self.end = self.end.max(line.at.unwrap_or(0));
        *self.outcomes.entry(line.limits).or_default() += 1;
        *self.statuses.entry(line.status).or_default() += 1;
        Ok(())
    }
}
