//! Reads files on separate threads, because a hung file system can block a read forever.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::thread::Builder;
use std::time::Duration;

/// The highest number of reads in flight. Reads that hang must not use up all threads of the process.
const MAX_READS: usize = 32;

/// The number of reads in flight.
static READS: AtomicUsize = AtomicUsize::new(0);

/// A read in flight, until it is dropped.
struct InFlightRead;

/// Runs `read` on its own thread, and blocks until it has ended. Nothing waits for the thread after `limit`, nor when the
/// process ends.
///
/// # Errors
/// The read takes longer than `limit`, too many reads hang, or no thread can be started.
pub(crate) fn read_detached<T: Send + 'static>(
    limit: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let in_flight = InFlightRead::begin()?;
    let (sender, receiver) = sync_channel(1);
    Builder::new().name("read".into()).spawn(move || {
        let result = read();
        drop(in_flight);
        _ = sender.send(result); // fails after the limit
    })?;
    receiver.recv_timeout(limit).map_err(|_| hung(limit))
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
    fn hung_read_is_an_error_after_its_limit() {
        let (release, hangs) = channel::<()>();
        let error = read_detached(Duration::from_millis(20), move || hangs.recv()).unwrap_err();
        assert_eq!(error.to_string(), "the file system does not respond within 20ms");
        assert_eq!(read_detached(Duration::from_secs(60), || 5).unwrap(), 5);
        drop(release);
    }
}
