//! Finds the bucket that a program names: a limit of a route or of a domain, and a client.

use std::sync::Arc;

use super::{PermitRequest, TakeError};
use crate::layer::active::Active;
use crate::limit_counters::LimitCounters;
use crate::limit_names::LimitPosition;
use crate::overrides::Action;
use tidegate_limit::Mode;
use tidegate_rules::charge::{ClientId, Limiter};
use tidegate_rules::limits::rule::Limit;
use tidegate_service::{NamedBucket, NamedBucketError};
use tidegate_store::Store;

/// The effect of a limit on a request for its permits.
#[derive(Debug)]
pub(super) enum Effect<'a> {
    /// All requests pass: the rule has no rate, or an override exempts the client.
    Pass,
    /// The rate is 0.
    Zero { shadow: bool },
    /// A bucket decides.
    Bucket(Bucket<'a>),
}

/// A bucket, with the counters of its limit.
#[derive(Debug)]
pub(super) struct Bucket<'a> {
    pub(super) limit: &'a Limit,
    pub(super) limiter: Arc<Limiter>,
    pub(super) client: Option<ClientId>,
    pub(super) counters: &'a LimitCounters,
    /// The position of the limit among the counters.
    pub(super) index: usize,
}

impl Bucket<'_> {
    /// Returns `true` if both take permits from one bucket.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.limiter.name == other.limiter.name && self.client == other.client
    }

    /// Returns the order of the bucket: by the hash tag of its limit, and then by the position of the limit.
    pub(super) fn order(&self) -> (&str, usize) {
        let name = &self.limiter.name;
        (name.split('}').next().unwrap_or(name), self.index)
    }
}

impl<'a> Effect<'a> {
    /// Finds the bucket of a request.
    ///
    /// # Errors
    /// See [`TakeError`].
    pub(super) fn find(active: &'a Active, store: &Store, request: &PermitRequest) -> Result<Self, TakeError> {
        let effect = match active.rules.names.find(&active.rules, &request.limit) {
            Some(position) => of_route(active, store, position, request)?,
            None => of_domain(active, store, request)?,
        };
        if let Self::Bucket(Bucket { limiter, .. }) = &effect {
            let most = if limiter.quota.is_adopted() { u32::MAX } else { limiter.quota.capacity() };
            if !(1..=most).contains(&request.permits) {
                return Err(TakeError::Permits { limit: request.limit.clone(), most });
            }
        }
        Ok(effect)
    }
}

/// Finds a bucket of a route, or of a shared limit.
fn of_route<'a>(
    active: &'a Active,
    store: &Store,
    LimitPosition { route, limit: index }: LimitPosition,
    request: &PermitRequest,
) -> Result<Effect<'a>, TakeError> {
    let no_limit = || TakeError::NoLimit(request.limit.clone());
    let compiled = active.rules.compiled(route).ok_or_else(no_limit)?;
    let route = active.rules.routes.iter().nth(route).ok_or_else(no_limit)?;
    let limit = route.limits.get(index).ok_or_else(no_limit)?;
    let client = match (limit.mode(), &request.client[..]) {
        (Mode::Overall, []) => None,
        (Mode::Overall, _) => return Err(TakeError::client(request, NamedBucketError::Overall)),
        (Mode::PerClient, values) => {
            let client = active.rules.named_client(limit, values);
            Some(client.map_err(|error| TakeError::client(request, error))?)
        }
    };
    let counters = &compiled.limits;
    let bucket = Bucket { limit, limiter: Arc::clone(&limit.limiter), client, counters, index };
    with_override(active, store, limit.owner(&route.name), bucket)
}

/// Applies the override of the client, if there is one.
fn with_override<'a>(active: &Active, store: &Store, owner: &str, bucket: Bucket<'a>) -> Result<Effect<'a>, TakeError> {
    let (Some(overrides), Some(client)) = (&active.overrides, &bucket.client) else {
        return Ok(Effect::Bucket(bucket));
    };
    let Some(effect) = overrides.of_client(&active.rules, owner, bucket.limit, client, store) else {
        return Ok(Effect::Bucket(bucket));
    };
    Ok(match effect.action {
        Action::Ban => return Err(TakeError::Banned { millis: effect.until.millis_since(store.now()) }),
        Action::Exempt => Effect::Pass,
        Action::Adjust => {
            let adjusted = overrides.adjusted(&bucket.limiter, &effect);
            Effect::Bucket(Bucket { limiter: adjusted.unwrap_or_else(|| Arc::clone(&bucket.limiter)), ..bucket })
        }
    })
}

/// Finds a bucket of a domain. Its name and the name of the limit can contain slashes.
fn of_domain<'a>(active: &'a Active, store: &Store, request: &PermitRequest) -> Result<Effect<'a>, TakeError> {
    let name = request.limit.strip_prefix('/').unwrap_or(&request.limit);
    let texts: Vec<&str> = request.client.iter().map(String::as_str).collect();
    for (at, _) in name.match_indices('/').take(MAX_SLASHES) {
        let (domain, limit) = (&name[..at], &name[at + 1..]);
        let Some(found) = active.rules.domains.find_route(&format!("/{domain}")) else { continue };
        let effect = match found.domain.named_bucket(found.paths(), limit, &texts) {
            Err(NamedBucketError::NoLimit) => continue,
            Err(error) => return Err(TakeError::client(request, error)),
            Ok(NamedBucket::Unlimited) => Effect::Pass,
            Ok(NamedBucket::Zero { shadow }) => Effect::Zero { shadow },
            Ok(NamedBucket::Bucket { limit, position, client }) => {
                let (limiter, counters) = (Arc::clone(&limit.limiter), found.limits);
                let bucket = Bucket { limit, limiter, client, counters, index: position };
                with_override(active, store, found.domain.route(), bucket)?
            }
        };
        return Ok(effect);
    }
    Err(TakeError::NoLimit(request.limit.clone()))
}

/// The most slashes of a name that can separate a domain from its limit.
const MAX_SLASHES: usize = 64;
