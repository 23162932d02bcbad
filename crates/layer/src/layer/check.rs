//! Takes permits from the limits of a route without a request.

use std::time::Duration;

use http::{Extensions, HeaderMap, Method, Uri};

use super::RateLimitLayer;
use crate::admission::{Admitted, Denial, RouteWaits, admit, store_failure};
use crate::local_response::LocalResponse;
use crate::ruleset::FoundRoute;
use tidegate_limit::Wait;
use tidegate_limit::calendar::schedule::Minute;
use tidegate_rules::request::facts::HostRequirement;
use tidegate_rules::request::identity::ClientKey;
use tidegate_rules::rules::{Charges, LimitCharge};
use tidegate_store::StoreError;

/// The permits were taken from all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admission {
    /// The fewest permits that remain in a bucket. `None` if no limit applies, or if the store did not decide.
    pub remaining: Option<u32>,
}

/// Why no permits were taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// Limits refused.
    #[error("{0}")]
    Limited(Limited),
    /// The store did not decide, and a limit has `on_store_failure: deny`.
    #[error("store: {0}")]
    Store(StoreError),
    /// A limit lacks its client, and has `on_missing_client: deny`: the key is empty, or the limit identifies clients by a
    /// part of a request.
    #[error("{0}")]
    NoClient(String),
    /// The rules have no route with this name.
    #[error("there is no route `{0}`")]
    NoRoute(String),
}

/// The limits that refused permits, and the time until they would be granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limited by {}{}", .limits.join(", "), wait_suffix(*.wait))]
#[non_exhaustive]
pub struct Limited {
    /// The names of the limits.
    pub limits: Vec<String>,
    /// The time after which the same permits would be granted if nothing else took permits, exact to the millisecond. `None`
    /// if they never will: they are more than a full bucket has.
    pub wait: Option<Duration>,
    /// The fewest permits that remain in a bucket of these limits.
    pub remaining: u32,
}

impl RateLimitLayer {
    /// Takes permits from all limits of a route or from none, for work without a request, such as a message of a queue. The
    /// algorithms, the metrics, the store and its outages are the same as for requests.
    ///
    /// `key` is the client of limits with `client: extension`. Each limit takes this number of `permits`, and ignores its
    /// own key `permits`; 0 takes none, and shows what remains. Limits with `max_wait` wait, in order of arrival. `concurrency` does
    /// not apply, and limits with `charge_on` take no permits.
    ///
    /// If the returned future is dropped during a call to Redis, the permits may have been taken; they return with time.
    ///
    /// ```
    /// use tidegate_layer::RateLimitLayer;
    /// use tidegate_layer::build::{Client, Limit, MINUTE, Route};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = Limit::per_client("per-user", Client::extension()).rate(5, MINUTE);
    /// let layer = RateLimitLayer::from_rules(Route::new("reports").limit(limit))?;
    /// assert_eq!(layer.check("reports", "ada", 4).await?.remaining, Some(1));
    /// assert_eq!(layer.check("reports", "ada", 2).await.expect_err("one remains").wait(), Some(MINUTE));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`CheckError`].
    pub async fn check(&self, route: &str, key: &str, permits: u32) -> Result<Admission, CheckError> {
        let mut extensions = Extensions::new();
        extensions.insert(ClientKey(key.to_owned()));
        self.check_with(route, &extensions, permits).await
    }

    /// Like [`check`](Self::check), with the extensions of a request, which can have [`ClientKeys`](crate::ClientKeys) or a
    /// [`Peer`](crate::Peer).
    ///
    /// # Errors
    /// See [`CheckError`].
    pub async fn check_with(
        &self,
        route: &str,
        extensions: &Extensions,
        permits: u32,
    ) -> Result<Admission, CheckError> {
        let active = self.state.active.load_full();
        let (rules, store) = (&*active.rules, self.state.store(&active));
        let FoundRoute { route, compiled } =
            rules.find_named(route).ok_or_else(|| CheckError::NoRoute(route.to_owned()))?;
        let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
        let facts =
            rules.rules.read(&Method::GET, &uri, HostRequirement::Optional, &headers, super::peer::address(extensions));
        let mut facts = facts.map_err(|bad| CheckError::NoClient(bad.to_string()))?;
        facts.extensions = Some(extensions);
        facts.time = Minute::of(store.now()).filter(|_| rules.reads_time);
        facts.tls = super::peer::tls(extensions);
        let mut charges = active.charges(store, route, &facts).map_err(|rejection| rejected(&rejection))?;
        charges.set_permits(permits);
        let waits = compiled.waits.as_ref().map(|metrics| Box::new(RouteWaits { metrics, deadline: None, once: None }));
        let admitted = admit(store, &self.state.queues, &mut charges, waits).await;
        compiled.limits.count(&charges, &admitted, |_| {});
        if let Some(error) = store_failure(&admitted) {
            self.state.metrics.store_failed(error.cause());
        }
        match admitted {
            Ok(Admitted { unchecked, .. }) => {
                Ok(Admission { remaining: remaining(charges.iter()).filter(|_| unchecked.is_none()) })
            }
            Err(Denial::Limited { wait, .. }) => Err(CheckError::Limited(limited(&charges, wait))),
            Err(Denial::StoreFailed(error)) => Err(CheckError::Store(error)),
            Err(Denial::Busy { .. }) => Err(CheckError::Limited(limited(&charges, Wait::Now))),
        }
    }
}

fn rejected(rejection: &LocalResponse) -> CheckError {
    CheckError::NoClient(rejection.status_and_detail().1.into_owned())
}

fn limited(charges: &Charges<'_>, wait: Wait) -> Limited {
    Limited {
        limits: charges.refusing().map(|entry| entry.limit.name.clone()).collect(),
        wait: match wait {
            Wait::Now => Some(Duration::ZERO),
            Wait::Millis(millis) => Some(Duration::from_millis(millis)),
            Wait::Never => None,
        },
        remaining: remaining(charges.refusing()).unwrap_or(0),
    }
}

/// Returns the fewest permits that remain for one of these limits. Shadows do not count.
fn remaining<'c>(entries: impl Iterator<Item = LimitCharge<'c>>) -> Option<u32> {
    let live = entries.filter(|entry| !entry.limit.shadow);
    live.filter_map(|entry| Some(entry.decision?.remaining)).min()
}

fn wait_suffix(wait: Option<Duration>) -> String {
    wait.map_or_else(|| ", and waiting cannot help".to_owned(), |wait| format!(", for {wait:?}"))
}

impl CheckError {
    /// Returns the time after which the same permits would be granted if nothing else took permits. Returns `None` if it is
    /// unknown, or if they never will be granted.
    pub fn wait(&self) -> Option<Duration> {
        match self {
            Self::Limited(limited) => limited.wait,
            Self::Store(_) | Self::NoClient(_) | Self::NoRoute(_) => None,
        }
    }
}
