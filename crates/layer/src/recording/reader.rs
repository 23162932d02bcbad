//! Takes the lines of a recording.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use super::{Backlog, Recorder, Recording};

/// The bytes from which lines are no longer combined.
const CHUNK: usize = 64 << 10;

/// The reader of a recording. Dropping it ends the recording.
#[derive(Debug)]
pub struct RecordingReader {
    pub(super) id: String,
    pub(super) recorder: Arc<Recorder>,
    pub(super) recording: Weak<Recording>,
    pub(super) queue: UnboundedReceiver<String>,
    pub(super) backlog: Arc<Backlog>,
    pub(super) closed: watch::Receiver<bool>,
}

impl RecordingReader {
    /// Returns the id for [`Recorder::end`].
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits for lines, and returns one or several. Returns `None` if an operator has ended the recording, or if the
    /// recorder is closed. Loses no line if it is not awaited to the end.
    pub async fn lines(&mut self) -> Option<String> {
        let first = tokio::select! {
            biased;
            // An error means the same: the recorder is gone.
            _ = self.closed.wait_for(|closed| *closed) => None,
            () = self.backlog.ended.notified() => None,
            line = self.queue.recv() => line,
        };
        first.map(|first| self.with_more(first))
    }

    /// Returns lines that wait; `None` without any.
    pub fn waiting_lines(&mut self) -> Option<String> {
        self.queue.try_recv().ok().map(|first| self.with_more(first))
    }

    /// Ends the recording. Lines that wait can still be taken.
    pub fn end(&self) {
        self.recorder.remove(&self.recording);
    }

    /// Returns the number of lines that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.backlog.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of requests whose lines have not been sent. A line that is sent after the call can still be
    /// taken.
    pub fn in_flight(&self) -> u64 {
        self.backlog.in_flight.load(Ordering::Acquire)
    }

    fn with_more(&mut self, first: String) -> String {
        let mut lines = first;
        while lines.len() < CHUNK
            && let Ok(line) = self.queue.try_recv()
        {
            lines.push_str(&line);
        }
        self.backlog.bytes.fetch_sub(lines.len(), Ordering::Relaxed);
        lines
    }
}

impl Drop for RecordingReader {
    fn drop(&mut self) {
        self.end();
    }
}
