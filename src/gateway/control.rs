//! The control thread: serves operators, maintains the store, and watches files. It outlives the workers.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::Socket;
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::file_watch::{FileWatchCommand, FileWatchSender, watch_files};
use super::identity_files::IdentityFiles;
use super::reload_file::RuleFileWatcher;
use super::threads::Threads;
use super::{MAINTENANCE_INTERVAL, joined, runtime};
use crate::admin::{self, Admin};
use crate::credentials::{TokenVerifier, Verifiers};
use tidegate_layer::layer::RateLimitLayer;
use tidegate_metrics::Metrics;
use tidegate_proxy::transport::tls::CertificateWatcher;
use tidegate_proxy::upstream::HostLookup;
use tidegate_store::StoreError;

/// The longest time for open requests of operators after the admin socket was handed over.
const ADMIN_GRACE: Duration = Duration::from_secs(1);

/// The longest time for readers of recordings to take the last lines.
const RECORDING_GRACE: Duration = Duration::from_millis(250);

/// The time between readings of the overrides, so that a change is in force on all gateways within a second.
const OVERRIDES_INTERVAL: Duration = Duration::from_millis(500);

/// The longest time that the gateway waits for the overrides before it serves, if the timeout of the store is longer.
const MAX_START_DELAY: Duration = Duration::from_secs(1);

/// The longest time that the start and a reload wait for a key set.
const MAX_KEY_SET_DELAY: Duration = Duration::from_secs(3);

/// The time between readings of resets through other gateways.
const RESETS_INTERVAL: Duration = Duration::from_millis(500);

/// The control thread.
#[derive(Debug)]
pub(super) struct ControlThread {
    thread: JoinHandle<io::Result<()>>,
    /// Whether the admin listener is closed.
    closed: watch::Sender<bool>,
    tasks: ControlTasks,
    /// Closed when the overrides of the store are known, or the store did not reply in time.
    known_overrides: Mutex<Receiver<()>>,
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
    pub(super) fn start(
        threads: &Threads,
        layer: RateLimitLayer,
        admin: Admin,
        listener: Option<Socket>,
    ) -> io::Result<Self> {
        let runtime = runtime()?;
        let (closed, closing) = watch::channel(false);
        let listener = {
            let _context = runtime.enter();
            listener.map(|listener| admin::Listener::new(listener, closing.clone())).transpose()?
        };
        let (end, ending) = oneshot::channel();
        let (files, commands) = unbounded_channel();
        let (overrides_read, known_overrides) = channel();
        let recorder = Arc::clone(layer.recorder());
        let run = async move {
            layer.connect();
            tokio::spawn(follow_overrides(layer.clone(), overrides_read));
            tokio::spawn(follow_resets(layer.clone()));
            tokio::spawn(run_maintenance(layer));
            tokio::spawn(share_with_gateways(admin.clone()));
            tokio::spawn(admin.clone().run_fleet());
            tokio::spawn(watch_files(commands, admin.clone()));
            if listener.is_some() {
                tokio::spawn(admin.clone().run_history());
            }
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
                    } else {
                        _ = timeout(RECORDING_GRACE, recorder.ended()).await;
                    }
                    Ok(())
                }
            }
        };
        let tasks = ControlTasks { runtime: runtime.handle().clone(), files };
        let thread = threads.start("control".to_owned(), move || runtime.block_on(run))?;
        Ok(Self { thread, closed, tasks, known_overrides: Mutex::new(known_overrides), end })
    }

    pub(super) fn tasks(&self) -> &ControlTasks {
        &self.tasks
    }

    /// Blocks until the overrides of the store are known, at most for the timeout of the store.
    pub(super) fn wait_for_overrides(&self) {
        _ = self.known_overrides.lock().recv();
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

    /// Watches the files of API keys and tokens, and no longer the previous ones. Fetches key sets that are not in
    /// `before`, and waits for them for at most [`MAX_KEY_SET_DELAY`].
    pub(super) fn serve_identities(
        &self,
        verifiers: &Verifiers,
        before: &Verifiers,
        hosts: &HostLookup,
        metrics: &Arc<Metrics>,
    ) {
        let files = IdentityFiles::new(verifiers, Arc::clone(metrics));
        _ = self.files.send(FileWatchCommand::ReplaceIdentities(files));
        let is_running = |tokens: &Arc<TokenVerifier>| before.tokens.iter().any(|old| Arc::ptr_eq(old, tokens));
        let (first, fetched) = channel();
        for tokens in verifiers.tokens.iter().filter(|tokens| tokens.path().is_none() && !is_running(tokens)) {
            let run = TokenVerifier::run(Arc::downgrade(tokens), hosts.clone(), Arc::clone(metrics), first.clone());
            self.spawn(run);
        }
        drop(first);
        // Ends after the first attempt of all, which drops the senders. Until a key set is loaded, requests with its tokens
        // are answered with 503.
        _ = fetched.recv_timeout(MAX_KEY_SET_DELAY);
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

/// Reads the overrides of the store at intervals. Drops `first_read` after the first reading, which takes at most the
/// timeout of the store, and at most [`MAX_START_DELAY`].
async fn follow_overrides(layer: RateLimitLayer, first_read: Sender<()>) {
    let (deadline, read) = (layer.store().deadline(), layer.refresh_overrides());
    match deadline {
        Some(deadline) => _ = timeout_at(deadline.min(Instant::now() + MAX_START_DELAY), read).await,
        None => _ = read.await,
    }
    drop(first_read);
    if !layer.overrides().is_known() {
        tracing::warn!("overrides cannot be read, applying none until the store replies");
    }
    let mut has_failed = false;
    loop {
        tokio::time::sleep(OVERRIDES_INTERVAL).await;
        let read = layer.refresh_overrides().await;
        // Outages are logged by the store. Other errors, such as a missing permission, last until an operator acts.
        if let (Err(error @ StoreError::ErrorReply(_)), false) = (&read, has_failed) {
            tracing::warn!(%error, "overrides cannot be read, keeping the known ones");
        }
        has_failed = read.is_err();
    }
}

/// Maintains the store at intervals, so that outages are also noticed and logged while no requests arrive.
async fn run_maintenance(layer: RateLimitLayer) {
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        layer.run_maintenance();
    }
}

/// Follows the resets through other gateways.
async fn follow_resets(layer: RateLimitLayer) {
    loop {
        tokio::time::sleep(RESETS_INTERVAL).await;
        layer.follow_resets().await;
    }
}

/// Shares changes and rejections with the other gateways, at intervals and after a change.
async fn share_with_gateways(admin: Admin) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(MAINTENANCE_INTERVAL) => {}
            () = admin.changed() => {}
        }
        admin.share_with_gateways().await;
    }
}
