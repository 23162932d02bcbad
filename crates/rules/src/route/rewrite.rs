//! `rewrite`: changes the path and the host of the request that the upstream receives, and paths in its responses.

use http::HeaderValue;

use crate::request::path::Path;

/// Changes of the path and the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The prefix to remove, in the form that routes match.
    pub strip_prefix: Option<Box<str>>,
    /// The prefix to add, after `strip_prefix`.
    pub add_prefix: Option<Box<str>>,
    /// The host.
    pub host: HostRewrite,
    /// Whether responses are changed too. `None` changes only a `Location` that names the upstream.
    pub responses: Option<bool>,
}

/// The `Host` that the upstream receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostRewrite {
    /// The host that the client sent.
    #[default]
    Keep,
    /// The authority of the target.
    Upstream,
    /// This host.
    Fixed(HeaderValue),
}

impl Rewrite {
    /// Returns the new path, or `None` if it does not change.
    pub fn path(&self, path: &Path<'_>) -> Option<String> {
        let whole = path.normalized();
        let rest = self.strip_prefix.as_deref().map_or(whole, |prefix| without_prefix(path, prefix));
        let added = self.add_prefix.as_deref().unwrap_or_default();
        if added.is_empty() && (rest == whole || whole == "/") {
            return None;
        }
        let rest = if rest.is_empty() && added.is_empty() { "/" } else { rest };
        Some([added, rest].concat())
    }
}

impl Rewrite {
    /// Returns `true` if all paths in responses are changed.
    pub fn maps_all_responses(&self) -> bool {
        self.responses == Some(true)
    }

    /// Returns the path that a client requests for a path of the upstream. Returns `None` if no request leads there.
    pub fn response_path(&self, path: &str) -> Option<String> {
        let added = self.add_prefix.as_deref().unwrap_or_default();
        let rest = path.strip_prefix(added).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        let path = [self.strip_prefix.as_deref().unwrap_or_default(), rest].concat();
        Some(if path.is_empty() { "/".to_owned() } else { path })
    }
}

/// Returns the path after the prefix: empty, or with a slash at its start. Returns the whole path if the prefix is not
/// followed by the end of a segment. Parameters of segments (`;v=1`) do not matter, as for routes.
fn without_prefix<'p>(path: &'p Path<'_>, prefix: &str) -> &'p str {
    let whole = path.normalized();
    let rest = path.matched().strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let Some(rest) = rest else { return whole };
    if path.matched() == whole {
        return rest;
    }
    // Both forms of the path have the same segments, except that this one can have empty ones.
    let mut rest = whole;
    for _ in prefix.bytes().filter(|byte| *byte == b'/') {
        let segment = rest.trim_start_matches('/');
        rest = segment.find('/').map_or("", |end| &segment[end..]);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::path::{EncodedSlash, Slashes, normalize, normalize_with};

    fn rewritten(strip: &str, add: &str, path: &str) -> String {
        let prefix = |text: &str| (!text.is_empty()).then(|| text.into());
        let rewrite = Rewrite { strip_prefix: prefix(strip), add_prefix: prefix(add), ..Rewrite::default() };
        let path = normalize(path, EncodedSlash::Keep).expect("a path");
        rewrite.path(&path).unwrap_or_else(|| path.normalized().to_owned())
    }

    #[test]
    fn prefix_ends_with_a_segment() {
        for (path, expected) in [
            ("/orders/5", "/5"),
            ("/orders", "/"),
            ("/orders/", "/"),
            ("/orders2/5", "/orders2/5"),
            ("/ordersx", "/ordersx"),
            ("/a/orders/5", "/a/orders/5"),
            ("/orders/orders/5", "/orders/5"),
            ("/", "/"),
        ] {
            assert_eq!(rewritten("/orders", "", path), expected, "{path}");
        }
        assert_eq!(rewritten("/a/b", "", "/a/b/c"), "/c");
        assert_eq!(rewritten("/a/b", "", "/a/c"), "/a/c");
    }

    #[test]
    fn path_of_a_response_leads_back() {
        for (strip, add, path, expected) in [
            ("/orders", "", "/5", Some("/orders/5")),
            ("/orders", "/v2", "/v2/5", Some("/orders/5")),
            ("/orders", "/v2", "/v2", Some("/orders")),
            ("/orders", "/v2", "/v22", None),
            ("/orders", "/v2", "/", None),
            ("", "/v2", "/v2", Some("/")),
            ("", "", "/a", Some("/a")),
        ] {
            let prefix = |text: &str| (!text.is_empty()).then(|| text.into());
            let rewrite = Rewrite { strip_prefix: prefix(strip), add_prefix: prefix(add), ..Rewrite::default() };
            assert_eq!(rewrite.response_path(path).as_deref(), expected, "{strip} {add} {path}");
        }
    }

    #[test]
    fn new_prefix_stands_before_the_rest() {
        for (path, expected) in [("/orders/5", "/v2/5"), ("/orders", "/v2"), ("/orders/", "/v2/"), ("/x", "/v2/x")] {
            assert_eq!(rewritten("/orders", "/v2", path), expected, "{path}");
        }
        assert_eq!((rewritten("", "/v2", "/"), rewritten("", "/v2", "/a")), ("/v2/".into(), "/v2/a".into()));
    }

    /// The route also matches these spellings of its prefix.
    #[test]
    fn no_spelling_keeps_the_prefix_or_escapes() {
        for (path, expected) in [
            ("/orders;v=1/5;w=2", "/v2/5;w=2"),
            ("/%6frders/5", "/v2/5"),
            ("//orders//5", "/v2/5"),
            ("/x/../orders/./5", "/v2/5"),
            ("/orders/../5", "/v2/5"),
            ("/orders/a%2Fb%20c", "/v2/a%2Fb%20c"),
            ("/orders%2F5", "/v2/orders%2F5"),
        ] {
            assert_eq!(rewritten("/orders", "/v2", path), expected, "{path}");
        }
        let kept = normalize_with("//orders;v=1///5//", EncodedSlash::Keep, Slashes::Keep).expect("a path");
        let rewrite = Rewrite { strip_prefix: Some("/orders".into()), ..Rewrite::default() };
        assert_eq!(rewrite.path(&kept).as_deref(), Some("///5//"));
        assert!(normalize("/orders/../../x", EncodedSlash::Keep).is_err());
    }
}
