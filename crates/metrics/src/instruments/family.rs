//! A metric family that omits series without data. For Prometheus, a missing counter is the same as one that is 0.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// All series of a metric. Clones share the series.
#[derive(Clone, Debug)]
pub(crate) struct Family<L, M>(Arc<RwLock<HashMap<L, M>>>);

/// A series of a metric.
pub(crate) trait Series {
    /// Returns `true` if the series has no data to export.
    fn is_untouched(&self) -> bool;
}

impl<L: Clone + Eq + Hash, M: Clone + Default> Family<L, M> {
    /// Returns the series with these labels. Creates it if necessary.
    pub(crate) fn get_or_create(&self, labels: &L) -> M {
        if let Some(metric) = self.0.read().get(labels) {
            return metric.clone();
        }
        self.0.write().entry(labels.clone()).or_default().clone()
    }
}

impl<L: Eq + Hash, M> Family<L, M> {
    /// Passes all series to a function.
    pub(crate) fn for_each(&self, mut read: impl FnMut(&L, &M)) {
        self.0.read().iter().for_each(|(labels, metric)| read(labels, metric));
    }

    /// Removes the series with these labels. Existing handles still work, but are no longer exported.
    pub(crate) fn remove(&self, labels: &L) {
        self.0.write().remove(labels);
    }
}

impl<L, M> Default for Family<L, M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<L: EncodeLabelSet, M: EncodeMetric + TypedMetric + Series> EncodeMetric for Family<L, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let series = self.0.read();
        series.iter().filter(|(_, metric)| !metric.is_untouched()).try_for_each(|(labels, metric)| {
            let encoder = encoder.encode_family(labels)?;
            metric.encode(encoder)
        })
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.0.read().values().all(Series::is_untouched)
    }
}

impl<L, M: TypedMetric> TypedMetric for Family<L, M> {
    const TYPE: MetricType = M::TYPE;
}

impl Series for Counter {
    fn is_untouched(&self) -> bool {
        self.get() == 0
    }
}
