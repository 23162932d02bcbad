//! A queue of log lines, and the thread that writes them.
//!
//! A reader that stalls (a full pipe, a slow disk) delays no request: lines wait in a bounded queue, and are dropped and
//! counted when it is full.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

use super::clean::clean;
use super::sink::Sink;

/// The most bytes of waiting lines, including those being written.
const ROOM: usize = 8 * 1024 * 1024;
/// The capacity kept after a burst.
const KEPT: usize = 64 * 1024;
/// How long the process waits at its end for a reader that stalls.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The queue, to which lines are pushed.
#[derive(Clone, Debug)]
pub(super) struct Lines(Arc<LogQueue>);

/// On drop, waits until all lines are written, for a bounded time.
#[derive(Debug)]
pub(crate) struct Guard(Arc<LogQueue>);

#[derive(Debug)]
struct LogQueue {
    /// Whether odd characters are escaped as JSON does.
    is_json: bool,
    /// Counts dropped lines.
    count: fn(u64),
    state: Mutex<LogLines>,
    /// Wakes the thread.
    news: Condvar,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct LogLines {
    waiting: Vec<u8>,
    /// The bytes being written.
    writing: usize,
    /// Lines dropped since the last report.
    dropped: u64,
    reopens: bool,
    ends: bool,
    has_ended: bool,
}

/// Starts a thread that writes to `sink`; `count` counts dropped lines.
///
/// # Errors
/// The system gives no thread.
pub(super) fn start(sink: Sink, is_json: bool, count: fn(u64)) -> io::Result<(Lines, Guard)> {
    let (state, news, ended) = (Mutex::default(), Condvar::new(), Condvar::new());
    let shared = Arc::new(LogQueue { is_json, count, state, news, ended });
    let writer = Arc::clone(&shared);
    std::thread::Builder::new().name("log".into()).spawn(move || writer.run(sink))?;
    Ok((Lines(Arc::clone(&shared)), Guard(shared)))
}

impl Lines {
    /// Reopens the file before the next line, if it is one: log rotation moves it away.
    pub(super) fn reopen(&self) {
        self.0.state.lock().reopens = true;
        self.0.news.notify_one();
    }
}

impl LogQueue {
    fn push(&self, line: &str) {
        let line = clean(line, self.is_json);
        let mut state = self.state.lock();
        if state.waiting.len() + state.writing + line.len() > ROOM {
            state.dropped += 1;
            drop(state);
            return (self.count)(1);
        }
        state.waiting.extend_from_slice(line.as_bytes());
        drop(state);
        self.news.notify_one();
    }

    fn run(&self, mut sink: Sink) {
        let mut batch = Vec::new();
        while let Some((reopens, dropped)) = self.next(&mut batch) {
            if reopens {
                sink.reopen();
            }
            (self.count)(sink.write(&batch));
            batch.clear();
            batch.shrink_to(KEPT);
            if dropped > 0 {
                tracing::warn!(log = sink.name(), lines = dropped, "dropped lines that nobody took in time");
            }
        }
    }

    /// Waits for lines and takes them. Returns whether to reopen the file and how many lines were dropped meanwhile; `None` at
    /// the end.
    fn next(&self, batch: &mut Vec<u8>) -> Option<(bool, u64)> {
        let mut state = self.state.lock();
        state.writing = 0;
        while state.waiting.is_empty() && !state.reopens {
            if state.ends {
                state.has_ended = true;
                self.ended.notify_all();
                return None;
            }
            self.news.wait(&mut state);
        }
        std::mem::swap(&mut state.waiting, batch);
        state.writing = batch.len();
        Some((std::mem::take(&mut state.reopens), std::mem::take(&mut state.dropped)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.ends = true;
        self.0.news.notify_one();
        self.0.ended.wait_while_for(&mut state, |state| !state.has_ended, LAST_WORD);
    }
}

/// A subscriber writes each line in one piece.
impl io::Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'l> MakeWriter<'l> for Lines {
    type Writer = &'l Self;

    fn make_writer(&'l self) -> Self::Writer {
        self
    }
}
