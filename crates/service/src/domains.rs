//! The domains of a service, by name.

use hashbrown::HashMap;

use crate::domain::Domain;

/// The domains of a service.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Domains(HashMap<String, Domain>);

/// Two domains have the same name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two domains have the name `{0}`")]
pub struct DuplicateDomain(pub String);

impl Domains {
    /// Creates the domains of a service.
    ///
    /// # Errors
    /// Two have the same name.
    pub fn new(domains: impl IntoIterator<Item = Domain>) -> Result<Self, DuplicateDomain> {
        let mut all = HashMap::new();
        for domain in domains {
            let name = domain.name().to_owned();
            if let Some(other) = all.insert(name, domain) {
                return Err(DuplicateDomain(other.name().to_owned()));
            }
        }
        Ok(Self(all))
    }

    /// Returns the domain with this name. Calls to other domains pass without limits.
    pub fn get(&self, name: &str) -> Option<&Domain> {
        self.0.get(name)
    }

    /// Returns all domains, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Domain> {
        let mut all: Vec<_> = self.0.values().collect();
        all.sort_unstable_by_key(|domain| domain.name());
        all.into_iter()
    }
}
