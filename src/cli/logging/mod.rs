//! The logs: events of the process go to standard error, requests to where `access_log` says.
//!
//! `--log` or `TIDEGATE_LOG` says what of the first is written ([`filter`]). Neither log ever holds a query, a body, or
//! a header field other than `Host` and `User-Agent`.

mod clean;
mod fields;
mod filter;
mod lines;
mod panics;
mod sink;

use std::io;
use std::path::PathBuf;

use clap::ValueEnum;
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt, LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use self::fields::Fields;
pub(super) use self::filter::LogFilter;
use self::lines::{Guard, Lines};
use self::sink::Sink;
use super::CommonArgs;
use crate::access;
use crate::config::AccessLog;
use crate::metrics::Metrics;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Text for people.
    Human,
    /// One JSON object for each line.
    Json,
}

/// Why the logs cannot be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    /// The access log's file cannot be opened.
    #[error("cannot open the access log {}: {error}", path.display())]
    Access {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start the logs: {0}")]
    Threads(#[from] io::Error),
}

/// Both logs. On drop, writes the lines that wait, unless a reader stalls.
#[derive(Debug)]
pub(super) struct Logs {
    access: Option<Lines>,
    _guards: Vec<Guard>,
}

/// Starts both logs. Panics go to the first.
///
/// # Errors
/// See [`LogError`].
pub(super) fn start(args: &CommonArgs, access_log: &AccessLog) -> Result<Logs, LogError> {
    let format = args.log_format;
    let is_json = format == LogFormat::Json;
    let (errors, errors_guard) = lines::start(Sink::stream("errors", io::stderr()), is_json, |_| {})?;
    let sink = match access_log {
        AccessLog::Off => None,
        AccessLog::Stdout => Some(Sink::stream("access", io::stdout())),
        AccessLog::File(path) => {
            let sink = Sink::file("access", path.into());
            Some(sink.map_err(|error| LogError::Access { path: path.into(), error })?)
        }
    };
    let access = sink.map(|sink| lines::start(sink, is_json, Metrics::access_lines_dropped)).transpose()?;
    let (access, access_guard) = access.unzip();
    // Filters by target, which tracing caches: an access log that is off costs nothing.
    let not_access = Targets::new().with_default(LevelFilter::TRACE).with_target(access::TARGET, LevelFilter::OFF);
    let mut logs = vec![lines(format, errors, &[]).with_filter(args.log.filter().and(not_access)).boxed()];
    if let Some(writer) = access.clone() {
        let access = Targets::new().with_target(access::TARGET, LevelFilter::INFO);
        logs.push(lines(format, writer, &IN_MESSAGE).with_filter(access).boxed());
    }
    tracing_subscriber::registry().with(logs).try_init().map_err(io::Error::other)?;
    panics::log();
    // In this order, so that the last messages about the access log are still written.
    Ok(Logs { access, _guards: access_guard.into_iter().chain([errors_guard]).collect() })
}

impl Logs {
    /// Reopens the access log, if it is a file.
    pub(super) fn reopen(&self) {
        if let Some(access) = &self.access {
            access.reopen();
        }
    }
}

/// The fields of an access line that human lines omit: the message has two of them, and the third may hold anything that
/// looks like other fields.
const IN_MESSAGE: [&str; 3] = ["method", "path", "user_agent"];

/// Writes events as lines; human lines without the `omitted` fields.
fn lines<S>(format: LogFormat, writer: Lines, omitted: &'static [&'static str]) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    match format {
        LogFormat::Human => lines.with_target(false).fmt_fields(Fields { omitted }).boxed(),
        // Without the module of an event, whose key is `target`: that is the target of a request.
        LogFormat::Json => lines.with_target(false).json().flatten_event(true).boxed(),
    }
}
