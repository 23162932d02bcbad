//! `tidegate suggest`: proposes the rate of a limit from access logs.

use std::io::{self, Write};
use std::net::IpAddr;

use clap::Args;
use ipnet::IpNet;

use super::ConfigArg;
use super::operate::table;
use super::replay::{LogArgs, show_percent};
use crate::gateway::GATEWAY_FILES;
use tidegate_config::LimitEntry;
use tidegate_replay::{Candidate, FAILURES, Sign, SuggestError, SuggestOptions, Suggestion, suggest};
use tidegate_rules::limits::status_range::StatusRange;

#[derive(Debug, Args)]
pub(super) struct SuggestArgs {
    #[command(flatten)]
    rules: ConfigArg,
    #[command(flatten)]
    logs: LogArgs,
    /// The limit; a shared limit has the route `@`
    #[arg(long, value_name = "ROUTE/LIMIT")]
    limit: String,
    /// Tier whose rate to propose, if the limit has tiers [default: the default tier of the limit]
    #[arg(long, value_name = "TIER")]
    tier: Option<String>,
    /// Share of the clients other than abusers that the proposed rate may reject
    #[arg(long, value_name = "PERCENT", default_value = "0.1%", value_parser = share)]
    tolerate: f64,
    /// Statuses of failed requests, such as 401,404-410: a client is an abuser if at least 10 of its requests failed, and at
    /// least 80 %; 429 does not count
    #[arg(long, value_name = "STATUSES", default_value_t = default_failures())]
    failures: String,
    /// Addresses to leave out, such as 198.51.100.0/24; may be repeated
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    exclude: Vec<IpNet>,
    /// Addresses that many people share (NAT): each address of the network counts as this many clients, and is no abuser;
    /// may be repeated
    #[arg(long, value_name = "NETWORK=PEOPLE", value_parser = group)]
    group: Vec<(IpNet, u32)>,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Why there is no suggestion.
enum Failure {
    Suggest(SuggestError),
    Other(String),
}

impl From<SuggestError> for Failure {
    fn from(error: SuggestError) -> Self {
        Self::Suggest(error)
    }
}

/// Writes candidates for the rate of a limit, and proposes one. Returns the exit code: 0, or 2 if an input is invalid
/// or the logs have no request of the limit.
///
/// # Errors
/// `out` or `errors` cannot be written to.
pub(super) fn suggest_rate(args: &SuggestArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    if args.logs.has_stdin() {
        return writeln!(errors, "tidegate: `suggest` reads each log twice: pass a file instead of standard input")
            .map(|()| 2);
    }
    // The progress bar ends with this statement, before any output.
    let suggestion = match args.suggest() {
        Ok(suggestion) => suggestion,
        Err(Failure::Suggest(error)) => return writeln!(errors, "tidegate: {error}").map(|()| 2),
        Err(Failure::Other(message)) => return writeln!(errors, "{message}").map(|()| 2),
    };
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &suggestion)?;
        writeln!(out)?;
    } else {
        write_suggestion(&suggestion, out)?;
    }
    Ok(0)
}

impl SuggestArgs {
    fn suggest(&self) -> Result<Suggestion, Failure> {
        let file = &self.rules.config;
        let loaded = file.load_rules_with_texts(GATEWAY_FILES);
        let config = loaded.config.map_err(|error| Failure::Other(error.to_string()))?;
        let options = SuggestOptions {
            limit: self.limit.clone(),
            tier: self.tier.clone(),
            tolerate: self.tolerate,
            failures: statuses(&self.failures).map_err(|message| Failure::Other(format!("tidegate: {message}")))?,
            exclude: self.exclude.clone(),
            groups: self.group.clone(),
        };
        let find_entry = |limit: &_| LimitEntry::find(&loaded.texts, &file.to_string(), limit);
        let check = |message| Failure::Other(format!("tidegate: {message}"));
        suggest(&config.rules, &options, find_entry, &self.logs.files(), |summary| {
            self.logs.check(summary).map_err(check)
        })
    }
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let percent = number.filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| format!("`{text}` is not a percentage, such as 0.1%"))
}

fn default_failures() -> String {
    FAILURES.map(|range| range.to_string()).join(",")
}

/// Parses statuses and ranges.
fn statuses(text: &str) -> Result<Vec<StatusRange>, String> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = StatusRange { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? };
        (100 <= range.first && range.first <= range.last && range.last <= 599).then_some(range)
    };
    let ranges = text.split(',').filter(|text| !text.trim().is_empty());
    ranges.map(|text| range(text).ok_or_else(|| format!("`{text}` is not a status, such as 401 or 400-499"))).collect()
}

fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| format!("`{text}` is not an address or a network, such as 198.51.100.0/24"))
}

