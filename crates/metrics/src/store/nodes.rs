//! Metrics of the nodes of a Redis Cluster. A node's series are removed when it leaves the cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;

use crate::catalog::{Catalog, Description, Label};

const NODE: Label = Label::Open("node");

/// The counters of each node by its address, and the number of their users. After a reload, the old and the new store
/// may use the same nodes for a while.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes(Arc<Mutex<BTreeMap<String, (usize, NodeMetrics)>>>);

/// Counters of a single node.
#[derive(Clone, Debug, Default)]
pub struct NodeMetrics {
    calls: Counter,
    decisions: Counter,
}

/// A user of a node's counters. When the last user is dropped, the series are removed.
#[derive(Debug)]
pub struct NodeSeries {
    nodes: Nodes,
    address: String,
    metrics: NodeMetrics,
}

/// One metric, with a series for each node.
#[derive(Debug)]
struct NodeMetric {
    nodes: Nodes,
    counter: fn(&NodeMetrics) -> &Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    node: String,
}

impl Nodes {
    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let metric = |counter| NodeMetric { nodes: self.clone(), counter };
        let calls = Description {
            name: "store_node_calls",
            labels: &[NODE],
            unit: "calls",
            meaning: "Calls to each node of a Redis Cluster. `node` is the address that the cluster announces. The \
                      series end when the node leaves the cluster or has no slots, and restart at zero if it returns",
            action: "decisions per call show how well requests are batched",
        };
        catalog.add(metric(|node| &node.calls), calls);
        let decisions = Description {
            name: "store_node_decisions",
            labels: &[NODE],
            unit: "requests",
            meaning: "Requests that each node of a Redis Cluster decided",
            action: "uneven: a limit is on few nodes; see `partitions` and `shards` in [cluster.md](cluster.md)",
        };
        catalog.add(metric(|node| &node.decisions), decisions);
    }

    /// Adds a user of a node's counters.
    pub(crate) fn add(&self, address: String) -> NodeSeries {
        let mut nodes = self.0.lock();
        let (users, metrics) = nodes.entry(address.clone()).or_default();
        *users += 1;
        NodeSeries { nodes: self.clone(), address, metrics: metrics.clone() }
    }
}

impl NodeMetrics {
    /// Counts a call to the node.
    pub fn called(&self) {
        self.calls.inc();
    }

    /// Counts requests that the node decided.
    pub fn decided(&self, requests: usize) {
        self.decisions.inc_by(requests as u64);
    }
}

impl NodeSeries {
    /// Returns the counters of the node.
    pub fn metrics(&self) -> NodeMetrics {
        self.metrics.clone()
    }
}

impl Drop for NodeSeries {
    fn drop(&mut self) {
        let mut nodes = self.nodes.0.lock();
        let Some((users, _)) = nodes.get_mut(&self.address) else { return };
        *users -= 1;
        if *users == 0 {
            nodes.remove(&self.address);
        }
    }
}

impl EncodeMetric for NodeMetric {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.nodes.0.lock().iter().try_for_each(|(address, (_, node))| {
            (self.counter)(node).encode(encoder.encode_family(&Labels { node: address.clone() })?)
        })
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }

    fn is_empty(&self) -> bool {
        self.nodes.0.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::Metrics;

    #[test]
    fn node_series_are_removed_with_their_last_user() {
        let metrics = Metrics::new();
        let has = |line: &str| metrics.render().lines().any(|other| other == line);
        let (old_rules, new_rules) = (metrics.add_node("a:1".to_owned()), metrics.add_node("a:1".to_owned()));
        old_rules.metrics().decided(3);
        new_rules.metrics().decided(4);
        drop(old_rules);
        assert!(has(r#"tidegate_store_node_decisions_total{node="a:1"} 7"#), "{}", metrics.render());
        assert!(has(r#"tidegate_store_node_calls_total{node="a:1"} 0"#), "{}", metrics.render());
        drop(new_rules);
        assert!(!metrics.render().contains("_node_"), "{}", metrics.render());
    }
}
