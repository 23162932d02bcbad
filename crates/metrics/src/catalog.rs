//! Describes and registers metrics. `/metrics` and `docs/metrics.md` show the same descriptions.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Metric, Registry};

/// The description of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Description {
    /// The name without the prefix `tidegate_` and without a suffix of its type.
    pub(super) name: &'static str,
    pub(super) labels: &'static [Label],
    /// The unit of the value.
    pub(super) unit: &'static str,
    /// The meaning, without a period at the end: `/metrics` adds it.
    pub(super) meaning: &'static str,
    /// The reaction of the operator to a change.
    pub(super) action: &'static str,
}

/// A label of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) enum Label {
    /// The values are names from the rule file, or words that the meaning of the metric describes.
    Open(&'static str),
    /// These are all values.
    Fixed(&'static str, &'static [&'static str]),
}

/// The metrics that are registered so far, in their order on the page.
#[derive(Debug)]
pub(super) struct Catalog<'r> {
    registry: &'r mut Registry,
    pub(super) sections: Vec<Section>,
}

/// A section of the page.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) metrics: Vec<(Description, MetricType)>,
}

impl Label {
    /// Returns the name of the label.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Open(name) | Self::Fixed(name, _) => name,
        }
    }
}

impl<'r> Catalog<'r> {
    /// Creates a catalog that registers metrics with the prefix `tidegate_`.
    pub(super) fn new(registry: &'r mut Registry) -> Self {
        Self { registry: registry.sub_registry_with_prefix("tidegate"), sections: Vec::new() }
    }

    /// Begins a section of the page.
    pub(super) fn section(&mut self, title: &'static str) {
        self.sections.push(Section { title, metrics: Vec::new() });
    }

    /// Registers a metric.
    pub(super) fn add(&mut self, metric: impl Metric, description: Description) {
        if let Some(section) = self.sections.last_mut() {
            section.metrics.push((description, metric.metric_type()));
        }
        self.registry.register(description.name, description.meaning, metric);
    }
}

impl Description {
    /// Returns the name of the series in `/metrics`.
    pub(super) fn full_name(&self, kind: MetricType) -> String {
        let suffix = match kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            MetricType::Gauge | MetricType::Histogram | MetricType::Unknown => "",
        };
        format!("tidegate_{}{suffix}", self.name)
    }
}
