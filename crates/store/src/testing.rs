//! Captures the log in unit tests.

use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;

/// The captured log of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs `what` and returns its log.
pub(crate) fn logged_by(what: impl FnOnce()) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, what);
    String::from_utf8(log.0.lock().clone()).expect("text")
}
