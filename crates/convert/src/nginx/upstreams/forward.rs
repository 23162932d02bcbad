//! `proxy_pass` and `grpc_pass`: the upstream of a route, and the path that it receives.

use std::rc::Rc;

use super::url::Url;
use crate::draft::value::{Map, Value};
use crate::nginx::Conversion;
use crate::nginx::action::Action;
use crate::nginx::scope::Scope;
use crate::nginx::syntax::Directive;
use crate::nginx::values::template::{Part, parts};

/// A block that forwards requests.
#[derive(Debug)]
pub(in crate::nginx) struct Forward<'r, 'c> {
    pub(in crate::nginx) directive: &'c Directive,
    pub(in crate::nginx) scope: &'r Rc<Scope<'c>>,
    /// The path of the location, and whether it is exact. `None` for regular expressions.
    pub(in crate::nginx) prefix: Option<(&'r str, bool)>,
}

/// A change of the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Change {
    strip: String,
    add: String,
}

impl<'c> Conversion<'c, '_> {
    /// Returns the action of a block that forwards requests.
    pub(in crate::nginx) fn forward(&mut self, forward: &Forward<'_, 'c>) -> Action {
        let Forward { directive, scope, .. } = *forward;
        let url = self.url(directive.arg(0).unwrap_or_default(), scope).and_then(|text| Url::parse(&text));
        let found = url.and_then(|url| Ok((self.upstream(&url, scope)?, url)));
        let (name, url) = match found {
            Ok(found) => found,
            Err(reason) => {
                self.notes.lost(directive, format!("{reason}: the route responds with 502"));
                return Action::response(502);
            }
        };
        let mut rewrite = Map::default();
        match self.change(forward, &url) {
            Ok(Change { strip, add }) => {
                rewrite.set_some("strip_prefix", Some(strip).filter(|strip| !strip.is_empty()));
                rewrite.set_some("add_prefix", Some(add).filter(|add| !add.is_empty()));
                self.notes.same(directive, "`upstream`");
            }
            Err(reason) => self.notes.lost(directive, reason),
        }
        let mut more = Map::default();
        let host = self.request_headers(scope, url.is_grpc, &mut more);
        let is_group = self.upstreams.groups.contains_key(url.authority.as_str());
        let host = host.or_else(|| Some(if is_group { url.authority.clone() } else { "upstream".to_owned() }));
        rewrite.set_some("host", host.filter(|host| host != "client"));
        if !rewrite.is_empty() {
            let mut all = Map::of([("rewrite", Value::Map(rewrite))]);
            all.extend(more);
            more = all;
        }
        Action { upstream: Some(name), more, is_unlimited: false }
    }

    /// Returns a URL with the values of its variables. The path and query of the request at the end are left out, because
    /// they are forwarded anyway.
    fn url(&self, text: &str, scope: &Scope<'c>) -> Result<String, String> {
        let mut url = String::new();
        let mut is_rest = false;
        for part in parts(text) {
            match part {
                Part::Text(text) if is_rest && text != "?" => return Err("its path depends on the request".to_owned()),
                Part::Text(text) => url.push_str(&text),
                Part::Variable(name) => match name.as_str() {
                    "request_uri" | "uri" | "is_args" | "args" | "query_string" if url.contains("://") => {
                        is_rest = true;
                    }
                    "scheme" if url.is_empty() => url.push_str("http"),
                    _ => {
                        let value = self.variables.constant(&format!("${{{name}}}"), &scope.assigned);
                        url.push_str(&value.ok_or_else(|| format!("its server depends on `${name}`"))?);
                    }
                },
            }
        }
        Ok(if is_rest { url.trim_end_matches(['?', '/']).to_owned() } else { url })
    }

    /// Returns how the path changes: by the path of the URL, or by a `rewrite`.
    fn change(&mut self, forward: &Forward<'_, 'c>, url: &Url) -> Result<Change, String> {
        let rewrites: Vec<&Directive> = forward.scope.own("rewrite").to_vec();
        if let [rewrite, others @ ..] = rewrites.as_slice() {
            others.iter().for_each(|other| self.notes.lost(other, "a block has one `rewrite`"));
            match rewritten(rewrite) {
                Some(change) if others.is_empty() => {
                    self.notes.same(rewrite, "`rewrite`");
                    return Ok(change);
                }
                _ => self.notes.lost(rewrite, "only `^/a/(.*)$ /b/$1` is supported, with one `rewrite` in a block"),
            }
        }
        match (forward.prefix, url.path.as_deref()) {
            (_, None) => Ok(Change::default()),
            (None, Some(_)) => Err("a path in the URL needs a location without a regular expression".to_owned()),
            (Some((prefix, is_exact)), Some(path)) => replaced(prefix, is_exact, path),
        }
    }
}

/// Returns the change for a location whose prefix is replaced by a path.
fn replaced(prefix: &str, is_exact: bool, path: &str) -> Result<Change, String> {
    let (from, to) = (prefix.trim_end_matches('/'), path.trim_end_matches('/'));
    if path.contains('?') || !path.starts_with('/') {
        return Err("a query in the URL is not supported".to_owned());
    }
    if prefix == path {
        return Ok(Change::default());
    }
    let is_whole = prefix.ends_with('/') == path.ends_with('/');
    match (is_whole || is_exact, prefix.ends_with('/')) {
        (true, _) => change(from, to),
        // `/api` with `http://b/` sends `//x` for `/api/x`.
        (false, false) if to.is_empty() => change(from, to),
        (false, _) => Err("the prefix and the path must both end with a slash".to_owned()),
    }
}

/// Returns the change of `rewrite ^/a/(.*)$ /b/$1`, and of similar ones.
fn rewritten(directive: &Directive) -> Option<Change> {
    let pattern = directive.arg(0)?.trim_start_matches('^').trim_end_matches('$');
    let from = ["/(.*)", "(/.*)", "(/|$)(.*)", "/?(.*)", "(.*)"].iter().find_map(|end| pattern.strip_suffix(end))?;
    let to = directive.arg(1)?;
    let to = to.strip_suffix("$1").or(to.strip_suffix("$2"))?.trim_end_matches('/');
    (from.is_empty() || from.starts_with('/')).then_some(())?;
    change(from, to).ok()
}

fn change(strip: &str, add: &str) -> Result<Change, String> {
    if is_prefix(strip) && is_prefix(add) {
        Ok(Change { strip: strip.to_owned(), add: add.to_owned() })
    } else {
        Err("the path is not replaced by whole segments".to_owned())
    }
}

/// Returns `true` for an empty text and for whole segments without a trailing slash.
pub(crate) fn is_prefix(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/-._~".contains(letter);
    let has_segments = text.starts_with('/') && !text.contains("//") && !text.contains("/.") && !text.ends_with('/');
    text.is_empty() || has_segments && text.chars().all(is_plain)
}
