//! The logs: the program log on standard error, and the access log as `access_log` sets it.
//!
//! `--log` or `TIDEGATE_LOG` filters the program log ([`filter`]). Neither log contains a query string, a body, or a
//! header field other than `Host` and `User-Agent`.

mod access;
mod combined;
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

use self::access::AccessOutput;
pub(super) use self::escape::is_unsafe;
use self::fields::Fields;
pub(super) use self::filter::LogFilter;
use self::lines::{Lines, LogThread};
use self::sink::Sink;
use super::CommonArgs;
use crate::gateway::AccessLogSwitch;
use tidegate_config::AccessLog;
use tidegate_proxy::access::{TARGET, set_sample};

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

/// Both logs. On drop, writes the queued lines, unless the reader of standard error or of a pipe is too slow.
#[derive(Debug)]
pub(super) struct Logs {
    access: Option<AccessOutput>,
    program: LogThread,
    format: LogFormat,
}

/// Starts both logs. Panics are written to the program log.
///
/// # Errors
/// See [`LogError`].
pub(super) fn start(args: &CommonArgs, access_log: &AccessLog) -> Result<Logs, LogError> {
    let format = args.log_format;
    let (writer, program) = lines::start(Sink::stream("errors", io::stderr()), format == LogFormat::Json, |_| {})?;
    let lines = match format {
        LogFormat::Human => text_lines(writer, &[]),
        LogFormat::Json => json_lines(writer),
    };
    let access = access::open(access_log, format)?.map(AccessOutput::new);
    // Filters by target, because tracing caches that decision: a disabled access log costs nothing.
    let not_access = Targets::new().with_default(LevelFilter::TRACE).with_target(TARGET, LevelFilter::OFF);
    let mut logs = vec![lines.with_filter(args.log.filter().and(not_access)).boxed()];
    if let Some(output) = access.clone() {
        let filter = Targets::new().with_target(TARGET, LevelFilter::INFO);
        logs.push(output.with_filter(filter).boxed());
    }
    tracing_subscriber::registry().with(logs).try_init().map_err(io::Error::other)?;
    panics::log();
    Ok(Logs { access, program, format })
}

impl Logs {
    /// Returns a function that opens the access log with other settings. Returns `None` if the log is off, which only a
    /// restart changes.
    pub(super) fn access_log_switch(&self) -> Option<AccessLogSwitch> {
        let (access, format) = (self.access.clone()?, self.format);
        Some(Box::new(move |access_log| {
            if access.has_target(access_log, format) {
                let sample = access_log.sample.threshold();
                return Ok(Box::new(move || set_sample(sample)));
            }
            let open = access::open(access_log, format)?;
            let access = access.clone();
            Ok(Box::new(move || open.into_iter().for_each(|open| access.replace(open))))
        }))
    }

    /// Reopens the access log, if it is a file.
    pub(super) fn reopen(&self) {
        if let Some(access) = &self.access {
            access.reopen();
        }
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(access) = &self.access {
            access.flush();
        }
        // Last, because it has the messages about the end of the access log.
        self.program.flush();
    }
}

/// Writes events as readable lines, without the `omitted` fields.
fn text_lines<S>(writer: Lines, omitted: &'static [&'static str]) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    lines.with_target(false).fmt_fields(Fields { omitted }).boxed()
}

/// Writes events as JSON objects. Omits the module of an event, because its key `target` is also the key of a request's
/// target.
fn json_lines<S>(writer: Lines) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    lines.with_target(false).json().flatten_event(true).boxed()
}
