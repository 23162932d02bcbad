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
use tidegate_config::{AccessLog, AccessLogDestination, AccessLogFormat};
use tidegate_metrics::Metrics;
use tidegate_proxy::access;

/// Writes the events of the access log.
#[derive(Clone, Debug)]
pub(super) struct AccessOutput(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    current: ArcSwap<Current>,
    /// The threads of the current destination, and of previous destinations that still write lines.
    threads: Mutex<Vec<LogThread>>,
}

/// The format and the destination of new lines.
struct Current {
    target: Target,
    format: Box<dyn Layer<Registry> + Send + Sync>,
    lines: Lines,
}

/// The settings of an access log that need another thread if they change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    destination: AccessLogDestination,
    format: AccessLogFormat,
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
    let target = Target::new(access_log, process_log);
    let is_json = target.format == AccessLogFormat::Json;
    let (lines, thread) = lines::start(sink, is_json, Metrics::access_lines_dropped)?;
    let writer = lines.clone();
    let format = match target.format {
        AccessLogFormat::Text => text_lines(writer, &OMITTED),
        AccessLogFormat::Json => json_lines(writer),
        AccessLogFormat::Combined => {
            tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false).event_format(Combined).boxed()
        }
    };
    let (current, sample) = (Current { target, format, lines }, access_log.sample.threshold());
    Ok(Some(OpenAccessLog { current, thread, sample }))
}

impl Target {
    fn new(access_log: &AccessLog, process_log: LogFormat) -> Self {
        let format = access_log.format.unwrap_or(match process_log {
            LogFormat::Human => AccessLogFormat::Text,
            LogFormat::Json => AccessLogFormat::Json,
        });
        Self { destination: access_log.destination.clone(), format }
    }
}

impl AccessOutput {
    pub(super) fn new(OpenAccessLog { current, thread, sample }: OpenAccessLog) -> Self {
        access::set_sample(sample);
        Self(Arc::new(Shared { current: ArcSwap::from_pointee(current), threads: Mutex::new(vec![thread]) }))
    }

    /// Returns `true` if these settings equal the current ones, without regard to the sample.
    pub(super) fn has_target(&self, access_log: &AccessLog, process_log: LogFormat) -> bool {
        self.0.current.load().target == Target::new(access_log, process_log)
    }

    /// Writes all later lines to this log. The previous destination gets the lines that wait for it.
    pub(super) fn replace(&self, OpenAccessLog { current, thread, sample }: OpenAccessLog) {
        access::set_sample(sample);
        self.0.current.store(Arc::new(current));
        let mut threads = self.0.threads.lock();
        threads.retain(|thread| !thread.has_ended());
        threads.push(thread);
    }

    pub(super) fn reopen(&self) {
        self.0.current.load().lines.reopen();
    }

    /// Writes the lines that wait for the current destination and for previous ones.
    pub(super) fn flush(&self) {
        lines::flush(&self.0.threads.lock());
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;
    use crate::gateway::Gateway;

    /// A destination that writes slowly.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::park_timeout(Duration::from_millis(50));
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn settings(access_log: &str) -> AccessLog {
        let rest = "listen: 127.0.0.1:0\nadmin: off\nupstreams: { echo: { targets: ['builtin:echo'] } }\n\
                    routes: [{ name: all, match: {}, upstream: echo }]\n";
        Gateway::parse_config(&format!("access_log: {access_log}\n{rest}")).unwrap().access_log
    }

    fn open_slow() -> (OpenAccessLog, Slow) {
        let slow = Slow::default();
        let (lines, thread) = lines::start(Sink::stream("access", slow.clone()), false, |_| {}).unwrap();
        let target = Target::new(&settings("stdout"), LogFormat::Human);
        let format = text_lines(lines.clone(), &OMITTED);
        (OpenAccessLog { current: Current { target, format, lines }, thread, sample: u64::MAX }, slow)
    }

    #[test]
    fn flush_writes_lines_of_previous_destinations() {
        let (open, first) = open_slow();
        let output = AccessOutput::new(open);
        (&output.0.current.load().lines).write_all(b"one\n").unwrap();
        let (open, second) = open_slow();
        output.replace(open);
        (&output.0.current.load().lines).write_all(b"two\n").unwrap();
        output.flush();
        let written = [first, second].map(|slow| String::from_utf8(slow.0.lock().clone()).unwrap());
        assert_eq!(written, ["one\n", "two\n"]);
    }

    #[test]
    fn new_sample_keeps_the_thread() {
        let output = AccessOutput::new(open_slow().0);
        let has_target = |access_log, format| output.has_target(&settings(access_log), format);
        assert!(has_target("{ path: stdout, sample: 0.5 }", LogFormat::Human));
        assert!(has_target("{ path: stdout, format: text, sample: 0.5 }", LogFormat::Json));
        assert!(!has_target("{ path: stdout, format: json }", LogFormat::Human));
        assert!(!has_target("stdout", LogFormat::Json));
        assert!(!has_target("{ path: ./a.log }", LogFormat::Human));
    }
}
