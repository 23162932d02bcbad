//! Reloads the files of API keys, key sets and users when they change.

use std::fmt::Display;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blake3::{Hash, Hasher};

use crate::admin::{GatewayProblem, ProblemKind};
use crate::credentials::{ApiKeys, TokenVerifier, Users, Verifiers, key_file, user_file};
use tidegate_metrics::{Credential, LoadOutcome, Metrics};
use tidegate_rules::settings::files::{open_regular, read_bounded};
use tidegate_rules::watch::FileWatch;

/// Watches the files of `identities`. Until a changed file can be used, the previous keys stay in use.
#[derive(Debug)]
pub(super) struct IdentityFiles {
    keys: Option<(Arc<ApiKeys>, WatchedFile)>,
    tokens: Vec<(Arc<TokenVerifier>, WatchedFile)>,
    users: Option<(Arc<Users>, WatchedFile)>,
    metrics: Arc<Metrics>,
}

/// A file, and the contents that were loaded last or had an error.
#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    watch: FileWatch,
    /// The hash of the contents. `None` for an unreadable file.
    seen: Option<Hash>,
    /// Why the contents are not in use.
    fault: Option<String>,
}

impl IdentityFiles {
    /// Watches files that have just been loaded.
    pub(super) fn new(verifiers: &Verifiers, metrics: Arc<Metrics>) -> Self {
        let keys = verifiers.keys.clone().map(|keys| {
            let file = WatchedFile::new(keys.path(), keys.hash());
            (keys, file)
        });
        let tokens = verifiers.tokens.iter().filter_map(|tokens| {
            let file = WatchedFile::new(tokens.path()?, tokens.hash());
            Some((Arc::clone(tokens), file))
        });
        let tokens = tokens.collect();
        let users = verifiers.users.clone().map(|users| {
            let file = WatchedFile::new(users.path(), users.hash());
            (users, file)
        });
        metrics.set_api_keys(keys.as_ref().map_or(0, |(keys, _)| keys.len()));
        Self { keys, tokens, users, metrics }
    }

    /// Returns the files that cannot be loaded.
    pub(super) fn problems(&self) -> impl Iterator<Item = GatewayProblem> {
        let keys = self.keys.iter().map(|(_, file)| (ProblemKind::ApiKeys, file));
        let tokens = self.tokens.iter().map(|(_, file)| (ProblemKind::KeySet, file));
        let users = self.users.iter().map(|(_, file)| (ProblemKind::Users, file));
        keys.chain(tokens).chain(users).filter_map(|(kind, file)| file.problem(kind))
    }

    /// Polls the metadata, and loads changed files. Blocks while it reads them.
    pub(super) fn poll(&mut self) {
        let Self { keys, tokens, users, metrics } = self;
        if let Some((keys, file)) = keys {
            let loaded = file.poll(key_file::read_bytes, |bytes| {
                if bytes.is_empty() {
                    return Err(key_file::emptied("`{}` removes all keys"));
                }
                keys.replace(key_file::parse_bytes(bytes)?);
                metrics.set_api_keys(keys.len());
                Ok(keys.len())
            });
            loaded.into_iter().for_each(|outcome| metrics.identities_loaded(Credential::Key, outcome));
        }
        for (tokens, file) in tokens {
            let loaded = file.poll(
                |path| read_bounded(path).map_err(|error| error.to_string()),
                |bytes| tokens.replace_keys(bytes).map_err(|error| error.to_string()),
            );
            loaded.into_iter().for_each(|outcome| metrics.identities_loaded(Credential::Token, outcome));
        }
        if let Some((users, file)) = users {
            let loaded = file.poll(user_file::read_bytes, |bytes| {
                if bytes.is_empty() {
                    return Err(key_file::emptied("`#` removes all users"));
                }
                users.replace(user_file::parse(bytes)?);
                Ok(users.len())
            });
            loaded.into_iter().for_each(|outcome| metrics.identities_loaded(Credential::User, outcome));
        }
    }
}

impl WatchedFile {
    fn new(path: &Path, seen: Option<Hash>) -> Self {
        Self { path: path.to_owned(), watch: FileWatch::new(vec![path.to_owned()]), seen, fault: None }
    }

    fn problem(&self, kind: ProblemKind) -> Option<GatewayProblem> {
        let fault = self.fault.as_ref()?;
        let message = format!("changed file cannot be loaded, the previous contents stay in use: {fault}");
        Some(GatewayProblem::new(kind, self.path.display().to_string(), message))
    }

    /// Loads the file if its contents have changed. `load` returns the number of keys. Returns `None` without a change.
    fn poll<E: Display>(
        &mut self,
        read: impl FnOnce(&Path) -> Result<Vec<u8>, E>,
        load: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Option<LoadOutcome> {
        if !self.watch.poll() {
            return None;
        }
        // A file that is confirmed is rarely changed, and a file of keys is large.
        if self.seen.is_some() && hash_of(&self.path) == self.seen {
            return None;
        }
        let bytes = read(&self.path);
        let hash = bytes.as_deref().ok().map(blake3::hash);
        if std::mem::replace(&mut self.seen, hash) == hash {
            return None;
        }
        let file = self.path.display();
        match bytes.and_then(|bytes| load(&bytes)) {
            Ok(keys) => {
                self.fault = None;
                tracing::info!(%file, keys, "keys of `identities` loaded");
                Some(LoadOutcome::Loaded)
            }
            Err(error) => {
                tracing::warn!(%file, fault = %error, "keys of `identities` cannot be loaded, keeping the previous keys");
                self.fault = Some(error.to_string());
                Some(LoadOutcome::Failed)
            }
        }
    }
}

/// Returns the hash of a regular file, without reading the whole file into memory. Returns `None` for other files, and for
/// a file that cannot be read.
fn hash_of(path: &Path) -> Option<Hash> {
    let ((mut file, _), mut hasher, mut buffer) = (open_regular(path).ok()?, Hasher::new(), [0; 8 << 10]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(hasher.finalize()),
            count => _ = hasher.update(&buffer[..count]),
        }
    }
}
