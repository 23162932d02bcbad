//! The logs: events of the process go to standard error, requests to where `access_log` says.
//!
//! `TIDEGATE_LOG` sets the level (`warn`, `tidegate=debug`, ...); `info` unless set. Neither log ever holds a header
//! field, a query or a body.

mod clean;
mod lines;
mod panics;
mod sink;

use std::io;

use clap::ValueEnum;
use tracing::Subscriber;
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use self::lines::{Guard, Lines};
use self::sink::Sink;
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

/// Both logs. On drop, writes the lines that wait, unless a reader stalls.
#[derive(Debug)]
pub(super) struct Logs {
    access: Option<Lines>,
    _guards: Vec<Guard>,
}

/// Starts both logs. Panics go to the first.
///
/// # Errors
/// The access log's file cannot be opened.
pub(super) fn start(format: LogFormat, access_log: &AccessLog) -> io::Result<Logs> {
    let is_json = format == LogFormat::Json;
    let (errors, errors_guard) = lines::start(Sink::stream("errors", io::stderr()), is_json, |_| {})?;
    let sink = match access_log {
        AccessLog::Off => None,
        AccessLog::Stdout => Some(Sink::stream("access", io::stdout())),
        AccessLog::File(path) => Some(Sink::file("access", path.into())?),
    };
    let access = sink.map(|sink| lines::start(sink, is_json, Metrics::access_lines_dropped)).transpose()?;
    let (access, access_guard) = access.unzip();
    let level = EnvFilter::try_from_env("TIDEGATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // Filters by target, which tracing caches: an access log that is off costs nothing.
    let not_access = Targets::new().with_default(LevelFilter::TRACE).with_target(access::TARGET, LevelFilter::OFF);
    let mut logs = vec![lines(format, errors).with_filter(level.and(not_access)).boxed()];
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
