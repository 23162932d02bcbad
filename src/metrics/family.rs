//! Series that differ in their labels, of which only those with traffic are shown.
//!
//! Handles are taken at load, for every route and limit there is; shown at once, those of 5,000 routes would make a page of
//! 33 MB in which every number is 0. A counter that is not there counts as one that has counted nothing.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The series of a name. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Family<L, M>(Arc<RwLock<HashMap<L, M>>>);

/// What may have counted nothing.
pub(super) trait Quiet {
    /// Whether there is nothing to show.
    fn is_quiet(&self) -> bool;
}

impl<L: Clone + Eq + Hash, M: Clone + Default> Family<L, M> {
    /// The series with these labels, which is there from now on.
    pub(super) fn get_or_create(&self, labels: &L) -> M {
        if let Some(metric) = self.0.read().get(labels) {
            return metric.clone();
        }
        self.0.write().entry(labels.clone()).or_default().clone()
    }
}

impl<L: Eq + Hash, M> Family<L, M> {
    /// Removes the series with these labels. A handle of it counts unseen.
    pub(super) fn remove(&self, labels: &L) {
        self.0.write().remove(labels);
    }
}

impl<L, M> Default for Family<L, M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<L: EncodeLabelSet, M: EncodeMetric + TypedMetric + Quiet> EncodeMetric for Family<L, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let series = self.0.read();
        series.iter().filter(|(_, metric)| !metric.is_quiet()).try_for_each(|(labels, metric)| {
            let encoder = encoder.encode_family(labels)?;
            metric.encode(encoder)
        })
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.0.read().values().all(Quiet::is_quiet)
    }
}

impl<L, M: TypedMetric> TypedMetric for Family<L, M> {
    const TYPE: MetricType = M::TYPE;
}

impl Quiet for Counter {
    fn is_quiet(&self) -> bool {
        self.get() == 0
    }
}
