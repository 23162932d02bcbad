//! Making a layer: of a rule file, its text, or a [`Config`], with what the file does not say.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::RateLimitLayer;
use super::rejection::{RejectHook, Rejection};
use crate::config::{Config, LoadError, Problems};
use crate::metrics::Metrics;
use crate::sanitize::NextHop;
use crate::store::{OpenError, Store};

/// A layer before it has its rules; made by [`RateLimitLayer::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes a layer of rules"]
pub struct LayerBuilder {
    store: Option<Store>,
    metrics: Option<Arc<Metrics>>,
    options: Options,
}

/// The settings of a layer that no rule file has.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) next: NextHop,
    pub(super) unmatched: Unmatched,
    pub(super) sanitize: bool,
    pub(super) on_reject: Option<RejectHook>,
}

/// What becomes of a request that no route names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmatched {
    /// It goes on, unlimited.
    #[default]
    Pass,
    /// It is answered with 404, as by the gateway.
    Refuse,
}

/// Why a rule file gives no layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The file cannot be read, or has errors.
    #[error(transparent)]
    File(#[from] LoadError),
    /// The text has errors.
    #[error(transparent)]
    Text(#[from] Problems),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The layer and its store count in different metrics: the layer's metrics would always show a healthy store.
    #[error("store `{store}` counts in other metrics than the layer: give the same `Metrics` to both builders")]
    Metrics {
        /// The address of the store, without the password.
        store: String,
    },
}

impl Options {
    /// Returns `true` if the service below gets requests as the rules read them.
    pub(super) fn changes_requests(&self) -> bool {
        self.sanitize || self.next == NextHop::Origin
    }
}

impl LayerBuilder {
    /// A store that is open already, which limiters and other layers may have too. The rule file's `store` is not opened.
    pub fn store(self, store: Store) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Where the layer counts; by default where its store counts. A store in Redis that is opened by
    /// [`Store::redis_builder`] must be given the same metrics.
    pub fn metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// What the layer stands over; handlers unless told otherwise.
    pub(crate) fn next(self, next: NextHop) -> Self {
        Self { options: Options { next, ..self.options }, ..self }
    }

    /// What becomes of requests that no route names; they go on unless told otherwise.
    pub fn unmatched(self, unmatched: Unmatched) -> Self {
        Self { options: Options { unmatched, ..self.options }, ..self }
    }

    /// Hands requests on as the gateway forwards them: with the normalized path, and without the fields that
    /// `requests: { strip, underscores }` removes. `encoded_slash` applies, `OPTIONS *` is answered with 204, and a request
    /// that servers can read in two ways is answered with 400, also if no limit applies to it.
    ///
    /// By default the layer changes no request.
    pub fn sanitize(self, sanitize: bool) -> Self {
        Self { options: Options { sanitize, ..self.options }, ..self }
    }

    /// Makes the responses to requests that the layer rejects. The layer adds `Retry-After`, unless the response has it, and
    /// the `RateLimit` fields. gRPC calls get the layer's own response.
    ///
    /// ```
    /// use http::Response;
    /// use tidegate::RateLimitLayer;
    /// use tidegate::layer::Rejection;
    ///
    /// let builder = RateLimitLayer::builder().on_reject(|rejection: Rejection<'_>| {
    ///     let mut response = Response::new(format!("{}\n", rejection.detail));
    ///     *response.status_mut() = rejection.status;
    ///     response
    /// });
    /// ```
    pub fn on_reject<B: Into<Bytes>>(
        self,
        hook: impl Fn(Rejection<'_>) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        Self { options: Options { on_reject: Some(RejectHook::new(hook)), ..self.options }, ..self }
    }

    /// The layer with the rules of this file, whose routes need no `upstream`.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_file(self, path: impl AsRef<Path>) -> Result<RateLimitLayer, LayerError> {
        self.from_config(&Config::load(path)?)
    }

    /// The layer with the rules of this text.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_yaml(self, text: &str) -> Result<RateLimitLayer, LayerError> {
        self.from_config(&Config::parse(text)?)
    }

    /// The layer with these rules.
    ///
    /// # Errors
    /// The store cannot be opened, or counts elsewhere than the layer. A store that cannot be reached is no error: limits do
    /// what `on_store_failure` says.
    pub fn from_config(self, config: &Config) -> Result<RateLimitLayer, LayerError> {
        let metrics = match (self.metrics, self.store.as_ref().and_then(Store::metrics)) {
            (Some(given), Some(of_store)) if !Arc::ptr_eq(&given, of_store) => {
                let store = self.store.as_ref().map(Store::address).unwrap_or_default();
                return Err(LayerError::Metrics { store });
            }
            (given, of_store) => given.or_else(|| of_store.cloned()).unwrap_or_default(),
        };
        let store = match self.store {
            Some(store) => store,
            None => Store::open(&config.store, Arc::clone(&metrics))?,
        };
        Ok(RateLimitLayer::make(config.rules.clone(), store, metrics, self.options))
    }
}
