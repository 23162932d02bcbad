//! Merges the clients that all gateways reject most, with bounds for their counts.
//!
//! While a gateway rejects requests, it writes the most rejected clients of the current minute to the store every two
//! seconds. It writes no values, only addresses and hashes.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::rejecting::{By, Rejecting};
use super::{Active, Admin};
use tidegate_layer::rejected::{Cause, LimitId, MAX_MINUTES, RejectedClient, RejectedInMinute, minute_of};
use tidegate_limit::clock::{Timestamp, wall_time};
use tidegate_limit::random::random;
use tidegate_store::{RejectedMinute, StoreError};

/// The number of most rejected clients that a gateway shares for a minute.
const MAX_TOP: usize = 100;

/// The number of most rejected clients of each limit that a gateway shares as well. Otherwise one limit could hide all
/// others.
const MAX_OF_LIMIT: usize = 20;

/// The maximum number of clients that a gateway shares for a minute: at most 90 KB.
const MAX_SHARED: usize = 300;

/// The state of sharing.
#[derive(Debug)]
pub(super) struct Sharing {
    /// Names this process in the store.
    gateway: String,
    /// Locked while rejections are shared.
    shared: Mutex<Shared>,
}

/// The rejections that the store has.
#[derive(Debug, Default)]
struct Shared {
    /// The version of the rejections that were shared last.
    version: u64,
    /// The first minute that was not shared completely.
    next: u64,
}

/// The rejections of a gateway in a minute.
#[derive(Debug, Deserialize, Serialize)]
struct SharedMinute {
    clients: Vec<SharedClient>,
    /// The highest possible number of rejections of a client that is not in the list.
    rest: u64,
}

/// A client whose requests were rejected.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SharedClient {
    #[serde(flatten)]
    pub(super) name: SharedName,
    pub(super) count: u64,
    pub(super) error: u64,
    /// Milliseconds since 1970.
    pub(super) since: u64,
    pub(super) last: u64,
}

/// The names of a client, and of the limit or the cause that rejected it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Hash, Serialize)]
pub(super) struct SharedName {
    pub(super) route: String,
    /// Empty if another cause rejected the client. A gateway of an older version ignores such an entry.
    pub(super) limit: String,
    pub(super) client: Option<String>,
    /// The cause, unless it is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<String>,
}

impl SharedName {
    fn new(by: Rejecting<'_>, client: Option<String>) -> Self {
        let (limit, cause) = match by.by {
            By::Limit(limit) => (limit.name.clone(), None),
            By::Cause(cause) => (String::new(), Some(cause.as_str().to_owned())),
        };
        Self { route: by.route.to_owned(), limit, client, cause }
    }

    /// Returns the id of the limit or the cause; `None` for a cause of a newer version.
    pub(super) fn id(&self) -> Option<LimitId> {
        match &self.cause {
            None => Some(LimitId::new(&self.route, &self.limit)),
            Some(cause) => Some(LimitId::of_cause(&self.route, Cause::parse(cause)?)),
        }
    }
}

impl Default for Sharing {
    fn default() -> Self {
        Self { gateway: format!("{:016x}", u64::from_le_bytes(random())), shared: Mutex::default() }
    }
}

impl Admin {
    /// Collects the rejections of the workers, and shares them with the other gateways.
    pub(super) async fn collect_rejections(&self) {
        let now = wall_time();
        self.rejected.collect(now);
        // Without a reply, the next call shares the minute again.
        _ = self.share_rejections(&self.active.load_full(), now).await;
    }

    /// Shares the collected rejections that the store does not have.
    async fn share_rejections(&self, active: &Active, now: Timestamp) -> Result<(), StoreError> {
        if !active.store.is_redis() {
            return Ok(());
        }
        let mut shared = self.sharing.shared.lock().await;
        let version = self.rejected.version();
        if shared.version == version {
            return Ok(());
        }
        let first = minute_of(now).saturating_sub(MAX_MINUTES as u64 - 1);
        // The clock may have been set back.
        let next = shared.next.min(minute_of(now)).max(first);
        for minute in self.rejected.minutes(next, now) {
            let number = minute.number;
            let text = serde_json::to_string(&active.to_share(minute)).unwrap_or_default();
            let minute = RejectedMinute { minute: number, text };
            active.store.share_rejections(&self.sharing.gateway, &minute, first).await?;
            shared.next = number;
        }
        shared.version = version;
        Ok(())
    }

    /// Returns the clients that all gateways rejected in the current minute and the `minutes` before, the most rejected
    /// first; `None` if no other gateway shares the store.
    pub(super) async fn shared_rejections(
        &self,
        active: &Active,
        minutes: u64,
    ) -> Result<Option<Vec<SharedClient>>, StoreError> {
        let now = wall_time();
        self.rejected.collect(now);
        self.share_rejections(active, now).await?;
        let texts = active.store.shared_rejections(minute_of(now).saturating_sub(minutes)).await?;
        let parse = |texts: Vec<String>| merge(texts.iter().filter_map(|text| serde_json::from_str(text).ok()));
        Ok(texts.map(parse))
    }
}

