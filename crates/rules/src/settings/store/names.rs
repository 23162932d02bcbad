//! The names of the buckets of rules, which depend on the store.

use std::sync::Arc;

/// The properties of a store that the names of its buckets depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketNames {
    /// The prefix of all names, inside the hash tag.
    pub prefix: Arc<str>,
    /// Whether the store is a Redis Cluster, over whose nodes the buckets of a limit are distributed.
    pub is_cluster: bool,
}

impl BucketNames {
    /// Returns the hash tag of a route's buckets, or of the buckets of a shared limit.
    pub fn tag(&self, owner: &str) -> String {
        format!("{{{}tidegate:{owner}}}", self.prefix)
    }

    /// Returns the name in the store `other` of the buckets with this name. Returns `None` for a name from the rule file
    /// (`key`), which is the same in all stores.
    pub fn name_in(&self, other: &Self, name: &str) -> Option<String> {
        let rest = name.strip_prefix('{')?.strip_prefix(&*self.prefix)?;
        rest.starts_with("tidegate:").then(|| format!("{{{}{rest}", other.prefix))
    }
}
