//! The destination of a log: a stream or a file. It may fail and recover.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// The pause before a retry, if another process has made the stream non-blocking.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// The destination of a log.
pub(super) struct Sink {
    name: &'static str,
    writer: Box<dyn Write + Send>,
    /// The path of a file, to reopen it.
    path: Option<PathBuf>,
    /// Whether the last write failed. A failure is logged once.
    is_failing: bool,
    /// Whether the last line was written only partially.
    is_partial: bool,
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("name", &self.name).field("path", &self.path).finish_non_exhaustive()
    }
}

impl Sink {
    pub(super) fn stream(name: &'static str, writer: impl Write + Send + 'static) -> Self {
        Self { name, writer: Box::new(writer), path: None, is_failing: false, is_partial: false }
    }

    /// Opens a log file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn file(name: &'static str, path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        Ok(Self { path: Some(path), ..Self::stream(name, file) })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn reopen(&mut self) {
        let Some(path) = &self.path else { return };
        match open(path) {
            Ok(file) => (self.writer, self.is_partial) = (Box::new(file), false),
            Err(error) => {
                tracing::error!(log = self.name, %error, "cannot reopen the log file, continuing with the old one");
            }
        }
    }

    /// Writes lines. Returns how many of them were lost.
    pub(super) fn write(&mut self, lines: &[u8]) -> u64 {
        let line_end = if self.is_partial { self.write_all(b"\n") } else { Ok(()) };
        let written = line_end.map_err(|(_, error)| (0, error)).and_then(|()| self.write_all(lines));
        match written {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(log = self.name, "log can be written again");
                }
                self.is_partial = false;
                0
            }
            Err((count, error)) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!(log = self.name, %error, "cannot write the log, dropping lines");
                }
                if let Some(last) = count.checked_sub(1) {
                    self.is_partial = lines[last] != b'\n';
                }
                lines[count..].iter().filter(|byte| **byte == b'\n').count() as u64
            }
        }
    }

    /// Writes all bytes. An error contains the number of bytes that were written.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut count = 0;
        while count < bytes.len() {
            match self.writer.write(&bytes[count..]) {
                Ok(0) => return Err((count, io::ErrorKind::WriteZero.into())),
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::park_timeout(RETRY_DELAY),
                Err(error) => return Err((count, error)),
            }
        }
        self.writer.flush().map_err(|error| (count, error))
    }
}

fn open(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// Accepts a number of bytes, and then fails until it is given a new number.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (room, written) = &mut *self.0.lock();
            let count = bytes.len().min(*room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= count;
            written.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn partial_line_is_ended_before_the_next_line() {
        let disk = Disk::default();
        let mut sink = Sink::stream("log", disk.clone());
        disk.0.lock().0 = 6;
        assert_eq!(sink.write(b"one\ntwo\nthree\n"), 2);
        assert_eq!(sink.write(b"four\n"), 1);
        disk.0.lock().0 = 100;
        assert_eq!(sink.write(b"five\n"), 0);
        assert_eq!(sink.write(b"six\n"), 0);
        assert_eq!(String::from_utf8_lossy(&disk.0.lock().1), "one\ntw\nfive\nsix\n");
    }
}
