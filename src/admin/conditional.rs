//! Conditional requests (RFC 9110 section 13): the entity tags of `If-Match` and `If-None-Match`.

use http::header::HeaderName;
use http::{HeaderMap, StatusCode};

use super::problem::Problem;

/// The entity tags of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntityTags {
    /// `*`: any.
    Any,
    /// Tags with their quotation marks, without `W/`.
    Strong(Vec<String>),
}

impl EntityTags {
    /// Reads the condition in this field. Returns `None` without the field. If `is_weak`, as for `If-None-Match`, the
    /// tag `W/"x"` equals `"x"`; otherwise weak tags are ignored.
    pub(super) fn read(headers: &HeaderMap, name: &HeaderName, is_weak: bool) -> Result<Option<Self>, Problem> {
        let mut tags = Vec::new();
        for value in headers.get_all(name) {
            let text = value.to_str().unwrap_or("?");
            for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
                if tag == "*" {
                    return Ok(Some(Self::Any));
                }
                let (bare, is_weak_tag) = tag.strip_prefix("W/").map_or((tag, false), |bare| (bare, true));
                match bare {
                    bare if bare.len() < 2 || !bare.starts_with('"') || !bare.ends_with('"') => {
                        let detail = format!("`{name}` has an entity tag without quotation marks");
                        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
                    }
                    bare if is_weak || !is_weak_tag => tags.push(bare.to_owned()),
                    _ => {}
                }
            }
        }
        Ok(headers.contains_key(name).then_some(Self::Strong(tags)))
    }

    pub(super) fn contains(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Strong(tags) => tags.iter().any(|one| one == tag),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::IF_MATCH;

    use super::*;

    fn read(values: &[&str], is_weak: bool) -> Result<Option<EntityTags>, Problem> {
        let headers = values.iter().map(|value| (IF_MATCH, value.parse().expect("a value"))).collect();
        EntityTags::read(&headers, &IF_MATCH, is_weak)
    }

    #[test]
    fn condition_matches_its_entity_tags() {
        let matches = |values: &[&str], is_weak, tag: &str| {
            read(values, is_weak).expect("tags").is_some_and(|tags| tags.contains(tag))
        };
        assert!(matches(&["\"a\", \"b\""], false, "\"b\"") && matches(&["\"a\"", "\"b\""], false, "\"b\""));
        assert!(matches(&["*"], false, "\"b\"") && matches(&["W/\"b\""], true, "\"b\""));
        assert!(!matches(&["W/\"b\""], false, "\"b\"") && !matches(&[""], true, "\"b\""));
        assert_eq!(read(&[], false), Ok(None));
        assert!(read(&["abc"], false).is_err() && read(&["\""], false).is_err());
        // Regression test: this condition matched every tag.
        assert!(read(&["W/*"], true).is_err() && read(&["W/*"], false).is_err());
    }
}
