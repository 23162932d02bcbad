//! The access log with its destination and format, which a reload replaces in one step.

use std::fmt;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tracing::Event;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer};

use super::combined::Combined;
use super::lines::{self, LogThread};
use super::sink::Sink;
use super::{Lines, LogError, LogFormat, json_lines, text_lines};
use crate::access;
use crate::config::{AccessLog, AccessLogDestination, AccessLogFormat};
use crate::metrics::Metrics;

/// Writes the events of the access log.
#[derive(Clone, Debug)]
pub(super) struct AccessOutput(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    current: ArcSwap<Current>,
    thread: Mutex<LogThread>,
}

/// The format and the destination of later lines.
struct Current {
    format: Box<dyn Layer<Registry> + Send + Sync>,
    lines: Lines,
}

/// An open access log that is not in use yet.
pub(super) struct OpenAccessLog {
    current: Current,
    thread: LogThread,
    sample: u64,
}

/// Fields that are omitted from text lines. The message already contains the first two, and the text of the third could
/// look like other fields.
const OMITTED: [&str; 3] = ["method", "path", "user_agent"];

/// Opens the access log. If it has no format, the format of the process log applies. Returns `None` if the
/// log is off.
///
/// # Errors
/// The file cannot be opened, or the thread cannot be started.
pub(super) fn open(access_log: &AccessLog, process_log: LogFormat) -> Result<Option<OpenAccessLog>, LogError> {
    let sink = match &access_log.destination {
        AccessLogDestination::Off => return Ok(None),
        AccessLogDestination::Stdout => Sink::stream("access", io::stdout()),
        AccessLogDestination::File(path) => {
            Sink::file("access", path.into()).map_err(|error| LogError::Access { path: path.into(), error })?
        }
    };
    let format = access_log.format.unwrap_or(match process_log {
        LogFormat::Human => AccessLogFormat::Text,
        LogFormat::Json => AccessLogFormat::Json,
    });
    let is_json = format == AccessLogFormat::Json;
    let (lines, thread) = lines::start(sink, is_json, Metrics::access_lines_dropped)?;
    let writer = lines.clone();
    let format = match format {
        AccessLogFormat::Text => text_lines(writer, &OMITTED),
        AccessLogFormat::Json => json_lines(writer),
        AccessLogFormat::Combined => {
            tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).event_format(Combined).boxed()
        }
    };
    Ok(Some(OpenAccessLog { current: Current { format, lines }, thread, sample: access_log.sample.threshold() }))
}

impl AccessOutput {
    pub(super) fn new(OpenAccessLog { current, thread, sample }: OpenAccessLog) -> Self {
        access::set_sample(sample);
        Self(Arc::new(Shared { current: ArcSwap::from_pointee(current), thread: Mutex::new(thread) }))
    }

    /// Writes all later lines to this log. The previous destination gets the lines that wait for it.
    pub(super) fn replace(&self, OpenAccessLog { current, thread, sample }: OpenAccessLog) {
        access::set_sample(sample);
        self.0.current.store(Arc::new(current));
        *self.0.thread.lock() = thread;
    }

    pub(super) fn reopen(&self) {
        self.0.current.load().lines.reopen();
    }

    pub(super) fn flush(&self) {
        self.0.thread.lock().flush();
    }
}

impl Layer<Registry> for AccessOutput {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, Registry>) {
        self.0.current.load().format.on_event(event, context);
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").field("lines", &self.lines).finish_non_exhaustive()
    }
}
