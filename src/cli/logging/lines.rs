//! A queue of log lines, and the thread that writes them.
//!
//! A slow reader (a full pipe, a slow disk) does not delay requests: lines wait in a bounded queue. If the queue is
//! full, lines are dropped and counted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

use super::escape::escape_line;
use super::sink::Sink;
use tidegate_limit::clock::Stopwatch;

/// Maximum bytes of queued lines, including those that are being written.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;
/// The capacity of the buffer that is kept after a burst.
const KEPT_CAPACITY: usize = 64 * 1024;
/// How long the process waits for a slow reader when it exits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The producers' side of the queue. When all clones are dropped, the thread writes the queued lines and ends.
#[derive(Clone, Debug)]
pub(super) struct Lines(Arc<Producer>);

#[derive(Debug)]
struct Producer(Arc<LogQueue>);

/// The thread that writes the lines.
#[derive(Debug)]
pub(super) struct LogThread(Arc<LogQueue>);

#[derive(Debug)]
struct LogQueue {
    /// Whether unsafe characters get JSON escapes.
    is_json: bool,
    /// Counts dropped lines.
    count_dropped: fn(u64),
    state: Mutex<QueueState>,
    /// Wakes the writer thread.
    changed: Condvar,
    /// Signals the end of the writer thread.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    queued: Vec<u8>,
    /// The number of bytes that are being written.
    writing: usize,
    /// Lines that were dropped since the last report.
    dropped: u64,
    must_reopen: bool,
    must_end: bool,
    has_ended: bool,
}

/// Lines to write, and what else the writer thread must do.
struct Task {
    must_reopen: bool,
    /// The number of lines that were dropped since the last task.
    dropped: u64,
}

/// Starts a thread that writes to `sink`. `count_dropped` counts dropped lines.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start(sink: Sink, is_json: bool, count_dropped: fn(u64)) -> io::Result<(Lines, LogThread)> {
    let (state, changed, ended) = (Mutex::default(), Condvar::new(), Condvar::new());
    let shared = Arc::new(LogQueue { is_json, count_dropped, state, changed, ended });
    let writer = Arc::clone(&shared);
    std::thread::Builder::new().name("log".into()).spawn(move || writer.run(sink))?;
    Ok((Lines(Arc::new(Producer(Arc::clone(&shared)))), LogThread(shared)))
}

impl Lines {
    /// Reopens a log file before the next line is written. Used after log rotation has renamed the file.
    pub(super) fn reopen(&self) {
        let Producer(queue) = &*self.0;
        queue.state.lock().must_reopen = true;
        queue.changed.notify_one();
    }
}

impl LogThread {
    /// Waits until all queued lines are written, at most [`FLUSH_TIMEOUT`]. Later lines may be lost.
    pub(super) fn flush(&self) {
        flush(std::slice::from_ref(self));
    }

    /// Returns `true` if no line can follow, and all lines are written.
    pub(super) fn has_ended(&self) -> bool {
        self.0.state.lock().has_ended
    }
}

/// Waits until the queued lines of all threads are written, at most [`FLUSH_TIMEOUT`]. Later lines may be lost.
pub(super) fn flush(threads: &[LogThread]) {
    threads.iter().for_each(|LogThread(queue)| queue.end());
    let stopwatch = Stopwatch::start();
    for LogThread(queue) in threads {
        let rest = FLUSH_TIMEOUT.saturating_sub(stopwatch.elapsed());
        queue.ended.wait_while_for(&mut queue.state.lock(), |state| !state.has_ended, rest);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl LogQueue {
    fn push(&self, line: &str) {
        let line = escape_line(line, self.is_json);
        let mut state = self.state.lock();
        if state.queued.len() + state.writing + line.len() > MAX_QUEUED_BYTES {
            state.dropped += 1;
            drop(state);
            return (self.count_dropped)(1);
        }
        state.queued.extend_from_slice(line.as_bytes());
        drop(state);
        self.changed.notify_one();
    }

    fn run(&self, mut sink: Sink) {
        let mut batch = Vec::new();
        while let Some(task) = self.next(&mut batch) {
            if task.must_reopen {
                sink.reopen();
            }
            (self.count_dropped)(sink.write(&batch));
            batch.clear();
            batch.shrink_to(KEPT_CAPACITY);
            if task.dropped > 0 {
                tracing::warn!(log = sink.name(), lines = task.dropped, "log reader is too slow, dropped lines");
            }
        }
    }

    /// Lets the thread end when it has written the queued lines.
    fn end(&self) {
        self.state.lock().must_end = true;
        self.changed.notify_one();
    }

    /// Waits for lines and takes them. Returns `None` at the end.
    fn next(&self, batch: &mut Vec<u8>) -> Option<Task> {
        let mut state = self.state.lock();
        state.writing = 0;
        while state.queued.is_empty() && !state.must_reopen {
            if state.must_end {
                state.has_ended = true;
                self.ended.notify_all();
                return None;
            }
            self.changed.wait(&mut state);
        }
        std::mem::swap(&mut state.queued, batch);
        state.writing = batch.len();
        let (must_reopen, dropped) = (std::mem::take(&mut state.must_reopen), std::mem::take(&mut state.dropped));
        Some(Task { must_reopen, dropped })
    }
}

/// A subscriber writes each line with a single call.
impl io::Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.0.push(&String::from_utf8_lossy(line));
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
