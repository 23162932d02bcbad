//! API keys, by the SHA-256 of the key. The keys themselves are not kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use blake3::Hash;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use ring::digest::SHA256;

use tidegate_rules::request::identity::ApiKey;

/// The SHA-256 of a key.
pub(crate) type Digest = [u8; 32];

/// The keys of a file, which are replaced when the file changes.
#[derive(Debug)]
pub(crate) struct ApiKeys {
    path: PathBuf,
    active: ArcSwap<KeyTable>,
}

/// The keys of one version of the file.
#[derive(Default)]
pub(crate) struct KeyTable {
    keys: HashMap<Digest, Arc<ApiKey>>,
    /// The hash of the file.
    pub(crate) hash: Option<Hash>,
    /// The tiers of the keys, each with the line of its first use.
    pub(crate) tiers: HashMap<Arc<str>, usize>,
}

/// Returns the SHA-256 of a key.
pub(crate) fn digest(key: &[u8]) -> Digest {
    let mut digest = Digest::default();
    digest.copy_from_slice(ring::digest::digest(&SHA256, key).as_ref());
    digest
}

// === impl ApiKeys ===

impl ApiKeys {
    /// Creates the keys of a file that has just been read.
    pub(crate) fn new(path: PathBuf, table: KeyTable) -> Self {
        Self { path, active: ArcSwap::from_pointee(table) }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.active.load().keys.len()
    }

    /// Returns the entries of all keys. The caller may take its time: a lookup delays the replacement of the keys.
    pub(crate) fn entries(&self) -> Vec<Arc<ApiKey>> {
        self.active.load().keys.values().cloned().collect()
    }

    /// Returns the tiers of the keys in the order of the file, each with the line of its first use.
    pub(crate) fn tiers(&self) -> Vec<(usize, Arc<str>)> {
        let table = self.active.load();
        let mut tiers: Vec<_> = table.tiers.iter().map(|(tier, line)| (*line, Arc::clone(tier))).collect();
        tiers.sort_unstable();
        tiers
    }

    /// Returns the hash of the file with the keys in use.
    pub(crate) fn hash(&self) -> Option<Hash> {
        self.active.load().hash
    }

    /// Replaces all keys. Blocks until no lookup uses the previous keys: a lookup that has to free them takes milliseconds.
    pub(crate) fn replace(&self, table: KeyTable) {
        let mut previous = self.active.swap(Arc::new(table));
        while Arc::get_mut(&mut previous).is_none() {
            std::thread::yield_now();
        }
    }

    /// Returns the entry of a key. The lookup compares digests, so its time reveals nothing about other keys.
    pub(crate) fn find(&self, key: &[u8]) -> Option<Arc<ApiKey>> {
        self.active.load().keys.get(&digest(key)).cloned()
    }
}

// === impl KeyTable ===

impl KeyTable {
    /// Adds a key. Returns `false` if the table has the key already.
    pub(crate) fn insert(&mut self, digest: Digest, key: ApiKey) -> bool {
        match self.keys.entry(digest) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(Arc::new(key));
                true
            }
        }
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.keys.shrink_to_fit();
    }
}

/// Shows no key.
impl std::fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyTable").field("keys", &self.keys.len()).finish()
    }
}
