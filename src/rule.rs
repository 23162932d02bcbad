//! One limit of a route: whom it counts, what a request costs, and what happens where it cannot tell.

use std::sync::Arc;
use std::time::Duration;

use crate::client::ClientSource;
use crate::cost::Cost;
use crate::limit::{Limiter, Mode};

/// One entry of a route's `limits:`.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its name in the rule file, metrics, headers and logs; unique within its route.
    pub name: String,
    /// The buckets it takes from.
    pub limiter: Arc<Limiter>,
    /// Who is a client; only for PER_CLIENT.
    pub client: ClientSource,
    /// What one request costs.
    pub permits: Cost,
    /// What to do with requests that have no client.
    pub on_missing_client: OnMissingClient,
    /// What to do when the store cannot say.
    pub on_store_failure: OnStoreFailure,
    /// Whether refused requests may wait for their permits; none may if there is none.
    pub wait_policy: Option<WaitPolicy>,
    /// It only watches: it is judged and counted, and neither refuses a request nor takes from live limits.
    pub shadow: bool,
}

/// How long refused requests may wait for their permits, and how many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// The longest that one may be held, from its arrival on.
    pub max_wait: Duration,
    /// Most that may wait for one bucket in this gateway.
    pub queue: usize,
}

/// What happens to a request without the value that makes its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingClient {
    /// It is answered with 400.
    #[default]
    Deny,
    /// This limit does not count it.
    Skip,
    /// Its address is the client.
    Ip,
}

/// What a limit does while the store gives no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Each gateway decides by itself, by its share of the limit.
    #[default]
    Local,
    /// Requests pass, uncounted.
    Allow,
    /// Requests are answered with 503.
    Deny,
}

impl WaitPolicy {
    /// How many may wait unless the rule file says otherwise.
    pub const DEFAULT_QUEUE: usize = 100;
}

impl Limit {
    /// One bucket, or one for each client.
    pub fn mode(&self) -> Mode {
        self.limiter.mode
    }

    /// Does it tell clients apart by their addresses, all or some?
    pub(crate) fn reads_address(&self) -> bool {
        self.mode() == Mode::PerClient && (self.on_missing_client == OnMissingClient::Ip || self.client.reads_address())
    }

    /// Are clients told of it? Only of their own buckets, and only of those that can refuse them.
    pub fn is_visible_to_clients(&self) -> bool {
        self.mode() == Mode::PerClient && !self.shadow && !self.limiter.quota.is_adopted()
    }
}