impl Active {
    fn to_share(&self, minute: RejectedInMinute) -> SharedMinute {
        let rejecting = Rejecting::by_id(&self.config);
        let RejectedInMinute { clients, rest, .. } = minute;
        let (clients, next) = most_rejected(clients);
        let share = |rejected: RejectedClient| {
            let by = *rejecting.get(&rejected.limit)?;
            let client = rejected.client.id().map(|client| self.name_of(&client));
            let name = SharedName::new(by, client);
            let [since, last] = [rejected.since, rejected.last].map(Timestamp::as_millis);
            Some(SharedClient { name, count: rejected.count, error: rejected.error, since, last })
        };
        SharedMinute { clients: clients.into_iter().filter_map(share).collect(), rest: next.max(rest) }
    }
}

/// Returns the clients to share, and the highest count of the others. The most rejected clients come first.
fn most_rejected(clients: Vec<RejectedClient>) -> (Vec<RejectedClient>, u64) {
    let mut of_limits: HashMap<LimitId, usize> = HashMap::new();
    let (mut shared, mut next) = (Vec::new(), 0);
    for (position, client) in clients.into_iter().enumerate() {
        let of_limit = of_limits.entry(client.limit).or_default();
        *of_limit += 1;
        if position < MAX_TOP || (*of_limit <= MAX_OF_LIMIT && shared.len() < MAX_SHARED) {
            shared.push(client);
        } else {
            next = next.max(client.count);
        }
    }
    (shared, next)
}

/// Adds the counts. A list without a client adds the highest possible number of its rejections, also to the error.
fn merge(minutes: impl Iterator<Item = SharedMinute>) -> Vec<SharedClient> {
    let mut merged: HashMap<SharedName, (SharedClient, u64)> = HashMap::new();
    let mut all_rest = 0_u64;
    for SharedMinute { clients, rest } in minutes {
        all_rest = all_rest.saturating_add(rest);
        for client in clients {
            match merged.get_mut(&client.name) {
                None => _ = merged.insert(client.name.clone(), (client, rest)),
                Some((entry, own_rest)) => {
                    entry.count = entry.count.saturating_add(client.count);
                    entry.error = entry.error.saturating_add(client.error);
                    entry.since = entry.since.min(client.since);
                    entry.last = entry.last.max(client.last);
                    *own_rest = own_rest.saturating_add(rest);
                }
            }
        }
    }
    let complete = |(client, own_rest): (SharedClient, u64)| {
        let missing = all_rest.saturating_sub(own_rest);
        SharedClient {
            count: client.count.saturating_add(missing),
            error: client.error.saturating_add(missing),
            ..client
        }
    };
    let mut merged: Vec<SharedClient> = merged.into_values().map(complete).collect();
    merged.sort_by(|a, b| (b.count, &a.name.client).cmp(&(a.count, &b.name.client)));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, count: u64, error: u64, times: [u64; 2]) -> SharedClient {
        let name =
            SharedName { route: "all".to_owned(), limit: "own".to_owned(), client: Some(name.to_owned()), cause: None };
        SharedClient { name, count, error, since: times[0], last: times[1] }
    }

    #[test]
    fn each_limit_has_clients_in_the_list() {
        let rejected = |limit: &str, count| RejectedClient {
            limit: LimitId::new("all", limit),
            client: tidegate_layer::rejected::Client::All,
            count,
            error: 0,
            since: Timestamp::from_millis(0),
            last: Timestamp::from_millis(0),
            value: None,
        };
        let mut clients: Vec<_> = (0..150_u64).map(|number| rejected("many", 1_000 - number)).collect();
        clients.extend((0..30).map(|number| rejected("few", 100 - number)));
        let (shared, next) = most_rejected(clients);
        let counts: Vec<_> = shared.iter().map(|one| one.count).collect();
        assert_eq!(counts, (901..=1_000).rev().chain((81..=100).rev()).collect::<Vec<_>>());
        assert_eq!(next, 900);
        let clients = (0..2_000_u64).map(|number| rejected(&(number / 20).to_string(), 5_000 - number));
        assert_eq!(most_rejected(clients.collect()).0.len(), MAX_SHARED);
    }

    #[test]
    fn lists_without_a_client_widen_its_bounds() {
        let minutes = [
            SharedMinute { clients: vec![client("a", 10, 1, [5, 9]), client("b", 4, 1, [5, 6])], rest: 2 },
            SharedMinute { clients: vec![client("a", 7, 0, [3, 8])], rest: 3 },
            SharedMinute { clients: Vec::new(), rest: 0 },
        ];
        let merged = merge(minutes.into_iter());
        let shown: Vec<_> =
            merged.iter().map(|one| (one.name.client.as_deref(), one.count, one.error, one.since, one.last)).collect();
        assert_eq!(shown, [(Some("a"), 17, 1, 3, 9), (Some("b"), 7, 4, 5, 6)]);
    }
}
