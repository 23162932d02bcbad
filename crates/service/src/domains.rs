//! The domains of a service, by name.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::answers::AnswerSettings;
use crate::domain::Domain;
use crate::modes::Modes;

/// The domains of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    by_name: HashMap<String, Arc<Domain>>,
    answers: AnswerSettings,
    modes: Modes,
    is_partial: bool,
}

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
        Self::default().with(domains)
    }

    /// Creates a service without domains, whose answers and domains have these settings.
    pub fn with_settings(answers: AnswerSettings, modes: Modes) -> Self {
        Self { answers, modes, ..Self::default() }
    }

    /// Returns these domains and more, with the same settings. They share the memory of these domains.
    ///
    /// # Errors
    /// Two have the same name.
    pub fn with(&self, domains: impl IntoIterator<Item = Domain>) -> Result<Self, DuplicateDomain> {
        let mut by_name = self.by_name.clone();
        for domain in domains {
            let name = domain.name().to_owned();
            if let Some(other) = by_name.insert(name, Arc::new(domain.with_modes(self.modes))) {
                return Err(DuplicateDomain(other.name().to_owned()));
            }
        }
        Ok(Self { by_name, is_partial: false, ..self.clone() })
    }

    /// Returns the settings of answers.
    pub fn answers(&self) -> &AnswerSettings {
        &self.answers
    }

    /// Returns the same domains, as a part of all domains: a control plane has not sent the others yet.
    pub fn partial(&self) -> Self {
        Self { is_partial: true, ..self.clone() }
    }

    /// Returns `true` if a control plane has not sent its domains yet.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Returns the domain with this name. Calls to other domains pass without limits.
    pub fn get(&self, name: &str) -> Option<&Domain> {
        self.by_name.get(name).map(Arc::as_ref)
    }

    /// Returns all domains, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Domain> {
        let mut all: Vec<_> = self.by_name.values().map(Arc::as_ref).collect();
        all.sort_unstable_by_key(|domain| domain.name());
        all.into_iter()
    }
}
