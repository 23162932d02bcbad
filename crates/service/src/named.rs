//! The bucket of a limit that a program names, instead of describing a request by descriptors.

use std::collections::HashMap;

use tidegate_limit::Mode;
use tidegate_rules::charge::ClientId;
use tidegate_rules::limits::rule::Limit;

use crate::client::client_of;
use crate::domain::Domain;
use crate::tree::paths::{OffPath, Step};
use crate::tree::rule::Rate;

/// The paths to the limits of a domain, by their names.
#[derive(Debug)]
pub struct LimitPaths(HashMap<Box<str>, LimitPath>);

#[derive(Debug)]
struct LimitPath {
    /// The position of the limit in the domain.
    found: usize,
    steps: Box<[Step]>,
}

/// A bucket of a limit.
#[derive(Clone, Debug)]
pub enum NamedBucket<'d> {
    /// The rule lets all requests pass.
    Unlimited,
    /// The rate is 0: the limit rejects all requests, unless it is a shadow.
    Zero {
        /// Whether the limit is a shadow.
        shadow: bool,
    },
    /// A bucket.
    Bucket {
        /// The limit.
        limit: &'d Limit,
        /// The position of the limit in [`Domain::limits`].
        position: usize,
        /// The client. `None` if all clients share the bucket.
        client: Option<ClientId>,
    },
}

/// Why a name and the texts of a client name no bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamedBucketError {
    /// No limit has the name.
    #[error("the domain has no limit of this name")]
    NoLimit,
    /// All clients share one bucket.
    #[error("the limit is OVERALL: all clients share its bucket")]
    Overall,
    /// The limit identifies clients by another number of texts.
    #[error("the limit identifies clients by {keys}: {needed} value(s) needed, {given} given")]
    Count {
        /// The keys of the entries that the limit counts separately.
        keys: String,
        /// The number of texts.
        needed: usize,
        /// The number of texts in the request.
        given: usize,
    },
    /// A descriptor with the texts finds another limit, or none.
    #[error("the limit does not apply to this client: another rule of the domain, or none, matches its values")]
    OtherRule,
}

impl Domain {
    /// Returns the paths to all limits. Takes time in proportion to their number.
    pub fn paths(&self) -> LimitPaths {
        let mut paths = HashMap::with_capacity(self.found.len());
        self.each_path(|name, path| _ = paths.insert(name.into(), path()));
        LimitPaths(paths)
    }

    /// Returns the path to one limit. Takes time in proportion to the number of limits, but hardly any memory.
    pub fn path_to(&self, limit: &str) -> LimitPaths {
        let mut paths = HashMap::new();
        self.each_path(|name, path| _ = (name == limit).then(|| paths.insert(name.into(), path())));
        LimitPaths(paths)
    }

    /// Calls `each` with the name of each limit, and a function that returns its path.
    fn each_path(&self, mut each: impl FnMut(&str, &dyn Fn() -> LimitPath)) {
        self.tree.each_limit(&mut Vec::new(), &mut |steps, found| {
            if let Some(limit) = self.found.get(found) {
                each(&limit.name, &|| LimitPath { found, steps: steps.into() });
            }
        });
    }

    /// Returns the limit with buckets that has this name. `paths` are the paths of this domain.
    pub fn limit_on(&self, paths: &LimitPaths, name: &str) -> Option<&Limit> {
        let position = self.found.get(paths.0.get(name)?.found)?.position?;
        self.limits().get(position)
    }

    /// Returns the bucket of a limit and a client: the bucket that a descriptor with these texts takes permits from. `paths` are
    /// the paths of this domain. `texts` has the value of each entry that the limit counts separately, in order, and the key
    /// before it if the key of the rule has a wildcard.
    ///
    /// # Errors
    /// See [`NamedBucketError`].
    pub fn named_bucket(
        &self,
        paths: &LimitPaths,
        name: &str,
        texts: &[&str],
    ) -> Result<NamedBucket<'_>, NamedBucketError> {
        let LimitPath { found, steps } = paths.0.get(name).ok_or(NamedBucketError::NoLimit)?;
        let found = self.found.get(*found).ok_or(NamedBucketError::NoLimit)?;
        let (needed, keys) = match found.rule.mode {
            Some(Mode::Overall) => (0, Vec::new()),
            _ => self.tree.counted(steps),
        };
        let given = texts.len();
        let client = match (needed, given) {
            (0, 0) => None,
            (0, _) => return Err(NamedBucketError::Overall),
            _ => {
                let (path, entries) = self.tree.follow(steps, texts).map_err(|off| match off {
                    OffPath::Count => NamedBucketError::Count { keys: keys.join(", "), needed, given },
                    OffPath::OtherRule => NamedBucketError::OtherRule,
                })?;
                client_of(&path, &entries)
            }
        };
        Ok(match (found.position, found.rule.rate) {
            (_, Rate::Unlimited) => NamedBucket::Unlimited,
            (Some(position), _) => NamedBucket::Bucket { limit: &self.limits()[position], position, client },
            (None, _) => NamedBucket::Zero { shadow: found.rule.shadow },
        })
    }
}
