//! The node of each hash slot.

use std::sync::Arc;

use deadpool_redis::redis::Value;

use super::super::hash_slots::HASH_SLOTS;
use super::super::node::{Node, no_slots};

/// The position of a hash slot that no node has.
const UNASSIGNED: u16 = u16::MAX;

/// The nodes that have hash slots, and the hash slots of each.
#[derive(Clone, Debug)]
pub(crate) struct SlotMap {
    nodes: Vec<Arc<Node>>,
    /// For each hash slot, the position of its node.
    slots: Box<[u16]>,
}

/// A range of hash slots that a node has, as the cluster reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    /// Empty if it is the host of the node that replied.
    pub(super) host: String,
    pub(super) port: u16,
}

impl SlotMap {
    /// Creates a map in which no node has hash slots.
    pub(super) fn empty() -> Self {
        Self { nodes: Vec::new(), slots: vec![UNASSIGNED; usize::from(HASH_SLOTS)].into_boxed_slice() }
    }

    /// Assigns hash slots to a node.
    pub(super) fn assign(&mut self, first: u16, last: u16, node: &Arc<Node>) {
        let existing = self.nodes.iter().position(|existing| Arc::ptr_eq(existing, node));
        let position = existing.unwrap_or_else(|| {
            self.nodes.push(Arc::clone(node));
            self.nodes.len() - 1
        });
        let position = u16::try_from(position).unwrap_or(UNASSIGNED);
        let slots = self.slots.iter_mut().take(usize::from(last) + 1).skip(first.into());
        slots.for_each(|hash_slot| *hash_slot = position);
    }

    /// Returns the node that has a hash slot, if any.
    pub(crate) fn node_of(&self, hash_slot: u16) -> Option<&Arc<Node>> {
        self.nodes.get(usize::from(*self.slots.get(usize::from(hash_slot))?))
    }

    /// Returns the hash slots of each node.
    pub(super) fn owned(&self) -> impl Iterator<Item = (&Arc<Node>, Box<[bool]>)> {
        let mut owned = vec![no_slots(); self.nodes.len()];
        for (hash_slot, position) in self.slots.iter().enumerate() {
            if let Some(owned) = owned.get_mut(usize::from(*position)) {
                owned[hash_slot] = true;
            }
        }
        self.nodes.iter().zip(owned)
    }

    pub(crate) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Returns `true` if the node has a hash slot.
    pub(crate) fn has(&self, node: &Arc<Node>) -> bool {
        self.nodes.iter().any(|other| Arc::ptr_eq(other, node))
    }
}

impl SlotRange {
    /// Parses the reply to `CLUSTER SLOTS`. Returns `None` if it is malformed or names no node.
    pub(super) fn parse_all(reply: &Value) -> Option<Vec<Self>> {
        let Value::Array(ranges) = reply else { return None };
        let ranges = ranges.iter().map(Self::parse).collect::<Option<Vec<_>>>()?;
        (!ranges.is_empty()).then_some(ranges)
    }

    /// Parses a range. Its first node is the primary; the others are replicas.
    fn parse(range: &Value) -> Option<Self> {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(node), ..] = &parts[..] else { return None };
        let [host, Value::Int(port), more @ ..] = &node[..] else { return None };
        let host = match text(host)? {
            // The node should have a host name but has none: use its address from the metadata.
            "?" => more.iter().find_map(address).unwrap_or_default(),
            host => host,
        };
        let hash_slot = |hash_slot: &i64| u16::try_from(*hash_slot).ok().filter(|hash_slot| *hash_slot < HASH_SLOTS);
        Some(Self {
            first: hash_slot(first)?,
            last: hash_slot(last)?,
            host: host.to_owned(),
            port: u16::try_from(*port).ok()?,
        })
    }
}

/// Returns the text of a value; empty for nil.
fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        Value::SimpleString(text) => Some(text),
        Value::Nil => Some(""),
        _ => None,
    }
}

/// Returns the address from the metadata of a node, in RESP2 or RESP3.
fn address(more: &Value) -> Option<&str> {
    match more {
        Value::Array(words) => {
            words.chunks_exact(2).find(|pair| text(&pair[0]) == Some("ip")).and_then(|pair| text(&pair[1]))
        }
        Value::Map(pairs) => pairs.iter().find(|(key, _)| text(key) == Some("ip")).and_then(|(_, ip)| text(ip)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::parse_redis_value;

    use super::*;

    #[test]
    fn slot_ranges_name_primaries_only() {
        let node = |host: &str, port| format!("*3\r\n{host}:{port}\r\n$2\r\nid\r\n");
        let reply = format!("*4\r\n:0\r\n:5460\r\n{}{}", node("$9\r\n127.0.0.1\r\n", 7000), node("$2\r\nr1\r\n", 7003));
        let other = format!("*3\r\n:5461\r\n:16383\r\n{}", node("$-1\r\n", 7001));
        let answer = parse_redis_value(format!("*2\r\n{reply}{other}").as_bytes()).expect("an answer");
        let range = |first, last, host: &str, port| SlotRange { first, last, host: host.to_owned(), port };
        let expected = [range(0, 5_460, "127.0.0.1", 7_000), range(5_461, 16_383, "", 7_001)];
        assert_eq!(SlotRange::parse_all(&answer), Some(expected.to_vec()));
    }

    #[test]
    fn node_without_a_host_name_is_reached_by_address() {
        let by_array = "*2\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n";
        let by_map = "%1\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n";
        for (more, host) in [(by_array, "10.0.0.1"), (by_map, "10.0.0.1"), ("*0\r\n", "")] {
            let node = format!("*4\r\n$1\r\n?\r\n:7000\r\n$2\r\nid\r\n{more}");
            let answer = parse_redis_value(format!("*1\r\n*3\r\n:0\r\n:9\r\n{node}").as_bytes()).expect("an answer");
            let expected = SlotRange { first: 0, last: 9, host: host.to_owned(), port: 7_000 };
            assert_eq!(SlotRange::parse_all(&answer), Some(vec![expected]));
        }
    }

    #[test]
    fn malformed_reply_has_no_ranges() {
        for answer in ["*0\r\n", "+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\na\r\n:1\r\n"] {
            let answer = parse_redis_value(answer.as_bytes()).expect("an answer");
            assert_eq!(SlotRange::parse_all(&answer), None, "{answer:?}");
        }
    }
}
