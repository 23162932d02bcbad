//! The rule file in use, and the errors of the last attempt to reload it.

use arc_swap::ArcSwap;
use blake3::Hash;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::conditional::EntityTags;
use tidegate_limit::clock::unix_seconds;

/// The status of the rule file. It is shown in `/api/v1/config`.
#[derive(Debug)]
pub(super) struct ConfigStatus(ArcSwap<Fields>);

#[derive(Clone, Debug, Serialize)]
struct Fields {
    /// The hash of the file whose rules are in use. `None` if they did not come from a file.
    hash: Option<String>,
    /// When the rules in use were applied (RFC 3339).
    applied_at: String,
    /// The errors of the last attempt to reload the file. After a success, only errors in files of teams.
    errors: Vec<ConfigProblem>,
}

/// The rule file in use.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ConfigState {
    /// The BLAKE3 hash of the rule file; null if the rules did not come from a file.
    pub(super) hash: Option<String>,
    /// When the rules were applied (RFC 3339).
    pub(super) applied_at: String,
    /// The number of errors of a rejected file. `/api/v1/config` lists them.
    pub(super) errors: usize,
    /// The number of limits of all routes.
    pub(super) limits: usize,
}

/// An error of the rule file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ConfigProblem {
    pub(crate) file: String,
    /// The line. `None` if the error concerns no line of the file.
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// The team whose file has the error: then all other changes apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) team: Option<String>,
}

// === impl ConfigProblem ===

impl ConfigProblem {
    /// Creates an error that concerns no line of the file.
    pub(crate) fn of_file(file: String, message: String) -> Self {
        Self { file, line: None, column: None, message, help: None, team: None }
    }
}

// === impl ConfigStatus ===

impl ConfigStatus {
    pub(super) fn new() -> Self {
        Self(ArcSwap::from_pointee(Fields { hash: None, applied_at: now(), errors: Vec::new() }))
    }

    /// Records the hash of the rule file that is in use. `is_new` if its rules differ from the previous rules. `errors` are in
    /// files of teams, which are not in use. Returns `true` if all files are valid, and a file was not valid before.
    pub(super) fn record_success(&self, hash: &Hash, is_new: bool, errors: Vec<ConfigProblem>) -> bool {
        let was_rejected = errors.is_empty() && !self.0.load().errors.is_empty();
        let applied_at = if is_new { now() } else { self.0.load().applied_at.clone() };
        let hash = Some(hash.to_hex().to_string());
        self.0.store(Fields { hash, applied_at, errors }.into());
        was_rejected
    }

    pub(super) fn record_failure(&self, errors: Vec<ConfigProblem>) {
        let fields = Fields { errors, ..(**self.0.load()).clone() };
        self.0.store(fields.into());
    }

    /// Returns the entity tag of the rule file in use. `None` while a rejected file has errors, because the tag does not
    /// cover them.
    pub(super) fn entity_tag(&self) -> Option<String> {
        let fields = self.0.load();
        fields.hash.as_ref().filter(|_| fields.errors.is_empty()).map(|hash| format!("\"{hash}\""))
    }

    /// Returns `true` if the rule file in use has one of these entity tags.
    pub(super) fn matches(&self, expected: &EntityTags) -> bool {
        self.0.load().hash.as_ref().is_some_and(|hash| expected.contains(&format!("\"{hash}\"")))
    }

    /// Passes the errors of the last attempt to reload the file to a function.
    pub(super) fn read_errors<T>(&self, read: impl FnOnce(&[ConfigProblem]) -> T) -> T {
        read(&self.0.load().errors)
    }

    /// Returns the status without the errors. `limits` is the number of limits of all routes.
    pub(super) fn summary(&self, limits: usize) -> ConfigState {
        let fields = self.0.load();
        let (hash, applied_at) = (fields.hash.clone(), fields.applied_at.clone());
        ConfigState { hash, applied_at, errors: fields.errors.len(), limits }
    }

    /// Returns the status with at most `max` errors, and the number of all.
    pub(super) fn summary_with_errors(&self, max: usize) -> Value {
        let fields = self.0.load();
        let Fields { hash, applied_at, errors } = &**fields;
        let listed = &errors[..errors.len().min(max)];
        json!({ "hash": hash, "applied_at": applied_at, "errors": listed, "error_count": errors.len() })
    }

    /// Returns the status as a JSON object.
    pub(super) fn to_json(&self) -> Value {
        json!(**self.0.load())
    }
}

fn now() -> String {
    let seconds = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}
