//! Reads buckets for operators, without any charge.

use futures_util::future::try_join_all;

use super::{Backend, Store, StoreError};
use crate::limit::{Charge, Inspection};

impl Store {
    /// Returns the state of the bucket of a charge, as a request for its permits would find it now. Changes nothing. The shards
    /// of a limit are inspected one by one, and their permits are added up.
    ///
    /// # Errors
    /// The store could not read the bucket; see [`StoreError`].
    pub(crate) async fn inspect(&self, charge: &Charge) -> Result<Inspection, StoreError> {
        match &self.0 {
            Backend::Memory(memory) => memory.inspect(charge),
            Backend::Redis(redis) => {
                let buckets = charge.on_all_buckets();
                let read = try_join_all(buckets.iter().map(|bucket| redis.store().inspect(bucket))).await?;
                Inspection::combine(charge, read.into_iter()).ok_or(StoreError::UnexpectedReply)
            }
        }
    }
}
