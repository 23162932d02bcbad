//! Reads files on separate threads, because a hung file system can block a read forever.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::Duration;

/// The highest number of reads in flight. Reads that hang must not use up all threads of the process.
const MAX_READS: usize = 32;

/// The number of reads in flight.
static READS: AtomicUsize = AtomicUsize::new(0);

/// A read in flight, until it is dropped.
struct InFlightRead;

/// The CPU time of a thread, as a file of Linux.
#[derive(Clone, Default)]
struct CpuTime(Arc<OnceLock<File>>);

/// Runs `read` on its own thread, and blocks until it has ended. Nothing waits for a thread that has used almost no CPU time
/// for `limit`, and nothing waits when the process ends. So a long file may be parsed in `read`. Without the statistics of
/// Linux, the limit includes that time.
///
/// # Errors
/// The read hangs for longer than `limit`, too many reads hang, or no thread can be started.
pub fn read_detached<T: Send + 'static>(limit: Duration, read: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let in_flight = InFlightRead::begin()?;
    let (sender, receiver) = sync_channel(1);
    let (cpu_time, mut used) = (CpuTime::default(), Duration::ZERO);
    let of_thread = cpu_time.clone();
    Builder::new().name("read".into()).spawn(move || {
        of_thread.begin();
        let result = read();
        drop(in_flight);
        _ = sender.send(result); // fails after the limit
    })?;
    loop {
        let result = receiver.recv_timeout(limit);
        let before = std::mem::replace(&mut used, cpu_time.read());
        match result {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) if used.saturating_sub(before) > limit / 100 => {}
            Err(_) => return Err(hung(limit)),
        }
    }
}

impl CpuTime {
    /// Makes this the time of the calling thread.
    fn begin(&self) {
        if let Ok(statistics) = File::open("/proc/thread-self/schedstat") {
            _ = self.0.set(statistics);
        }
    }

    /// Returns the time that the thread has used, or zero if it is unknown.
    fn read(&self) -> Duration {
        let Some(mut file) = self.0.get() else { return Duration::ZERO };
        let mut text = String::new();
        let has_text = file.rewind().and_then(|()| file.read_to_string(&mut text)).is_ok();
        let nanoseconds = text.split(' ').next().filter(|_| has_text).and_then(|number| number.parse().ok());
        Duration::from_nanos(nanoseconds.unwrap_or(0))
    }
}

impl InFlightRead {
    fn begin() -> io::Result<Self> {
        let is_full = READS.fetch_add(1, Relaxed) >= MAX_READS;
        let read = Self; // the drop takes the count back
        if is_full { Err(io::Error::new(io::ErrorKind::TimedOut, "too many reads of files hang")) } else { Ok(read) }
    }
}

impl Drop for InFlightRead {
    fn drop(&mut self) {
        READS.fetch_sub(1, Relaxed);
    }
}

fn hung(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the file system does not respond within {limit:?}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn read_that_computes_is_not_hung() {
        let compute = || {
            let begin = tidegate_limit::clock::Stopwatch::start();
            while begin.elapsed() < Duration::from_millis(700) {
                std::hint::spin_loop();
            }
        };
        read_detached(Duration::from_millis(300), compute).unwrap();
    }

    #[test]
    fn hung_read_is_an_error_after_its_limit() {
        let (release, hangs) = channel::<()>();
        let error = read_detached(Duration::from_millis(20), move || hangs.recv()).unwrap_err();
        assert_eq!(error.to_string(), "the file system does not respond within 20ms");
        assert_eq!(read_detached(Duration::from_secs(60), || 5).unwrap(), 5);
        drop(release);
    }
}
