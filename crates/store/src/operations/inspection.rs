//! Reads buckets for operators, without any charge.

use crate::{Backend, Store, StoreError, backend};
use tidegate_limit::{Charge, Inspection};

impl Store {
    /// Returns the state of the bucket of a charge, as a request for its permits would find it now. Changes nothing. The shards
    /// of a limit are inspected one by one, and their permits are added up.
    ///
    /// # Errors
    /// The store could not read the bucket; see [`StoreError`].
    #[doc(hidden)]
    pub async fn inspect(&self, charge: &Charge) -> Result<Inspection, StoreError> {
        backend!(self, |memory| memory.inspect(charge), |redis| redis.store().inspect_all(charge).await)
    }
}
