//! Renames the policies of an upstream that have the name of a policy of the gateway.
//!
//! In a chain of gateways, limits can have equal names. A client tells policies apart by their names, so the policies of
//! the upstream are numbered: `"q"` becomes `"q.2"`. The policies of the nearest gateway come first. So the numbers do not
//! depend on which gateways of the chain have answered.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use http::HeaderValue;

/// The names of all policies of a response.
#[derive(Debug, Default)]
pub(super) struct PolicyNames {
    taken: HashSet<String>,
    /// The new names of the upstream's policies, by their old names.
    new: HashMap<String, String>,
}

impl PolicyNames {
    /// Adds the names of the gateway's own policies.
    pub(super) fn add_own(&mut self, field: &HeaderValue) {
        let text = field.to_str().unwrap_or_default();
        self.taken.extend(names(text).into_iter().map(|name| text[name].to_owned()));
    }

    /// Returns the field of an upstream without names of the gateway.
    pub(super) fn rename(&mut self, field: HeaderValue) -> HeaderValue {
        let Ok(text) = field.to_str() else { return field };
        let (mut renamed, mut copied) = (String::new(), 0);
        for name in names(text) {
            let new = self.new_name(&text[name.clone()]);
            renamed.push_str(&text[copied..name.start]);
            renamed.push_str(new);
            copied = name.end;
        }
        renamed.push_str(&text[copied..]);
        if renamed == text { field } else { HeaderValue::try_from(renamed).unwrap_or(field) }
    }

    fn new_name(&mut self, name: &str) -> &str {
        let taken = &mut self.taken;
        self.new.entry(name.to_owned()).or_insert_with(|| {
            let numbered = name.rsplit_once('.').and_then(|(base, number)| Some((base, number.parse::<u32>().ok()?)));
            let (base, number) = numbered.unwrap_or((name, 1));
            let later = (number.saturating_add(1)..).map(|number| format!("{base}.{number}"));
            let mut candidates = std::iter::once(name.to_owned()).chain(later);
            candidates.find(|candidate| taken.insert(candidate.clone())).unwrap_or_else(|| name.to_owned())
        })
    }
}

/// Returns the positions of the names in a list of strings with parameters (RFC 9651).
fn names(list: &str) -> Vec<Range<usize>> {
    let (mut found, mut start, mut is_member_start, mut is_escaped) = (Vec::new(), None, true, false);
    for (at, byte) in list.bytes().enumerate() {
        match (start, byte) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(_), b'\\') => is_escaped = true,
            (Some((begin, is_name)), b'"') => {
                found.extend(Some(begin..at).filter(|_| is_name));
                start = None;
            }
            (Some(_), _) => {}
            (None, b'"') => (start, is_member_start) = (Some((at + 1, is_member_start)), false),
            (None, b',') => is_member_start = true,
            (None, b' ' | b'\t') => {}
            (None, _) => is_member_start = false,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(own: &[&'static str], upstream: &[&'static str]) -> Vec<String> {
        let mut names = PolicyNames::default();
        own.iter().for_each(|field| names.add_own(&HeaderValue::from_static(field)));
        let fields = upstream.iter().map(|field| names.rename(HeaderValue::from_static(field)));
        fields.map(|field| field.to_str().expect("text").to_owned()).collect()
    }

    #[test]
    fn equal_names_of_an_upstream_are_numbered() {
        for (own, upstream, expected) in [
            (&["\"q\";q=5;w=1"][..], &["\"q\";q=9;w=60", "\"q\";r=3"][..], &["\"q.2\";q=9;w=60", "\"q.2\";r=3"][..]),
            // The upstream is itself in front of another gateway.
            (&["\"q\";q=5"], &["\"q\";q=9, \"q.2\";q=7", "\"q.2\";r=1"], &["\"q.2\";q=9, \"q.3\";q=7", "\"q.3\";r=1"]),
            (&["\"a\";q=5, \"b\";q=1"], &["\"c\";q=1,\"b\";r=2 , \"c\""], &["\"c\";q=1,\"b.2\";r=2 , \"c\""]),
            // Parameters, other types and malformed lists stay.
            (
                &["\"q\";q=5"],
                &["\"x\";pk=\"q\", q;r=1, 5;w=1", "limit=5, \"q"],
                &["\"x\";pk=\"q\", q;r=1, 5;w=1", "limit=5, \"q"],
            ),
            (&["\"q\";q=5"], &["\"a\\\"q\", \"a,\\\\\";x=\",\", \"q\""], &["\"a\\\"q\", \"a,\\\\\";x=\",\", \"q.2\""]),
        ] {
            assert_eq!(renamed(own, upstream), expected);
        }
    }
}
