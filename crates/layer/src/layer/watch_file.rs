//! Reloads the rule file of a layer when it changes.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::thread::Builder;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{RateLimitLayer, RulesChange};
use tidegate_config::{SourceFiles, load_for_layer};
use tidegate_rules::watch::StableFiles;

/// The time between two polls. A change is in force after at most two.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A rule file and the files that it includes.
struct WatchedFile {
    layer: RateLimitLayer,
    path: PathBuf,
    files: StableFiles<blake3::Hash>,
    paths: Vec<PathBuf>,
    /// The contents that were read last.
    last_read: Option<blake3::Hash>,
}

impl RateLimitLayer {
    /// Returns a future that replaces the rules whenever the file or a file that it includes changes, until the future is
    /// dropped. A change is in force within two seconds. A file with errors changes nothing. Logs each result.
    ///
    /// ```no_run
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = tidegate_layer::RateLimitLayer::from_file("rules.yaml")?;
    /// tokio::spawn(layer.watch_file("rules.yaml"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch_file(&self, path: impl AsRef<Path>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (layer, path) = (self.clone(), path.as_ref().to_owned());
        let (files, paths) = (StableFiles::new(vec![path.clone()]), vec![path.clone()]);
        let mut watched = WatchedFile { layer, path, files, paths, last_read: None };
        Box::pin(async move {
            loop {
                let (sender, polled) = oneshot::channel();
                // A hung file system can block the thread for ever, which no runtime waits for.
                let poll = move || {
                    watched.poll();
                    _ = sender.send(watched); // fails if the future was dropped
                };
                let started = Builder::new().name("files".into()).spawn(poll);
                watched = match (started, polled.await) {
                    (Ok(_), Ok(watched)) => watched,
                    _ => return tracing::error!("file watcher failed, changes of the rule file are no longer noticed"),
                };
                sleep(POLL_INTERVAL).await;
            }
        })
    }
}

impl WatchedFile {
    /// Reads the files if they may have changed, and applies them.
    fn poll(&mut self) {
        let paths = &self.paths;
        let Some(contents) = self.files.poll(|| SourceFiles::hash_texts(paths)) else { return };
        if self.last_read == Some(contents) {
            return;
        }
        let loaded = load_for_layer(&self.path, self.layer.state.options.checks.0);
        self.paths = loaded.sources.into_paths();
        self.files.set_paths(&self.paths);
        self.last_read = Some(SourceFiles::hash_texts(&self.paths));
        match loaded.config {
            Ok(config) => {
                let change = self.layer.replace_rules(&config);
                let RulesChange { added, changed, removed, keys, ignored } = &change;
                if !change.is_empty() {
                    tracing::info!(?added, ?changed, ?removed, ?keys, ?ignored, "rules replaced");
                }
                for warning in config.warnings() {
                    tracing::warn!("{}", warning.in_file(&self.path.display()));
                }
            }
            Err(error) => tracing::error!("rules not replaced: {error}"),
        }
    }
}
