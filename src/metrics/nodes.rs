//! What is counted of the nodes of a cluster, as long as they are in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Those that are in a cluster, by their addresses, and how many clusters know of each: gateways of old and of new rules may
/// have the same nodes for a while.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes(Arc<Mutex<BTreeMap<String, (usize, NodeMetrics)>>>);

/// Counts what a node is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeMetrics {
    calls: Counter,
    decisions: Counter,
}

/// A node that is shown as long as this is kept.
#[derive(Debug)]
pub(crate) struct ShownNode {
    nodes: Nodes,
    address: String,
    metrics: NodeMetrics,
}

/// One of the counters, of every node.
#[derive(Debug)]
struct Series {
    nodes: Nodes,
    counter: fn(&NodeMetrics) -> &Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    node: String,
}

impl Nodes {
    pub(super) fn register(&self, registry: &mut Registry) {
        let series = |counter| Series { nodes: self.clone(), counter };
        let help = "Calls to a node of the cluster, each with one decision or many";
        registry.register("store_node_calls", help, series(|node| &node.calls));
        let help = "Requests that a node of the cluster decided";
        registry.register("store_node_decisions", help, series(|node| &node.decisions));
    }

    /// Shows a node.
    pub(super) fn show(&self, address: String) -> ShownNode {
        let mut nodes = self.0.lock();
        let (users, metrics) = nodes.entry(address.clone()).or_default();
        *users += 1;
        ShownNode { nodes: self.clone(), address, metrics: metrics.clone() }
    }
}

impl NodeMetrics {
    /// A call was sent to it.
    pub(crate) fn called(&self) {
        self.calls.inc();
    }

    /// It decided so many requests.
    pub(crate) fn decided(&self, requests: usize) {
        self.decisions.inc_by(requests as u64);
    }
}

impl ShownNode {
    /// Its counters.
    pub(crate) fn metrics(&self) -> NodeMetrics {
        self.metrics.clone()
    }
}

impl Drop for ShownNode {
    fn drop(&mut self) {
        let mut nodes = self.nodes.0.lock();
        let Some((users, _)) = nodes.get_mut(&self.address) else { return };
        *users -= 1;
        if *users == 0 {
            nodes.remove(&self.address);
        }
    }
}

impl EncodeMetric for Series {
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
    use super::super::Metrics;

    #[test]
    fn a_node_is_shown_as_long_as_a_cluster_has_it() {
        let metrics = Metrics::new();
        let has = |line: &str| metrics.render().lines().any(|other| other == line);
        let (of_old_rules, of_new_rules) = (metrics.show_node("a:1".to_owned()), metrics.show_node("a:1".to_owned()));
        of_old_rules.metrics().decided(3);
        of_new_rules.metrics().decided(4);
        drop(of_old_rules);
        assert!(has(r#"tidegate_store_node_decisions_total{node="a:1"} 7"#), "{}", metrics.render());
        assert!(has(r#"tidegate_store_node_calls_total{node="a:1"} 0"#), "{}", metrics.render());
        drop(of_new_rules);
        assert!(!metrics.render().contains("_node_"), "{}", metrics.render());
    }
}
