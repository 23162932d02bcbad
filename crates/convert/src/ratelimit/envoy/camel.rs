//! Keys in camel case: the JSON that Envoy and its control planes write.

use crate::tree::{Node, Tree};

/// Returns `true` for a configuration of Envoy with such keys.
pub(in crate::ratelimit) fn is_camel(document: &Node) -> bool {
    document.get("staticResources").is_some() || document.get("virtualHosts").is_some()
}

/// Writes the keys of all maps with underscores. Names of filters have dots, and stay.
pub(in crate::ratelimit) fn to_snake(node: &mut Node) {
    match &mut node.value {
        Tree::Scalar { .. } => {}
        Tree::List(items) => items.iter_mut().for_each(to_snake),
        Tree::Map(entries) => {
            for entry in entries {
                if is_key(&entry.key) {
                    entry.key = snake(&entry.key);
                }
                to_snake(&mut entry.value);
            }
        }
    }
}

fn is_key(key: &str) -> bool {
    key.starts_with(|letter: char| letter.is_ascii_lowercase()) && key.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn snake(key: &str) -> String {
    let mut found = String::new();
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            found.push('_');
        }
        found.push(letter.to_ascii_lowercase());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_fields_are_changed_and_names_are_kept() {
        let text = "{virtualHosts: [{typedPerFilterConfig: {envoy.filters.http.jwtAuthn: {x-aB: 1}}}]}";
        let mut node = crate::tree::read("a", text).unwrap().remove(0);
        assert!(is_camel(&node));
        to_snake(&mut node);
        let host = &node.get("virtual_hosts").unwrap().items()[0];
        let path = ["typed_per_filter_config", "envoy.filters.http.jwtAuthn", "x-aB"];
        assert_eq!(host.at(&path).and_then(Node::number), Some(1));
    }
}
