//! Gauges that count open items.

use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::family::Series;

/// Counts one in a gauge until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A gauge is always exported: a change to 0 is information, too.
impl Series for Gauge {
    fn is_untouched(&self) -> bool {
        false
    }
}
