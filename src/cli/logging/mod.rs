//! The logs: events of the process go to standard error, requests to where `access_log` says.
//!
//! `--log` or `TIDEGATE_LOG` says what of the first is written ([`filter`]). Neither log ever holds a header
//! field, a query or a body.

mod clean;
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
    let mut logs = vec![lines(format, errors).with_filter(args.log.filter().and(not_access)).boxed()];
    if let Some(writer) = access.clone() {
        let access = Targets::new().with_target(access::TARGET, LevelFilter::INFO);
        logs.push(lines(format, writer).with_filter(access).boxed());
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

fn lines<S>(format: LogFormat, writer: Lines) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    match format {
        LogFormat::Human => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
}
