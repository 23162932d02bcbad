//! Builds a layer from a rule file, its text, or a [`Config`], with settings that a rule file does not contain.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::RateLimitLayer;
use super::files::ProgramChecks;
use super::rejection::{RejectHook, Rejection};
use crate::build::Rules;
use crate::metering::PeekFunction;
use crate::rejected::RejectedClients;
use tidegate_config::{Config, ConfigLoadError, FileChecks, Problems};
use tidegate_metrics::Metrics;
use tidegate_rules::request::sanitize::NextHop;
use tidegate_store::{Store, StoreOpenError};

/// Builds a [`RateLimitLayer`]. Created by [`RateLimitLayer::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it gets rules"]
pub struct RateLimitLayerBuilder {
    store: Option<Store>,
    metrics: Option<Arc<Metrics>>,
    options: Options,
}

/// The settings of a layer that a rule file does not contain.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) next: NextHop,
    pub(super) unmatched: Unmatched,
    pub(super) sanitize: bool,
    pub(super) on_reject: Option<RejectHook>,
    pub(super) checks: ProgramChecks,
    /// Records rejected clients, for operators.
    pub(super) rejected: Option<Arc<RejectedClients>>,
    /// Reads the bodies of requests.
    pub(super) peek_body: Option<PeekFunction>,
}

/// The treatment of requests that match no route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmatched {
    /// Passes the request to the inner service, without a limit.
    #[default]
    Pass,
    /// Rejects the request with status 404, as the gateway does.
    Reject,
}

/// The error of a [`RateLimitLayer`] that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The rule file cannot be read or has errors. Returned by `from_file`.
    #[error(transparent)]
    File(#[from] ConfigLoadError),
    /// The text of the rules, or the built rules have errors. Returned by `from_yaml` and `from_rules`.
    #[error(transparent)]
    Text(#[from] Problems),
    /// The `store` of the rules cannot be opened. Does not occur if the builder was given an open store.
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    /// The layer and the given store have different [`Metrics`], so the layer's metrics would always show a healthy
    /// store.
    #[error("store `{store}` and the layer have different metrics: give the same `Metrics` to both builders")]
    Metrics {
        /// The address of the store, without the password.
        store: String,
    },
}

impl Options {
    /// Returns `true` if the inner service gets sanitized requests.
    pub(super) fn changes_requests(&self) -> bool {
        self.sanitize || self.next == NextHop::Origin
    }
}

impl RateLimitLayerBuilder {
    /// Sets an open store, which limiters and other layers can share. The `store` of the rule file is not opened.
    pub fn store(self, store: Store) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Sets the metrics of the layer. The default are the metrics of its store. A store in Redis that the
    /// program opened must have the same metrics.
    pub fn metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Sets the kind of the inner service. The default is a handler.
    #[doc(hidden)]
    pub fn next(self, next: NextHop) -> Self {
        Self { options: Options { next, ..self.options }, ..self }
    }

    /// Reads the bodies of requests with this function, for limits whose cost depends on them.
    #[doc(hidden)]
    pub fn peek_body(self, peek: PeekFunction) -> Self {
        Self { options: Options { peek_body: Some(peek), ..self.options }, ..self }
    }

    /// Records the clients that limits reject. By default they are not recorded.
    #[doc(hidden)]
    pub fn record_rejected(self, rejected: Arc<RejectedClients>) -> Self {
        Self { options: Options { rejected: Some(rejected), ..self.options }, ..self }
    }

    /// Sets the treatment of requests that match no route. The default is [`Unmatched::Pass`].
    pub fn unmatched(self, unmatched: Unmatched) -> Self {
        Self { options: Options { unmatched, ..self.options }, ..self }
    }

    /// Passes requests to the inner service as the gateway forwards them: with a normalized path, and without the
    /// fields that `requests: { strip, underscores }` removes. `encoded_slash` applies, the response to `OPTIONS *` is
    /// a 204, and an ambiguous request gets a 400 even if no limit applies to it.
    ///
    /// By default the layer does not change requests.
    pub fn sanitize(self, sanitize: bool) -> Self {
        Self { options: Options { sanitize, ..self.options }, ..self }
    }

    /// Makes the responses to requests that the layer rejects. The layer adds `Retry-After`, unless the response has
    /// it, and the `RateLimit` fields. gRPC calls get the layer's own response.
    ///
    /// ```
    /// use http::Response;
    /// use tidegate_layer::{RateLimitLayer, Rejection};
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

    /// Sets how the files that the rules name are checked, and who verifies credentials. By default, `identities` is an error.
    #[doc(hidden)]
    pub fn checks(self, checks: &'static dyn FileChecks) -> Self {
        Self { options: Options { checks: ProgramChecks(checks), ..self.options }, ..self }
    }

    /// Builds the layer with the rules of a file. Its routes need no `upstream`.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_file(self, path: impl AsRef<Path>) -> Result<RateLimitLayer, LayerError> {
        let config = Config::load_with(&path, self.options.checks.0)?;
        for warning in &config.warnings {
            tracing::warn!("{}", warning.in_file(&path.as_ref().display()));
        }
        self.from_config(&config)
    }

    /// Builds the layer with the rules of a text.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_yaml(self, text: &str) -> Result<RateLimitLayer, LayerError> {
        let config = Config::parse_with(text, self.options.checks.0)?;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        self.from_config(&config)
    }

    /// Builds the layer with rules that need no rule file: [`Rules`], one [`Route`](crate::build::Route), or one
    /// [`Limit`](crate::build::Limit) for all requests. The store is in memory, unless the builder has another one.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn from_rules(self, rules: impl Into<Rules>) -> Result<RateLimitLayer, LayerError> {
        let config = rules.into().build_with(self.options.checks.0)?;
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        self.from_config(&config)
    }

    /// Builds the layer with the rules of `config`.
    ///
    /// # Errors
    /// The store cannot be opened, or has other metrics than the layer. An unreachable store is not an error: the
    /// limits' `on_store_failure` decides.
    pub fn from_config(self, config: &Config) -> Result<RateLimitLayer, LayerError> {
        let metrics = match (self.metrics, self.store.as_ref().and_then(Store::metrics)) {
            (Some(given), Some(store_metrics)) if !Arc::ptr_eq(&given, store_metrics) => {
                let store = self.store.as_ref().map(Store::address).unwrap_or_default();
                return Err(LayerError::Metrics { store });
            }
            (given, store_metrics) => {
                let own = || Arc::new(Metrics::with_buckets(&config.buckets));
                given.or_else(|| store_metrics.cloned()).unwrap_or_else(own)
            }
        };
        let store = match self.store {
            Some(store) => store,
            None => Store::open(&config.store, Arc::clone(&metrics))?,
        };
        Ok(RateLimitLayer::with_rules(config, store, metrics, self.options))
    }
}
