//! The limits that the descriptors of a call have found, before their charges: operators can change them for a client.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_rules::charge::{ClientId, Limiter};
use tidegate_rules::limits::rule::Limit;

use crate::change::LimitChange;
use crate::effect::Found;
use crate::modes::Modes;
use crate::tree::replaced::Replaced;

/// The limits of a call, one for each descriptor.
#[derive(Debug)]
pub struct FoundLimits<'d> {
    pub(crate) limits: &'d [Limit],
    pub(crate) modes: Modes,
    pub(crate) found: SmallVec<[Found<'d>; 4]>,
    pub(crate) permits: SmallVec<[u32; 8]>,
    pub(crate) replaced: Replaced<'d>,
}

/// The bucket of a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct FoundBucket<'f> {
    /// The limit.
    pub limit: &'f Limit,
    /// The limiter with the rate of the call.
    pub limiter: &'f Arc<Limiter>,
    /// The client. `None` if all clients share the bucket.
    pub client: Option<&'f ClientId>,
}

impl FoundLimits<'_> {
    /// Returns the bucket of each descriptor. A descriptor has none if no limit applies, if the rate of its limit is 0, and if
    /// another limit of the call replaces its limit.
    pub fn buckets(&self) -> impl Iterator<Item = Option<FoundBucket<'_>>> {
        self.found.iter().map(|found| match found {
            Found::Limited { rule: Some(rule), .. } if self.replaced.includes(rule) => None,
            Found::Limited { position: Some(index), limiter: Some(limiter), client, .. } => {
                Some(FoundBucket { limit: self.limits.get(*index)?, limiter, client: client.as_ref() })
            }
            _ => None,
        })
    }

    /// Changes the limit of the descriptor at this position of the call.
    pub fn change(&mut self, descriptor: usize, new: LimitChange) {
        let Some(Found::Limited { limiter, current, change, .. }) = self.found.get_mut(descriptor) else { return };
        if let LimitChange::Rate(adjusted) = &new {
            current.requests_per_unit = adjusted.quota.rate();
            *limiter = Some(Arc::clone(adjusted));
        }
        *change = Some(new);
    }
}
