//! Reads logs: one thread for each file reads, several threads parse, and the calling thread gets the requests in the
//! order of their times.

pub(crate) mod merge;
pub(crate) mod recordings;

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use hashbrown::HashSet;
use http::header::{HeaderName, HeaderValue};
use parking_lot::Mutex;

use super::log::{self, LogFormat};
use crate::log::batch::{Batch, Buffers, Kept, ParsedRequest};
use crate::log::recorded::RecordedValues;
use crate::read::merge::{Source, merge};
use crate::read::recordings::Recordings;

/// The bytes of a batch if there is one file. Several files share them.
const BATCH: usize = 2 << 20;

/// The fewest bytes of a batch.
const MIN_BATCH: usize = 1 << 20;

/// The most bytes of a line. Longer lines are cut.
const MAX_LINE: usize = 16 << 20;

/// The number of lines from which the format of a file is recognized.
const SAMPLE_LINES: usize = 100;

/// The batches of each file that are read ahead.
const READ_AHEAD: usize = 2;

/// Log files and their format.
#[derive(Debug)]
pub struct LogFiles {
    /// The paths, in the order of the command.
    pub paths: Vec<PathBuf>,
    /// The format of all files; `None` to recognize it for each.
    pub format: Option<Arc<LogFormat>>,
    /// The host of requests without a host in the log. `None` leaves them without a host.
    pub host: Option<HeaderValue>,
    /// `None` to show no progress.
    pub progress: Option<Box<dyn Progress>>,
}

/// Shows the progress of a replay.
pub trait Progress: fmt::Debug {
    /// Shows the bytes of the files that have been read, and the lines that have been parsed. Called for each batch.
    fn update(&self, bytes: u64, lines: u64);
}

/// The lines of all files.
#[derive(Clone, Debug, Default)]
pub struct ReadSummary {
    /// The number of lines.
    pub lines: u64,
    /// The number of lines that could not be parsed.
    pub unparsed: u64,
    /// The first line that was not parsed: its file, its number and its escaped text.
    pub first_unparsed: Option<(String, u64, String)>,
    /// The formats of the files.
    pub formats: Vec<String>,
    /// The contents of the recordings.
    pub recordings: Recordings,
}

/// A log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("the format of {} is unknown: describe it with --format", .0.display())]
    UnknownFormat(PathBuf),
}

/// Lines to parse, and the place of the result.
struct Job {
    lines: Buffers,
    format: Arc<LogFormat>,
    parsed: SyncSender<Batch>,
}

/// A batch of a file: the format if it is the first, and the parsed lines.
type Pending = Result<(Option<Arc<LogFormat>>, Receiver<Batch>), ReadError>;

impl ReadSummary {
    fn add(&mut self, batch: &Batch, path: &Path, lines_before: u64) {
        self.lines += batch.lines;
        self.unparsed += batch.unparsed;
        if let (None, Some((line, text))) = (&self.first_unparsed, &batch.first_unparsed) {
            self.first_unparsed = Some((path.display().to_string(), lines_before + line + 1, text.clone()));
        }
    }
}

impl LogFiles {
    /// Calls `consume` for each request in the order of the times, with the position of its file and the number of its
    /// line, and with the values that recordings have. Some calls get the next requests, to load their data
    /// into the cache. Header fields are kept if they are in `fields`.
    ///
    /// # Errors
    /// A file cannot be read, or its format is unknown.
    pub fn read(
        &self,
        fields: HashSet<HeaderName>,
        mut consume: impl FnMut(&ParsedRequest, &[ParsedRequest], (usize, u64), &RecordedValues),
    ) -> Result<ReadSummary, ReadError> {
        let kept = Arc::new(Kept { fields, host: self.host.clone() });
        let size = (BATCH / self.paths.len().max(1)).max(MIN_BATCH);
        let (jobs, queue) = channel::<Job>();
        let (queue, spare) = (Arc::new(Mutex::new(queue)), Mutex::<Vec<Buffers>>::default());
        let spare = &spare;
        thread::scope(|scope| {
            // The calling thread decides, so one thread less parses.
            let parsers = thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).max(1);
            for _ in 0..parsers {
                let (queue, kept) = (Arc::clone(&queue), Arc::clone(&kept));
                scope.spawn(move || parse_jobs(&queue, &kept));
            }
            let (summary, recordings) = (Mutex::new(ReadSummary::default()), RefCell::new(Recordings::default()));
            let bytes = Arc::<AtomicU64>::default();
            let sources = self.paths.iter().map(|path| {
                let (batches, pending) = sync_channel::<Pending>(READ_AHEAD);
                let (jobs, format, bytes_read) = (jobs.clone(), self.format.clone(), Arc::clone(&bytes));
                scope.spawn(move || {
                    let mut reader = Reader { path, size, format, jobs, batches, spare, bytes_read };
                    if let Err(error) = reader.read() {
                        _ = reader.batches.send(Err(error));
                    }
                });
                let (summary, recordings, bytes, mut lines) = (&summary, &recordings, &bytes, 0);
                Source::new(move |consumed: Option<Batch>| {
                    spare.lock().extend(consumed.map(Batch::into_buffers));
                    let Ok(next) = pending.recv() else { return Ok(None) };
                    let (format, parsed) = next?;
                    let batch = parsed.recv().unwrap_or_default();
                    let mut summary = summary.lock();
                    summary.formats.extend(format.map(|format| format.name().to_owned()));
                    summary.add(&batch, path, lines);
                    recordings.borrow_mut().add(path, &batch.marks);
                    lines += batch.lines;
                    if let Some(progress) = &self.progress {
                        progress.update(bytes.load(Ordering::Relaxed), summary.lines);
                    }
                    Ok(Some(batch))
                })
            });
            let sources: Vec<_> = sources.collect();
            drop(jobs);
            merge(sources, |request, upcoming, log, line| {
                consume(request, upcoming, (log, line), recordings.borrow().values());
            })?;
            Ok(ReadSummary { recordings: recordings.into_inner(), ..summary.into_inner() })
        })
    }
}

