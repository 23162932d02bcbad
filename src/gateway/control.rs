//! The control thread: serves operators, maintains the store, and watches files. It outlives the workers.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use socket2::Socket;
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::file_watch::{FileWatchCommand, FileWatchSender, watch_files};
use super::reload_file::RuleFileWatcher;
use super::{MAINTENANCE_INTERVAL, joined, runtime};
use crate::admin::{self, Admin};
use crate::layer::RateLimitLayer;
use crate::tls::CertificateWatcher;

/// The longest time for open requests of operators after the admin socket was handed over.
const ADMIN_GRACE: Duration = Duration::from_secs(1);

/// The control thread.
#[derive(Debug)]
pub(super) struct ControlThread {
    thread: JoinHandle<io::Result<()>>,
    /// Whether the admin listener is closed.
    closed: watch::Sender<bool>,
    tasks: ControlTasks,
    end: oneshot::Sender<()>,
}

/// Starts tasks on the control thread. They run until the gateway ends.
#[derive(Clone, Debug)]
pub(super) struct ControlTasks {
    runtime: Handle,
    files: FileWatchSender,
}

// === impl ControlThread ===

impl ControlThread {
    pub(super) fn start(layer: RateLimitLayer, admin: Admin, listener: Option<Socket>) -> io::Result<Self> {
        let runtime = runtime()?;
        let (closed, closing) = watch::channel(false);
        let listener = {
            let _context = runtime.enter();
            listener.map(|listener| admin::Listener::new(listener, closing.clone())).transpose()?
        };
        let (end, ending) = oneshot::channel();
        let (files, commands) = unbounded_channel();
        let run = async move {
            layer.connect();
            tokio::spawn(run_maintenance(layer));
            tokio::spawn(watch_files(commands));
            let mut serving = pin!(async {
                match listener {
                    Some(listener) => admin.serve(listener).await,
                    None => pending().await,
                }
            });
            tokio::select! {
                () = &mut serving => Ok(()),
                _ = ending => {
                    if *closing.borrow() {
                        // Connections that were accepted before the close still get their responses.
                        _ = timeout(ADMIN_GRACE, serving).await;
                    }
                    Ok(())
                }
            }
        };
        let tasks = ControlTasks { runtime: runtime.handle().clone(), files };
        let thread = Builder::new().name("control".into()).spawn(move || runtime.block_on(run))?;
        Ok(Self { thread, closed, tasks, end })
    }

    pub(super) fn tasks(&self) -> &ControlTasks {
        &self.tasks
    }

    /// Closes the admin listener.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(super) fn end(self) -> io::Result<()> {
        _ = self.end.send(());
        joined(self.thread)
    }
}

// === impl ControlTasks ===

impl ControlTasks {
    /// Runs a task.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }

    /// Watches certificate files.
    pub(super) fn watch(&self, watchers: impl IntoIterator<Item = CertificateWatcher>) {
        for watcher in watchers {
            _ = self.files.send(FileWatchCommand::AddCertificates(watcher));
        }
    }

    /// Watches the rule file.
    pub(super) fn watch_rules(&self, watcher: RuleFileWatcher) {
        _ = self.files.send(FileWatchCommand::AddRules(watcher));
    }

    /// Checks all certificate files without waiting for the next interval.
    pub(super) fn check_certificates(&self) {
        _ = self.files.send(FileWatchCommand::CheckCertificates);
    }
}

/// Maintains the store at intervals, so that outages are also noticed and logged while no requests arrive.
async fn run_maintenance(layer: RateLimitLayer) {
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        layer.run_maintenance();
    }
}
