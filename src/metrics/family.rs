//! A metric family that omits series without data.
//!
//! Handles are created when a rule file is loaded, for every route and limit. If all series were exported at once,
//! 5,000 routes would make a page of 33 MB with only zeros. For Prometheus, a missing counter is the same as one that
//! is 0.

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
pub(super) struct Family<L, M> {
    series: Arc<RwLock<HashMap<L, M>>>,
    /// A metric without data, from which all series are created.
    template: M,
}

/// A series of a family.
pub(super) trait Series: Clone {
    /// Returns `true` if the metric has no data to export.
    fn is_untouched(&self) -> bool;

    /// Returns another metric of the same kind, without data.
    fn empty(&self) -> Self;
}

impl<L: Clone + Eq + Hash, M: Series> Family<L, M> {
    /// Creates a family whose series are like `template`.
    pub(super) fn new(template: M) -> Self {
        Self { series: Arc::default(), template }
    }

    /// Returns the series with these labels. Creates it if necessary.
    pub(super) fn get_or_create(&self, labels: &L) -> M {
        if let Some(metric) = self.series.read().get(labels) {
            return metric.clone();
        }
        self.series.write().entry(labels.clone()).or_insert_with(|| self.template.empty()).clone()
    }
}

impl<L: Eq + Hash, M> Family<L, M> {
    /// Passes all series to a function.
    #[cfg(feature = "gateway")]
    pub(super) fn for_each(&self, mut read: impl FnMut(&L, &M)) {
        self.series.read().iter().for_each(|(labels, metric)| read(labels, metric));
    }

    /// Removes the series with these labels. Existing handles still work, but are no longer exported.
    pub(super) fn remove(&self, labels: &L) {
        self.series.write().remove(labels);
    }
}

impl<L, M: Default> Default for Family<L, M> {
    fn default() -> Self {
        Self { series: Arc::default(), template: M::default() }
    }
}

impl<L: EncodeLabelSet, M: EncodeMetric + TypedMetric + Series> EncodeMetric for Family<L, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let series = self.series.read();
        series.iter().filter(|(_, metric)| !metric.is_untouched()).try_for_each(|(labels, metric)| {
            let encoder = encoder.encode_family(labels)?;
            metric.encode(encoder)
        })
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.series.read().values().all(Series::is_untouched)
    }
}

impl<L, M: TypedMetric> TypedMetric for Family<L, M> {
    const TYPE: MetricType = M::TYPE;
}

impl Series for Counter {
    fn is_untouched(&self) -> bool {
        self.get() == 0
    }

    fn empty(&self) -> Self {
        Self::default()
    }
}