/// Parses batches until there are no more.
fn parse_jobs(queue: &Mutex<Receiver<Job>>, kept: &Kept) {
    loop {
        let job = queue.lock().recv();
        let Ok(Job { lines, format, parsed }) = job else { return };
        _ = parsed.send(Batch::parse(lines, &format, kept));
    }
}

/// Reads one file.
struct Reader<'f> {
    path: &'f Path,
    size: usize,
    format: Option<Arc<LogFormat>>,
    jobs: Sender<Job>,
    batches: SyncSender<Pending>,
    /// The buffers of consumed batches: at most as many as batches are read ahead and merged.
    spare: &'f Mutex<Vec<Buffers>>,
    /// The bytes that have been read from all files.
    bytes_read: Arc<AtomicU64>,
}

impl Reader<'_> {
    /// Cuts the file into batches at the ends of lines. Ends early after an error in another file.
    fn read(&mut self) -> Result<(), ReadError> {
        let failed = |error| ReadError::Io { path: self.path.to_owned(), error };
        let mut input = log::open(self.path, &self.bytes_read).map_err(failed)?;
        let mut unfinished = Vec::new();
        loop {
            let mut lines = self.spare.lock().pop().unwrap_or_default();
            lines.text.append(&mut unfinished);
            let is_last;
            (unfinished, is_last) = next_lines(&mut input, &mut lines.text, self.size).map_err(failed)?;
            if !lines.text.is_empty() && !self.send(lines)? || is_last {
                return Ok(());
            }
        }
    }

    /// Sends lines to the parsers. Returns `false` if the batches are not wanted.
    fn send(&mut self, lines: Buffers) -> Result<bool, ReadError> {
        let mut first = None;
        let format = match &self.format {
            Some(format) => Arc::clone(format),
            None => {
                let sample: Vec<&[u8]> = lines.text.split(|byte| *byte == b'\n').take(SAMPLE_LINES).collect();
                let format = LogFormat::recognize(&sample);
                let format = Arc::new(format.ok_or_else(|| ReadError::UnknownFormat(self.path.to_owned()))?);
                first = Some(Arc::clone(&format));
                Arc::clone(self.format.insert(format))
            }
        };
        let (parsed, result) = sync_channel(1);
        let is_wanted = self.batches.send(Ok((first, result))).is_ok();
        Ok(is_wanted && self.jobs.send(Job { lines, format, parsed }).is_ok())
    }
}

/// Adds about `size` bytes to the start of a line, up to the end of a line. Returns the start of the next line, and
/// whether the input has ended.
fn next_lines(input: &mut dyn BufRead, text: &mut Vec<u8>, size: usize) -> io::Result<(Vec<u8>, bool)> {
    text.reserve_exact(size);
    loop {
        let before = text.len();
        Read::take(&mut *input, size as u64).read_to_end(text)?;
        if text.len() - before < size {
            return Ok((Vec::new(), true));
        }
        let end = text[before..].iter().rposition(|byte| *byte == b'\n').map(|at| before + at + 1);
        if let Some(end) = end.or((text.len() > MAX_LINE).then_some(text.len())) {
            return Ok((text.split_off(end), false));
        }
    }
}
