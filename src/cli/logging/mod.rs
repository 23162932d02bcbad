//! The logs: the program log on standard error, and the access log at the destination that `access_log` sets.
//!
//! `--log` or `TIDEGATE_LOG` filters the program log ([`filter`]). Neither log contains a query string, a body, or a
//! header field other than `Host` and `User-Agent`.

mod escape;
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
use self::lines::{FlushGuard, Lines};
use self::sink::Sink;
use super::CommonArgs;
use crate::access;
use crate::config::AccessLog;
use crate::gateway::AccessLogSwitch;
use crate::metrics::Metrics;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Human-readable text.
    Human,
    /// One JSON object per line.
    Json,
}

/// Error while starting the logs.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    /// The access log's file cannot be opened.
    #[error("cannot open the access log {}: {error}", path.display())]
    Access {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A writer thread cannot be started.
    #[error("cannot start the logs: {0}")]
    Threads(#[from] io::Error),
}

/// Both logs. On drop, writes the queued lines, unless a reader is too slow.
#[derive(Debug)]
pub(super) struct Logs {
    access: Option<Lines>,
    _guards: Vec<FlushGuard>,
}

/// Starts both logs. Panics are written to the program log.
///
/// # Errors
/// See [`LogError`].
pub(super) fn start(args: &CommonArgs, access_log: &AccessLog) -> Result<Logs, LogError> {
    let format = args.log_format;
    let is_json = format == LogFormat::Json;
    let (errors, errors_guard) = lines::start(Sink::stream("errors", io::stderr()), is_json, |_| {})?;
    let access = open_access_log(access_log)?
        .map(|sink| lines::start(sink, is_json, Metrics::access_lines_dropped))
        .transpose()?;
    let (access, access_guard) = access.unzip();
    // Filters by target, because tracing caches that decision: a disabled access log costs nothing.
    let not_access = Targets::new().with_default(LevelFilter::TRACE).with_target(access::TARGET, LevelFilter::OFF);
    let mut logs = vec![lines(format, errors, &[]).with_filter(args.log.filter().and(not_access)).boxed()];
    if let Some(writer) = access.clone() {
        let access = Targets::new().with_target(access::TARGET, LevelFilter::INFO);
        logs.push(lines(format, writer, &OMITTED).with_filter(access).boxed());
    }
    tracing_subscriber::registry().with(logs).try_init().map_err(io::Error::other)?;
    panics::log();
    // This drop order writes messages about the end of the access log, too.
    Ok(Logs { access, _guards: access_guard.into_iter().chain([errors_guard]).collect() })
}

/// Opens the destination of the access log. Returns `None` if the log is off.
///
/// # Errors
/// The file cannot be opened.
fn open_access_log(access_log: &AccessLog) -> Result<Option<Sink>, LogError> {
    Ok(match access_log {
        AccessLog::Off => None,
        AccessLog::Stdout => Some(Sink::stream("access", io::stdout())),
        AccessLog::File(path) => {
            let sink = Sink::file("access", path.into());
            Some(sink.map_err(|error| LogError::Access { path: path.into(), error })?)
        }
    })
}

impl Logs {
    /// Returns a function that opens another destination of the access log. Returns `None` if the log is off, which
    /// only a restart changes.
    pub(super) fn access_log_switch(&self) -> Option<AccessLogSwitch> {
        let lines = self.access.clone()?;
        Some(Box::new(move |access_log| {
            let sink = open_access_log(access_log)?;
            let lines = lines.clone();
            Ok(Box::new(move || sink.into_iter().for_each(|sink| lines.replace(sink))))
        }))
    }

    /// Reopens the access log, if it is a file.
    pub(super) fn reopen(&self) {
        if let Some(access) = &self.access {
            access.reopen();
        }
    }
}

/// Fields of the access log that are omitted from human-readable lines. The message already contains the first two, and
/// the text of the third could look like other fields.
const OMITTED: [&str; 3] = ["method", "path", "user_agent"];

/// Writes events as lines, without the `omitted` fields in the human-readable format.
fn lines<S>(format: LogFormat, writer: Lines, omitted: &'static [&'static str]) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    match format {
        LogFormat::Human => lines.with_target(false).fmt_fields(Fields { omitted }).boxed(),
        // Omits the module of an event, because its key `target` is also the key of a request's target.
        LogFormat::Json => lines.with_target(false).json().flatten_event(true).boxed(),
    }
}
