//! `tidegate replay`: shows which requests of access logs a rule file would have rejected.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use http::HeaderValue;
use http::uri::Authority;

use super::operate::table;
use super::{ConfigArg, progress, rule_file};
use crate::gateway::GATEWAY_FILES;
use tidegate_config::{Config, RuleFile};
use tidegate_replay::{Difference, LogFiles, LogFormat, ReadSummary, RejectedClient, Report, page, replay};

/// Without `--lenient`, at least this many lines are needed for each line that is not parsed.
const LINES_PER_UNPARSED: u64 = 100;

/// The logs and their format.
#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// Access logs, merged by time; `.gz` and `.zst` are decompressed, and `-` is standard input
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// Format of the logs, instead of recognizing it: json:time=FIELD,client=FIELD,method=FIELD,path=FIELD,status=FIELD
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<Arc<LogFormat>>,
    /// Host of the requests whose line has no host, as in most logs of nginx and Apache
    #[arg(long, value_name = "HOST", value_parser = host)]
    host: Option<HeaderValue>,
    /// Continue if more than 1 % of the lines cannot be parsed
    #[arg(long)]
    lenient: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    rules: ConfigArg,
    #[command(flatten)]
    logs: LogArgs,
    /// Changed rule file: show the requests that it would newly reject or allow
    #[arg(long, value_name = "OTHER", value_parser = rule_file())]
    against: Option<RuleFile>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Also write the result as an HTML page with charts, and a line to try other rates
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Writes what the rules would have decided about the requests of logs. Returns the exit code: 0, or 2 if a rule file is
/// invalid or a log cannot be read.
///
/// # Errors
/// `out` or `errors` cannot be written to.
pub(super) fn replay_logs(args: &ReplayArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let Some(rules) = load(&args.rules.config, errors)? else { return Ok(2) };
    let against = match &args.against {
        None => None,
        Some(file) => match load(file, errors)? {
            None => return Ok(2),
            Some(other) => Some((file.to_string(), other)),
        },
    };
    let against = against.as_ref().map(|(file, other)| (file.clone(), &*other.rules));
    // The progress bar ends with this statement, before any output.
    let replayed = replay(&rules.rules, against, &args.logs.files());
    let report = match replayed {
        Ok((report, summary)) => match args.logs.check(&summary) {
            Ok(()) => report,
            Err(message) => return writeln!(errors, "tidegate: {message}").map(|()| 2),
        },
        Err(error) => return writeln!(errors, "tidegate: {error}").map(|()| 2),
    };
    if let Some(file) = &args.html
        && let Err(error) = std::fs::write(file, page(&report))
    {
        return writeln!(errors, "tidegate: {}: {error}", file.display()).map(|()| 2);
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        write_report(&report, out)?;
    }
    Ok(0)
}

/// Loads a rule file, or writes its errors.
pub(super) fn load(file: &RuleFile, errors: &mut impl Write) -> io::Result<Option<Config>> {
    match file.load_rules(GATEWAY_FILES) {
        Ok(config) => Ok(Some(config)),
        Err(error) => writeln!(errors, "{error}").map(|()| None),
    }
}

fn format(text: &str) -> Result<Arc<LogFormat>, String> {
    LogFormat::parse_mapping(text).map(Arc::new)
}

fn host(text: &str) -> Result<HeaderValue, String> {
    let is_host = |text: &str| text.parse::<Authority>().is_ok_and(|host| !host.as_str().contains('@'));
    let host = HeaderValue::from_str(text).ok().filter(|_| is_host(text));
    host.ok_or_else(|| format!("`{text}` is not a host, such as api.example.com"))
}

impl LogArgs {
    pub(super) fn files(&self) -> LogFiles {
        let progress = progress::for_logs(&self.logs);
        LogFiles { paths: self.logs.clone(), format: self.format.clone(), host: self.host.clone(), progress }
    }

    /// Returns `true` if a log is standard input.
    pub(super) fn has_stdin(&self) -> bool {
        self.logs.iter().any(|path| path.as_os_str() == "-")
    }

