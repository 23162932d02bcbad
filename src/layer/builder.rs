//! Making a layer: of a rule file, its text, or a [`Config`], with what the file does not say.

use std::path::Path;
use std::sync::Arc;

use super::RateLimitLayer;
use crate::config::{Config, LoadError, Problems};
use crate::metrics::Metrics;
use crate::sift::NextHop;
use crate::store::{OpenError, Store};

/// A layer before it has its rules; made by [`RateLimitLayer::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes a layer of rules"]
pub struct LayerBuilder {
    store: Option<Store>,
    metrics: Option<Arc<Metrics>>,
    next: NextHop,
    unmatched: Unmatched,
}

/// What becomes of a request that no route names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It goes on, unlimited.
    #[default]
    Pass,
    /// It is answered with 404, as by the gateway.
    Refuse,
}

/// Why a rule file gives no layer.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The file cannot be read, or has mistakes.
    #[error(transparent)]
    File(#[from] LoadError),
    /// The text has mistakes.
    #[error(transparent)]
    Text(#[from] Problems),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
}

impl LayerBuilder {
    /// A store that is open already, which limiters and other layers may have too. The rule file's `store` is not opened.
    pub fn store(self, store: Store) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Where the layer counts.
    pub fn metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// What the layer stands over; handlers unless told otherwise.
    pub(crate) fn next(self, next: NextHop) -> Self {
        Self { next, ..self }
    }

    /// What becomes of requests that no route names; they go on unless told otherwise.
    pub fn unmatched(self, unmatched: Unmatched) -> Self {
        Self { unmatched, ..self }
    }

    /// The layer with the rules of this file, whose routes need no `upstream`.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_file(self, path: impl AsRef<Path>) -> Result<RateLimitLayer, LayerError> {
        Ok(self.from_config(&Config::load(path)?)?)
    }

    /// The layer with the rules of this text.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_yaml(self, text: &str) -> Result<RateLimitLayer, LayerError> {
        Ok(self.from_config(&Config::parse(text)?)?)
    }

    /// The layer with these rules.
    ///
    /// # Errors
    /// The store cannot be opened. One that cannot be reached is no error: limits do what `on_store_failure` says.
    pub fn from_config(self, config: &Config) -> Result<RateLimitLayer, OpenError> {
        let metrics = self.metrics.unwrap_or_default();
        let store = match self.store {
            Some(store) => store,
            None => Store::open(&config.store, Arc::clone(&metrics))?,
        };
        Ok(RateLimitLayer::make(config.rules.clone(), store, metrics, self.next, self.unmatched))
    }
}
