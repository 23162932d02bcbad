//! Users with passwords (Basic authentication), from a file that is replaced when it changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use blake3::Hash;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use ipnet::IpNet;

use super::keys::Digest;
use super::password::PasswordHash;
use super::password_checks::PasswordChecks;
use super::sent_password::SentPassword;
use tidegate_limit::random::random;
use tidegate_rules::request::identity::IdentityFault;

/// The users of a file, and the comparisons of their passwords.
pub(crate) struct Users {
    path: PathBuf,
    active: ArcSwap<UserTable>,
    checks: Arc<PasswordChecks>,
    /// The key of the digests of passwords.
    secret: [u8; 32],
}

/// The users of one version of the file.
#[derive(Debug, Default)]
pub(crate) struct UserTable {
    users: HashMap<Arc<str>, PasswordHash>,
    /// The hash of the file.
    pub(crate) hash: Option<Hash>,
}

// === impl Users ===

impl Users {
    /// Creates the users of a file that has just been read.
    pub(crate) fn new(path: PathBuf, table: UserTable) -> Self {
        let (active, checks) = (ArcSwap::from_pointee(table), Arc::new(PasswordChecks::new()));
        Self { path, active, checks, secret: random() }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of users.
    pub(crate) fn len(&self) -> usize {
        self.active.load().users.len()
    }

    /// Returns the hash of the file with the users in use.
    pub(crate) fn hash(&self) -> Option<Hash> {
        self.active.load().hash
    }

    /// Replaces all users. Results of comparisons with the previous file have no effect.
    pub(crate) fn replace(&self, table: UserTable) {
        self.active.store(Arc::new(table));
    }

    /// Returns the user if the password was compared recently.
    ///
    /// # Errors
    /// The password is wrong, or has to be compared with its hash.
    pub(super) fn known(&self, sent: &SentPassword) -> Result<Arc<str>, IdentityFault> {
        let table = self.active.load();
        match self.checks.recent(&self.digest(&table, sent)) {
            Some(is_correct) => table.user_if(is_correct, sent),
            None => Err(IdentityFault::UncheckedPassword),
        }
    }

    /// Returns the user after a comparison in another thread. The comparison for an unknown user takes the same time.
    ///
    /// # Errors
    /// The user or the password is wrong, or too many passwords are being compared.
    pub(super) async fn check(&self, sent: &SentPassword, client: Option<IpNet>) -> Result<Arc<str>, IdentityFault> {
        let table = self.active.load_full();
        let (digest, hash) = (self.digest(&table, sent), table.hash_for(&sent.user));
        let checked = self.checks.check(digest, client, (hash, &sent.password)).await;
        table.user_if(checked.map_err(|_| IdentityFault::Busy)?, sent)
    }

    /// As [`check`](Self::check), in this thread.
    ///
    /// # Errors
    /// See [`check`](Self::check).
    pub(super) fn check_blocking(&self, sent: &SentPassword) -> Result<Arc<str>, IdentityFault> {
        let table = self.active.load_full();
        let (digest, hash) = (self.digest(&table, sent), table.hash_for(&sent.user));
        let checked = self.checks.check_blocking(digest, &hash, &sent.password);
        table.user_if(checked.map_err(|_| IdentityFault::Busy)?, sent)
    }

    /// Returns the digest of the version of the file, the user and the password.
    fn digest(&self, table: &UserTable, SentPassword { user, password }: &SentPassword) -> Digest {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(table.hash.as_ref().map_or(&[0; 32][..], |hash| hash.as_bytes()));
        hasher.update(&(user.len() as u64).to_le_bytes()).update(user.as_bytes()).update(password);
        *hasher.finalize().as_bytes()
    }
}

// === impl UserTable ===

impl UserTable {
    /// Adds a user. Returns `false` if the table has the user already.
    pub(super) fn insert(&mut self, user: &str, hash: PasswordHash) -> bool {
        match self.users.entry(user.into()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(hash);
                true
            }
        }
    }

    /// Returns the hash of a user's password. For an unknown user, returns a hash with the highest cost of the file that
    /// matches nothing, so that the time of a response does not reveal which users exist.
    fn hash_for(&self, user: &str) -> PasswordHash {
        let highest = || self.users.values().map(|hash| hash.cost).max().unwrap_or(DEFAULT_COST);
        self.users.get(user).cloned().unwrap_or_else(|| PasswordHash::of_nothing(highest()))
    }

    fn user_if(&self, is_correct: bool, sent: &SentPassword) -> Result<Arc<str>, IdentityFault> {
        let user = self.users.get_key_value(&*sent.user).map(|(user, _)| Arc::clone(user));
        user.filter(|_| is_correct).ok_or(IdentityFault::WrongPassword)
    }
}

/// Shows no hash and no secret.
impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users").field("path", &self.path).field("users", &self.len()).finish()
    }
}

/// The cost of a comparison if the file has no users.
const DEFAULT_COST: u32 = 10;
