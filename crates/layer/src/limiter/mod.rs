//! [`Limiter`]: limits for each key, without a request.

use std::sync::Arc;

use tokio::time::sleep;

use crate::build::{Client, Limit, Quota, Route};
use crate::layer::{Admission, CheckError, LayerError, RateLimitLayer};
use tidegate_store::Store;

/// Limits the actions of each key, such as the mails of a user, with every algorithm and with several limits in one
/// decision. Cheap to clone: clones share the buckets.
///
/// All limiters with the same name and store share their buckets, in all programs. While a store in Redis is unreachable,
/// each program enforces its share of the limits, unless the limit has another
/// [`on_store_failure`](Limit::on_store_failure).
///
/// ```
/// use std::time::Duration;
///
/// use tidegate_layer::build::Quota;
/// use tidegate_layer::{Limiter, Store};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Store::memory(); // or Store::redis("redis://127.0.0.1:6379")?
/// let mails = Limiter::new(store, "mails", Quota::per_second(2))?;
///
/// assert_eq!(mails.check_n("ada", 2).await?.remaining, Some(0));
/// let refused = mails.check("ada").await.expect_err("two mails in a second");
/// assert_eq!(refused.wait(), Some(Duration::from_secs(1)));
/// mails.check("grace").await?; // has its own bucket
/// mails.until_ready("ada").await?; // waits a second
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    layer: RateLimitLayer,
    name: Arc<str>,
}

impl Limiter {
    /// Creates a limiter with one bucket for each key. The name has 1 to 64 letters, digits, `.`, `_` or `-`. Does not call
    /// the store.
    ///
    /// # Errors
    /// The name or the quota is not valid.
    pub fn new(store: Store, name: &str, quota: Quota) -> Result<Self, LayerError> {
        Self::with_limits(store, name, [Limit::per_client(name, Client::extension()).quota(quota)])
    }

    /// Creates a limiter with several limits, which are one decision: permits are taken from all or from none. Limits for
    /// each key have the client [`Client::extension`].
    ///
    /// ```
    /// use tidegate_layer::build::{Client, DAY, Limit, SECOND};
    /// use tidegate_layer::{Limiter, Store};
    ///
    /// let per_user = Limit::per_client("per-user", Client::extension()).rate(50, DAY);
    /// let mails = Limiter::with_limits(Store::memory(), "mails", [per_user, Limit::overall("total").rate(10, SECOND)])?;
    /// # Ok::<(), tidegate_layer::LayerError>(())
    /// ```
    ///
    /// # Errors
    /// The name or a limit is not valid.
    pub fn with_limits(store: Store, name: &str, limits: impl IntoIterator<Item = Limit>) -> Result<Self, LayerError> {
        let route = limits.into_iter().fold(Route::new(name), Route::limit);
        let layer = RateLimitLayer::builder().store(store).from_rules(route)?;
        Ok(Self { layer, name: name.into() })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes one permit of this key. See [`check_n`](Self::check_n).
    ///
    /// # Errors
    /// See [`CheckError`]. [`CheckError::wait`] is the time until the permit would be granted.
    pub async fn check(&self, key: &str) -> Result<Admission, CheckError> {
        self.check_n(key, 1).await
    }

    /// Takes permits of this key: all or none. Waits only for limits with [`Quota::max_wait`]. 0 permits take nothing, and
    /// show what remains.
    ///
    /// If the returned future is dropped during a call to Redis, the permits may have been taken; they return with time.
    ///
    /// # Errors
    /// See [`CheckError`]. [`CheckError::wait`] is the time until the permits would be granted.
    pub async fn check_n(&self, key: &str, permits: u32) -> Result<Admission, CheckError> {
        self.layer.check(&self.name, key, permits).await
    }

    /// Waits until one permit of this key is available, and takes it. See [`until_n_ready`](Self::until_n_ready).
    ///
    /// # Errors
    /// See [`CheckError`].
    pub async fn until_ready(&self, key: &str) -> Result<Admission, CheckError> {
        self.until_n_ready(key, 1).await
    }

    /// Waits until permits of this key are available, and takes them. A limit with [`Quota::max_wait`] admits waiting callers
    /// in order of arrival; otherwise a caller that needs fewer permits may overtake.
    ///
    /// # Errors
    /// See [`CheckError`]. More permits than a full bucket has are an error at once.
    pub async fn until_n_ready(&self, key: &str, permits: u32) -> Result<Admission, CheckError> {
        loop {
            match self.check_n(key, permits).await {
                Err(CheckError::Limited(limited)) => match limited.wait {
                    Some(wait) => sleep(wait).await,
                    None => return Err(CheckError::Limited(limited)),
                },
                other => return other,
            }
        }
    }
}
