//! Where log lines go: what happens to the process to standard error, what happens to requests where `access_log` says.
//!
//! `TIDEGATE_LOG` sets the level (`warn`, `tidegate=debug`, ...); `info` unless set. Neither log ever holds a header
//! field, a query or a body.

use std::fs::OpenOptions;
use std::io;

use clap::ValueEnum;
use tracing::Subscriber;
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::access;
use crate::config::AccessLog;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// Starts both logs. They are written by a thread of their own: a reader that stalls holds up no request. What it has
/// not written yet is written when the guards are dropped.
///
/// # Errors
/// The access log's file cannot be opened.
pub(super) fn start(format: LogFormat, access_log: &AccessLog) -> io::Result<Vec<WorkerGuard>> {
    let (errors, errors_guard) = tracing_appender::non_blocking(io::stderr());
    let mut guards = vec![errors_guard];
    let access_writer = match access_log {
        AccessLog::Off => None,
        AccessLog::Stdout => Some(tracing_appender::non_blocking(io::stdout())),
        AccessLog::File(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path)?;
            Some(tracing_appender::non_blocking(file))
        }
    };
    let level = EnvFilter::try_from_env("TIDEGATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // Filters that know their answer for a whole target: where the access log is off, asking whether it is on is free.
    let not_access = Targets::new().with_default(LevelFilter::TRACE).with_target(access::TARGET, LevelFilter::OFF);
    let mut logs = vec![lines(format, errors).with_filter(level.and(not_access)).boxed()];
    if let Some((writer, guard)) = access_writer {
        guards.push(guard);
        let access = Targets::new().with_target(access::TARGET, LevelFilter::INFO);
        logs.push(lines(format, writer).with_filter(access).boxed());
    }
    tracing_subscriber::registry().with(logs).try_init().map_err(io::Error::other)?;
    Ok(guards)
}

fn lines<S>(format: LogFormat, writer: NonBlocking) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    match format {
        LogFormat::Human => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    }
}