    /// Returns an error if too many lines were not parsed.
    pub(super) fn check(&self, summary: &ReadSummary) -> Result<(), String> {
        if self.lenient || summary.unparsed.saturating_mul(LINES_PER_UNPARSED) <= summary.lines {
            return Ok(());
        }
        let ReadSummary { lines, unparsed, first_unparsed, .. } = summary;
        let first = first_unparsed.as_ref().map(|(file, line, text)| format!("; the first is {file}:{line}: {text}"));
        let first = first.unwrap_or_default();
        Err(format!(
            "{unparsed} of {lines} lines cannot be parsed, more than 1 %{first}\nhelp: set --format, or --lenient"
        ))
    }
}

fn write_report(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let Report { requests, allowed, rejected, unmatched, invalid, .. } = report;
    if let (Some(first), Some(last)) = (&report.first, &report.last) {
        writeln!(out, "{first} to {last}, {}", report.formats.join(", "))?;
    }
    write!(out, "{requests} requests: {allowed} allowed, {rejected} rejected")?;
    for (count, fate) in [(report.waited, "waited"), (*unmatched, "match no route"), (*invalid, "invalid")] {
        if count > 0 {
            write!(out, ", {count} {fate}")?;
        }
    }
    writeln!(out)?;
    if let Some(first) = &report.first_unparsed {
        let count = report.unparsed;
        writeln!(out, "{count} lines not parsed; the first is {}:{}: {}", first.file, first.line, first.text)?;
    }
    if report.late > 0 {
        writeln!(out, "{} lines are far behind earlier lines, and count at a later time", report.late)?;
    }
    for note in report.all_notes() {
        writeln!(out, "note: {}", table::printable(&note))?;
    }
    let rows = report.limits.iter().map(|(name, limit)| {
        let name = if limit.shadow { format!("{name} (shadow)") } else { name.clone() };
        [
            name,
            format!("{} per {} ({})", limit.rate, limit.interval, limit.algorithm),
            limit.allowed.to_string(),
            limit.rejected.to_string(),
            format!("{:.0}%", limit.peak * 100.0),
            format!("{} of {} ({})", limit.affected, limit.clients, percent(limit.affected, limit.clients)),
        ]
    });
    let heads = ["LIMIT", "RATE", "ALLOWED", "REJECTED", "PEAK", "CLIENTS REJECTED"];
    write!(out, "\n{}", table::columns(heads, rows))?;
    for (name, limit) in report.limits.iter().filter(|(_, limit)| !limit.top.is_empty()) {
        write!(out, "\nrejected most by {name}\n{}", top(&limit.top))?;
    }
    report.against.as_ref().map_or(Ok(()), |difference| write_difference(difference, out))
}

fn write_difference(difference: &Difference, out: &mut impl Write) -> io::Result<()> {
    let Difference { file, newly_rejected, newly_allowed, routes, .. } = difference;
    writeln!(out, "\n{file}: {newly_rejected} requests newly rejected, {newly_allowed} newly allowed")?;
    let rows = routes.iter().map(|(name, route)| {
        let numbers = [route.requests, route.newly_rejected, route.newly_allowed].map(|number| number.to_string());
        let [requests, rejected, allowed] = numbers;
        [name.clone(), requests, rejected, allowed]
    });
    write!(out, "{}", table::columns(["ROUTE", "REQUESTS", "NEWLY REJECTED", "NEWLY ALLOWED"], rows))
}

/// Returns a table of clients.
pub(super) fn top(clients: &[RejectedClient]) -> String {
    let rows = clients.iter().map(|client| {
        let RejectedClient { client, count, first, last } = client.clone();
        [client, count.to_string(), first, last]
    });
    table::columns(["CLIENT", "REJECTED", "FIRST", "LAST"], rows)
}

/// Returns a share with two digits.
#[expect(clippy::cast_precision_loss, reason = "a share")]
pub(super) fn percent(part: usize, total: usize) -> String {
    show_percent(part as f64 / total.max(1) as f64)
}

pub(super) fn show_percent(share: f64) -> String {
    if share == 0.0 || share >= 0.1 { format!("{:.0}%", share * 100.0) } else { format!("{:.2}%", share * 100.0) }
}
