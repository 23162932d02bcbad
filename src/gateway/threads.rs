//! The threads of a gateway. Without one of them, some clients would wait forever: the kernel assigns connections to the
//! sockets of all workers. So if a thread ends with an error or a panic, the gateway is no longer ready and must end.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use tokio::sync::watch;

use crate::admin::Readiness;

/// Starts threads, and reports the first one that fails.
#[derive(Clone, Debug)]
pub(super) struct Threads {
    readiness: Readiness,
    failed: watch::Sender<bool>,
}

impl Threads {
    /// Creates no threads yet. `readiness` fails with the first thread that fails.
    pub(super) fn new(readiness: Readiness) -> Self {
        Self { readiness, failed: watch::Sender::new(false) }
    }

    /// Starts a thread. The thread logs an error or a panic with which `run` ends, and returns it as an error.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(
        &self,
        name: String,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<()>>> {
        let this = self.clone();
        Builder::new().name(name.clone()).spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(run));
            let cause = match ended {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error.to_string(),
                Err(panic) => format!("panicked: {}", message(&*panic)),
            };
            tracing::error!(thread = name, error = cause, "a thread has ended, the gateway cannot continue");
            this.readiness.fail();
            this.failed.send_replace(true);
            Err(io::Error::other(format!("{name} has ended: {cause}")))
        })
    }

    /// Returns a receiver that becomes `true` when a thread has failed.
    pub(super) fn failed(&self) -> watch::Receiver<bool> {
        self.failed.subscribe()
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown cause")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Run = Box<dyn FnOnce() -> io::Result<()> + Send>;

    #[test]
    fn failed_thread_is_reported_with_its_cause() {
        let error = || Err(io::Error::other("no descriptors"));
        let panic = || if std::hint::black_box(true) { panic!("no {}", "workers") } else { Ok(()) };
        let runs: [(Run, _); 3] = [
            (Box::new(error), Some("worker-3 has ended: no descriptors")),
            (Box::new(panic), Some("worker-3 has ended: panicked: no workers")),
            (Box::new(|| Ok(())), None),
        ];
        for (run, expected) in runs {
            let (readiness, is_failure) = (Readiness::new(), expected.is_some());
            let threads = Threads::new(readiness.clone());
            let ended = threads.start("worker-3".to_owned(), run).unwrap().join().unwrap();
            assert_eq!(ended.err().map(|error| error.to_string()).as_deref(), expected);
            assert_eq!((*threads.failed().borrow(), readiness.is_ready()), (is_failure, !is_failure));
        }
    }
}