fn group(text: &str) -> Result<(IpNet, u32), String> {
    let invalid = || format!("`{text}` is not a network with a number of people, such as 203.0.113.7=2000");
    let (addresses, people) = text.split_once('=').ok_or_else(invalid)?;
    let people = people.trim().parse().ok().filter(|people| *people > 0);
    Ok((network(addresses.trim())?, people.ok_or_else(invalid)?))
}

fn write_suggestion(suggestion: &Suggestion, out: &mut impl Write) -> io::Result<()> {
    let Suggestion { limit, clients, requests, abusers, .. } = suggestion;
    let tier = suggestion.tier.as_ref().map(|tier| format!(", tier {tier}")).unwrap_or_default();
    writeln!(out, "{limit}{tier}: {requests} requests of {clients} clients")?;
    let causes = [(abusers.by_responses, "by failed requests"), (abusers.by_demand, "by demand")];
    let causes: Vec<_> =
        causes.iter().filter(|(count, _)| *count > 0).map(|(count, cause)| format!("{count} {cause}")).collect();
    let causes = format!(": {}", causes.join(", "));
    match abusers.total() {
        0 => writeln!(out, "none of them is an abuser")?,
        1 => writeln!(out, "one of them is an abuser{causes}")?,
        all => writeln!(out, "{all} of them are abusers{causes}")?,
    }
    for note in &suggestion.notes {
        writeln!(out, "note: {}", table::printable(note))?;
    }
    writeln!(out, "\nmost permits of a client in an interval, abusers apart\n{}", demand(suggestion))?;
    write!(out, "{}", candidates(suggestion))?;
    if !suggestion.top.is_empty() {
        write!(out, "\nrejected most by the proposed rate\n{}", top(suggestion))?;
    }
    writeln!(out, "\n{}\n\n{}", proposal(suggestion), suggestion.snippet)
}

/// Returns the table of the demands.
fn demand(suggestion: &Suggestion) -> String {
    let rows = suggestion.demand.iter().map(|demand| {
        let [median, p99, max] = [demand.median, demand.p99, demand.max].map(|number| number.to_string());
        let of_abusers = demand.abuser_median.map_or_else(|| "-".to_owned(), |median| median.to_string());
        [demand.interval.clone(), median, p99, max, of_abusers]
    });
    table::columns(["INTERVAL", "MEDIAN", "99%", "MAX", "MEDIAN OF ABUSERS"], rows)
}

/// Returns the table of the candidates.
fn candidates(suggestion: &Suggestion) -> String {
    let all_abusers = suggestion.abusers.total();
    let rows = suggestion.candidates.iter().map(|candidate| {
        let is_proposed = candidate.is_same(&suggestion.proposed);
        let remark = match (is_proposed, candidate.present, candidate.acceptable) {
            (true, true, _) => "proposed, present",
            (true, false, _) => "proposed",
            (false, true, true) => "present",
            (false, true, false) => "present, rejects too many others",
            (false, false, true) => "",
            (false, false, false) => "rejects too many others",
        };
        [
            candidate.show(),
            format!("{} of {all_abusers}", candidate.abusers),
            candidate.others.to_string(),
            format!("{} ({})", candidate.requests, show_percent(candidate.request_share)),
            remark.to_owned(),
        ]
    });
    table::columns(["CANDIDATE", "ABUSERS REJECTED", "OTHERS REJECTED", "REQUESTS REJECTED", ""], rows)
}

/// Returns the table of the clients that the proposed rate rejects most.
fn top(suggestion: &Suggestion) -> String {
    let rows = suggestion.top.iter().map(|top| {
        let failed = show_percent(f64::from(top.failed) / f64::from(top.requests.max(1)));
        let abuser = match top.abuser {
            Some(Sign::Responses) => "failed requests",
            Some(Sign::Demand) => "demand",
            None => "-",
        };
        let rejected = &top.rejected;
        let (first, last) = (rejected.first.clone(), rejected.last.clone());
        [rejected.client.clone(), rejected.count.to_string(), failed, abuser.to_owned(), first, last]
    });
    table::columns(["CLIENT", "REJECTED", "FAILED", "ABUSER BY", "FIRST", "LAST"], rows)
}

/// Returns a sentence about the proposal.
fn proposal(Suggestion { proposed, abusers, tolerate, .. }: &Suggestion) -> String {
    let Candidate { abusers: rejected, others, .. } = proposed;
    let kept = if proposed.present { "keep the present rate" } else { "proposed" };
    let all = abusers.total();
    let of_abusers = if all > 0 { format!("{rejected} of {all} abusers and ") } else { String::new() };
    let clients = if all > 0 { "other clients" } else { "clients" };
    format!(
        "{kept}: {}. It rejects {of_abusers}{others} {clients}; at most {} of the other clients are tolerated",
        proposed.show(),
        show_percent(*tolerate)
    )
}
