//! Fetches the key set of an issuer: at the start, every 10 minutes, and for a token whose key is not known.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::fetch::{FETCH_TIMEOUT, fetch};
use super::tokens::TokenVerifier;
use tidegate_metrics::{Credential, LoadOutcome, Metrics};
use tidegate_proxy::upstream::HostLookup;
use tidegate_rules::settings::identities::KeySetSource;

/// The age at which a key set is fetched again.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The time until the next attempt after a failed one.
const RETRY: Duration = Duration::from_secs(5);

impl TokenVerifier {
    /// Fetches the key set for a token with an unknown key, unless there was a fetch in the last 15 seconds. All callers
    /// share one fetch.
    pub(super) async fn refresh(&self) {
        if let KeySetSource::File(_) = self.settings.jwks {
            return;
        }
        let mut finished = self.refresh.finished.subscribe();
        if self.refresh.request() {
            _ = timeout(FETCH_TIMEOUT, finished.changed()).await; // after a timeout, the known set decides
        }
    }

    /// Fetches the key set until the verifier is dropped. Drops `first` after the first attempt.
    pub(crate) async fn run(verifier: Weak<Self>, hosts: HostLookup, metrics: Arc<Metrics>, first: Sender<()>) {
        let mut first = Some(first);
        let mut has_failed = false;
        let mut is_requested = false;
        while let Some(active) = verifier.upgrade() {
            let result = active.fetch_keys(&hosts).await;
            let outcome = if result.is_ok() { LoadOutcome::Loaded } else { LoadOutcome::Failed };
            metrics.identities_loaded(Credential::Token, outcome);
            active.refresh.record(result.as_ref().err());
            match &result {
                Ok(_) if !has_failed && first.is_none() => {}
                Ok(keys) => tracing::info!(issuer = active.settings.issuer, keys, "key set of tokens loaded"),
                Err(_) if has_failed => {}
                Err(fault) => {
                    let issuer = &active.settings.issuer;
                    tracing::warn!(issuer, fault, "key set of tokens cannot be loaded, keeping the previous keys");
                }
            }
            has_failed = result.is_err();
            if is_requested {
                active.refresh.finish();
            }
            first = None;
            let wanted = Arc::clone(&active.refresh.wanted);
            drop(active);
            is_requested = timeout(if has_failed { RETRY } else { MAX_AGE }, wanted.notified()).await.is_ok();
        }
        drop(first);
    }

    async fn fetch_keys(&self, hosts: &HostLookup) -> Result<usize, String> {
        let KeySetSource::Url(url) = &self.settings.jwks else { return Ok(0) };
        let text = fetch(url, self.settings.ca.as_deref(), hosts).await.map_err(|error| error.to_string())?;
        self.replace_keys(&text).map_err(|error| format!("the response {error}"))
    }
}
