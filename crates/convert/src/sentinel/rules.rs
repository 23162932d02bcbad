//! A rule, with the defaults of Sentinel.

use crate::report::{Place, Report};
use crate::sources::Text;
use crate::tree::{Entry, Node};

/// A rule of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule<'n> {
    pub(super) text: &'n Text,
    pub(super) node: &'n Node,
}

/// The kind of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `FlowRule`.
    Flow,
    /// `ParamFlowRule`.
    Param,
    /// `GatewayFlowRule`.
    Gateway,
    /// `ApiDefinition`: a group of paths.
    Group,
    /// `DegradeRule`.
    Degrade,
    /// `SystemRule`.
    System,
    /// `AuthorityRule`.
    Authority,
}

/// The treatment of requests above the threshold of a rule: `controlBehavior`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behavior {
    Reject,
    WarmUp,
    Queue,
    WarmUpAndQueue,
}

impl<'n> Rule<'n> {
    /// Returns `true` if a value is a rule.
    pub(super) fn is_rule(node: &Node) -> bool {
        let has = |key: &str| node.get(key).is_some();
        has("resource") && !has("rules") || has("apiName") || has("highestSystemLoad") || has("highestCpuUsage")
    }

    pub(super) fn kind(&self) -> Kind {
        let has = |key: &str| self.node.get(key).is_some_and(|node| !node.is_null());
        match () {
            () if has("apiName") => Kind::Group,
            () if has("highestSystemLoad") || has("highestCpuUsage") => Kind::System,
            () if has("paramIdx") || has("paramFlowItemList") => Kind::Param,
            () if has("resourceMode") || has("intervalSec") || has("paramItem") => Kind::Gateway,
            () if has("timeWindow") || has("minRequestAmount") || has("slowRatioThreshold") => Kind::Degrade,
            () if !has("count") => Kind::Authority,
            () => Kind::Flow,
        }
    }

    /// Returns the name of the resource.
    pub(super) fn resource(&self) -> &'n str {
        self.word("resource").unwrap_or_default()
    }

    pub(super) fn word(&self, key: &str) -> Option<&'n str> {
        self.node.get(key).and_then(Node::text)
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.node.get(key).and_then(Node::number)
    }

    /// Returns the threshold.
    pub(super) fn count(&self) -> f64 {
        self.node.get("count").and_then(Node::float).filter(|count| *count > 0.0).unwrap_or(0.0)
    }

    /// Returns `true` if the threshold is a number of threads, that is, of requests in flight.
    pub(super) fn counts_threads(&self) -> bool {
        self.number("grade") == Some(0)
    }

    pub(super) fn behavior(&self) -> Behavior {
        match self.number("controlBehavior") {
            Some(1) => Behavior::WarmUp,
            Some(2) => Behavior::Queue,
            Some(3) => Behavior::WarmUpAndQueue,
            _ => Behavior::Reject,
        }
    }

    /// Returns the place of the rule.
    pub(super) fn place(&self) -> Place {
        self.text.place(self.node.entries().first().map_or(self.node.line, |entry| entry.line))
    }

    /// Returns the entry with a key.
    pub(super) fn entry(&self, key: &str) -> Option<&'n Entry> {
        self.node.entries().iter().rev().find(|entry| entry.key == key && !entry.value.is_null())
    }

    /// Returns the place of an entry, or of the rule.
    pub(super) fn place_of(&self, key: &str) -> Place {
        self.entry(key).map_or_else(|| self.place(), |entry| self.text.place(entry.line))
    }

    /// Returns an entry as it is written, with the resource, for findings.
    pub(super) fn setting(&self, key: &str) -> String {
        let entry = self.entry(key).map_or_else(|| format!("{key} (default)"), crate::fields::setting);
        if self.resource().is_empty() { entry } else { format!("{}: {entry}", self.resource()) }
    }

    /// Reports an entry as lost, if the rule has it.
    pub(super) fn lose(&self, key: &str, reason: &str, report: &mut Report) {
        if self.entry(key).is_some() {
            report.lost(&self.place_of(key), self.setting(key), reason);
        }
    }
}
