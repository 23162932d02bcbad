//! Names of routes, limits, upstreams and tiers.

use std::collections::{HashMap, HashSet};

/// The longest name, in bytes.
const MAX_LENGTH: usize = 64;

/// The names that are used.
#[derive(Debug, Default)]
pub(super) struct Names {
    used: HashSet<String>,
    /// The last number that each name got.
    numbers: HashMap<String, u32>,
}

impl Names {
    /// Returns an unused name, similar to `wish`.
    pub(super) fn unused(&mut self, wish: &str) -> String {
        let base = valid_name(wish);
        let mut name = base.clone();
        while !self.used.insert(name.clone()) {
            let number = self.numbers.entry(base.clone()).or_insert(1);
            *number += 1;
            let suffix = format!("-{number}");
            let length = base.len().min(MAX_LENGTH - suffix.len());
            name = format!("{}{suffix}", &base[..length]);
        }
        name
    }
}

/// Returns a valid name, similar to `wish`: 1 to 64 letters, digits and `._-`.
pub(crate) fn valid_name(wish: &str) -> String {
    let mut name = String::new();
    for character in wish.chars() {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => name.push(character),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
        if name.len() == MAX_LENGTH {
            break;
        }
    }
    let name = name.trim_matches('-');
    if name.is_empty() { "unnamed".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_unique() {
        let mut names = Names::default();
        let long = "x".repeat(100);
        let given = ["/api/{id}", "api id", "", "~", &long, &long].map(|wish| names.unused(wish));
        let (first, second) = ("x".repeat(64), format!("{}-2", "x".repeat(62)));
        assert_eq!(given, ["api-id", "api-id-2", "unnamed", "unnamed-2", &first, &second]);
    }
}
