//! `tidegate suggest`: proposes the rate of a limit from access logs.

use std::io::{self, Write};

use clap::Args;

use super::ConfigArg;
use super::operate::table;
use super::replay::{LogArgs, load, show_percent, top};
use tidegate_replay::{SuggestError, Suggestion, suggest};

#[derive(Debug, Args)]
pub(super) struct SuggestArgs {
    #[command(flatten)]
    rules: ConfigArg,
    #[command(flatten)]
    logs: LogArgs,
    /// The limit; a shared limit has the route `@`
    #[arg(long, value_name = "ROUTE/LIMIT")]
    limit: String,
    /// Share of the clients other than top abusers that the proposed rate may reject
    #[arg(long, value_name = "PERCENT", default_value = "0.1%", value_parser = share)]
    tolerate: f64,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Why there is no suggestion.
enum Failure {
    Suggest(SuggestError),
    Unparsed(String),
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
    let Some(config) = load(&args.rules.config, errors)? else { return Ok(2) };
    let accept = |summary: &_| args.logs.check(summary).map_err(Failure::Unparsed);
    // The progress bar ends with this statement, before any output.
    let suggested = suggest(&config.rules, &args.limit, args.tolerate, &args.logs.files(), accept);
    let suggestion = match suggested {
        Ok(suggestion) => suggestion,
        Err(failure) => {
            let message = match failure {
                Failure::Suggest(error) => error.to_string(),
                Failure::Unparsed(message) => message,
            };
            return writeln!(errors, "tidegate: {message}").map(|()| 2);
        }
    };
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &suggestion)?;
        writeln!(out)?;
    } else {
        write_suggestion(&suggestion, out)?;
    }
    Ok(0)
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let percent = number.filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| format!("`{text}` is not a percentage, such as 0.1%"))
}

fn write_suggestion(suggestion: &Suggestion, out: &mut impl Write) -> io::Result<()> {
    let Suggestion { limit, clients, requests, tolerate, proposed, .. } = suggestion;
    writeln!(out, "{limit}: {requests} requests of {clients} clients\n")?;
    let demand = suggestion.demand.iter().map(|demand| {
        let numbers = [demand.median, demand.p99, demand.max].map(|number| number.to_string());
        let [median, p99, max] = numbers;
        [demand.interval.clone(), median, p99, max, demand.abusers.to_string()]
    });
    write!(out, "most permits of a client in an interval\n{}\n", {
        table::columns(["INTERVAL", "MEDIAN", "99%", "MAX", "ABUSERS"], demand)
    })?;
    let rows = suggestion.candidates.iter().map(|candidate| {
        let burst = candidate.burst.map(|burst| format!(", gcra with burst {burst}")).unwrap_or_default();
        [
            format!("{} per {}{burst}", candidate.rate, candidate.interval),
            format!("{} ({})", candidate.clients, show_percent(candidate.client_share)),
            format!("{} ({})", candidate.requests, show_percent(candidate.request_share)),
            if candidate.acceptable { "yes" } else { "no" }.to_owned(),
        ]
    });
    write!(out, "{}", table::columns(["CANDIDATE", "CLIENTS REJECTED", "REQUESTS REJECTED", "ACCEPTABLE"], rows))?;
    if !suggestion.top.is_empty() {
        write!(out, "\nrejected most by the proposed rate\n{}", top(&suggestion.top))?;
    }
    for note in &suggestion.notes {
        writeln!(out, "note: {}", table::printable(note))?;
    }
    let others = proposed.clients.saturating_sub(proposed.abusers);
    writeln!(
        out,
        "\nproposed: {} top abusers and {others} other clients are rejected, at most {} of the others\n\n{}",
        proposed.clients - others,
        show_percent(*tolerate),
        suggestion.snippet
    )
}
