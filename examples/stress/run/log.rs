//! What the gateways say they decided: their access logs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use serde::Deserialize;

use super::Failed;
use super::checker::Grant;
use super::fleet::Started;
use super::load::Answers;
use super::table::{Limit, ROUTES};

/// All decisions of a run.
#[derive(Debug, Default)]
pub struct Decisions {
    /// The grants of each path: a route and a client.
    pub grants: BTreeMap<Path, Vec<Grant>>,
    /// When requests for each path were refused.
    pub refusals: BTreeMap<Path, Vec<u64>>,
    /// How many lines tell which outcome.
    pub outcomes: BTreeMap<String, u64>,
    pub statuses: Answers,
    /// When the last decision was made.
    pub end: u64,
}

/// The route that a request took, and the number of its client.
pub type Path = (&'static str, String);

/// A line of an access log, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Line {
    message: String,
    status: u16,
    route: String,
    limits: String,
    at: Option<u64>,
}

impl Decisions {
    /// Reads the logs of all gateways there have been.
    pub fn read(started: &[Started]) -> Result<Self, Failed> {
        let mut decisions = Self::default();
        for Started { version, access_log } in started {
            for line in BufReader::new(File::open(access_log)?).lines() {
                let line = line?;
                let read: Line = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
                decisions.add(read, *version)?;
            }
        }
        Ok(decisions)
    }

    /// The grants of each bucket of a limit.
    pub fn buckets(&self, limit: &Limit) -> Vec<Vec<Grant>> {
        let of_the_route = self.grants.iter().filter(|((route, _), _)| *route == limit.route);
        let of_clients: Vec<Vec<Grant>> = of_the_route.map(|(_, grants)| grants.clone()).collect();
        if limit.per_client { of_clients } else { vec![of_clients.concat()] }
    }

    /// For each path with refusals: when they were, and the limits that may have made them, with their grants.
    pub fn refused<'l>(&self, limits: &'l [Limit]) -> impl Iterator<Item = (&[u64], Vec<(&'l Limit, Vec<Grant>)>)> {
        self.refusals.iter().map(|(path, refusals)| {
            let limits = limits.iter().filter(|limit| limit.route == path.0);
            let grants = |limit: &Limit| match limit.per_client {
                true => self.grants.get(path).cloned().unwrap_or_default(),
                false => self.buckets(limit).concat(),
            };
            (refusals.as_slice(), limits.map(|limit| (limit, grants(limit))).collect())
        })
    }

    fn add(&mut self, line: Line, version: usize) -> Result<(), Failed> {
        let path = || {
            let (_, client) = line.message.rsplit_once('/')?;
            let route = ROUTES.iter().find(|route| route.name == line.route)?;
            Some((route.name, client.to_owned()))
        };
        let path = path().ok_or_else(|| format!("a request for nothing of ours: {line:?}"))?;
        match (line.limits.as_str(), line.at) {
            ("allowed", Some(at)) => {
                self.grants.entry(path).or_default().push(Grant { at, permits: 1, rule: version });
            }
            ("limited", Some(at)) => self.refusals.entry(path).or_default().push(at),
            ("store_failed" | "undecided", None) => {} // neither granted nor counted
            _ => return Err(format!("a decision without its time, or a time without a decision: {line:?}").into()),
        }
        self.end = self.end.max(line.at.unwrap_or(0));
        *self.outcomes.entry(line.limits).or_default() += 1;
        *self.statuses.entry(line.status).or_default() += 1;
        Ok(())
    }
}
