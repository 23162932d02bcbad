//! `return`, and `rewrite` with a redirect.

use tidegate_rules::route::Redirect;
use tidegate_rules::template::{Escape, Template};

use super::Conversion;
use super::action::Action;
use super::servers::Server;
use super::syntax::Directive;
use super::values::template::{Part, literal, parts};
use crate::draft::value::{Map, Value};

/// The longest body of a response, in bytes.
const MAX_BODY: usize = 64 << 10;

/// The target of a redirecting `rewrite`, and its status.
pub(super) struct Rewritten<'c> {
    to: &'c str,
    status: u32,
}

/// Returns the redirect of a `rewrite`, if it is one.
pub(super) fn rewritten(directive: &Directive) -> Option<Rewritten<'_>> {
    let to = directive.arg(1)?;
    match directive.arg(2) {
        Some("permanent") => Some(Rewritten { to, status: 301 }),
        Some("redirect") => Some(Rewritten { to, status: 302 }),
        _ if ["http://", "https://", "$scheme"].iter().any(|start| to.starts_with(start)) => {
            Some(Rewritten { to, status: 302 })
        }
        _ => None,
    }
}

// === impl Conversion ===

impl<'c> Conversion<'c, '_> {
    /// Returns the action of a `return`.
    pub(super) fn returned(&mut self, directive: &Directive, server: &Server<'c>) -> Action {
        let status = directive.arg(0).unwrap_or_default();
        match (status.parse::<u32>(), directive.arg(1)) {
            (Err(_), _) => self.redirect(directive, &Rewritten { to: status, status: 302 }, server),
            (Ok(status @ (301..=303 | 307 | 308)), Some(to)) => {
                self.redirect(directive, &Rewritten { to, status }, server)
            }
            (Ok(444), _) => {
                self.notes.lost(directive, "nginx closes the connection; the route responds with 403");
                Action { is_unlimited: true, ..Action::response(403) }
            }
            (Ok(status @ 200..=599), text) => self.response(directive, status, text),
            (Ok(_), _) => {
                self.notes.lost(directive, "not a status within 200 and 599");
                Action { is_unlimited: true, ..Action::response(404) }
            }
        }
    }

    /// Returns a fixed response.
    fn response(&mut self, directive: &Directive, status: u32, text: Option<&str>) -> Action {
        let body = text.filter(|body| !body.is_empty() && !matches!(status, 204 | 205 | 304));
        let is_fixed =
            |body: &str| body.len() <= MAX_BODY && parts(body).iter().all(|part| matches!(part, Part::Text(_)));
        let mut respond = Map::of([("status", status.into())]);
        match body {
            Some(body) if is_fixed(body) => respond.set("body", body),
            Some(_) => {
                self.notes.lost(directive, "the body has variables, or more than 64 KiB");
            }
            None => {}
        }
        self.notes.same(directive, "`respond`");
        Action { more: Map::of([("respond", respond.into())]), is_unlimited: true, ..Action::default() }
    }

    /// Returns a redirect.
    pub(super) fn redirect(&mut self, directive: &Directive, to: &Rewritten<'_>, server: &Server<'c>) -> Action {
        let Some(url) = url(to.to, server).filter(|url| is_valid(url)) else {
            self.notes.lost(directive, "the target of the redirect has no equivalent: the route responds with 404");
            return Action { is_unlimited: true, ..Action::response(404) };
        };
        self.notes.same(directive, "`redirect`");
        let redirect = Map::of([("to", Value::Text(url)), ("status", to.status.into())]);
        Action { more: Map::of([("redirect", redirect.into())]), is_unlimited: true, ..Action::default() }
    }
}

/// Returns a target with the variables of the rule file.
fn url(text: &str, server: &Server<'_>) -> Option<String> {
    let mut url = String::new();
    let mut parts = parts(text).into_iter().peekable();
    while let Some(part) = parts.next() {
        match part {
            Part::Text(text) => url.push_str(&literal(&text)?),
            Part::Variable(name) => match name.as_str() {
                // The listener determines the scheme of a request.
                "scheme" if url.is_empty() => url.push_str(if server.is_tls { "https" } else { "http" }),
                "host" | "http_host" => url.push_str("{host}"),
                "server_name" if !server.names.first.is_empty() => url.push_str(&server.names.first),
                // A capture of `^/(.*)$` or `^(.*)$` in a rewrite.
                "request_uri" | "1" => {
                    url.truncate(url.trim_end_matches('/').len() + usize::from(url.ends_with("//")) * 2);
                    url.push_str("{uri}");
                }
                "uri" | "document_uri" => {
                    url.truncate(url.trim_end_matches('/').len() + usize::from(url.ends_with("//")) * 2);
                    url.push_str("{path}");
                }
                "is_args" => {
                    parts.next_if(|part| {
                        *part == Part::Variable("args".into()) || *part == Part::Variable("query_string".into())
                    })?;
                    url.push_str("{query}");
                }
                "args" | "query_string" if url.ends_with('?') => {
                    url.pop();
                    url.push_str("{query}");
                }
                _ => return None,
            },
        }
    }
    Some(url)
}

/// Returns `true` if a rule file accepts the target.
pub(crate) fn is_valid(url: &str) -> bool {
    let has_letters_of_urls = url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`|".contains(&byte));
    has_letters_of_urls && Template::parse(url, Escape::Url).is_ok_and(|to| Redirect::has_safe_authority(&to))
}
