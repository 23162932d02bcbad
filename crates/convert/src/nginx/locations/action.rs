//! The action of a block: a redirect, a response, or a server.

use super::{Pattern, Target};
use crate::nginx::Conversion;
use crate::nginx::action::Action;
use crate::nginx::redirect;
use crate::nginx::upstreams::forward::Forward;

/// Directives that hand requests to other servers, over protocols that the gateway does not have.
const HANDLERS: [&str; 9] = [
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "memcached_pass",
    "redis_pass",
    "content_by_lua_block",
    "content_by_lua_file",
    "content_by_lua",
    "js_content",
];

/// Directives about files.
const FILES: [&str; 6] = ["try_files", "root", "alias", "stub_status", "empty_gif", "dav_methods"];

impl<'c> Conversion<'c, '_> {
    /// Returns the response of `return` or of a redirecting `rewrite`. nginx sends it before it counts the request.
    pub(super) fn early_action(&mut self, target: &Target<'_, 'c>) -> Option<Action> {
        if let Some(directive) = target.scope.own_first("return") {
            return Some(self.returned(directive, target.server));
        }
        for directive in target.scope.own("rewrite") {
            if let Some(to) = redirect::rewritten(directive) {
                let matches_all = matches!(
                    directive.arg(0),
                    Some("^" | ".*" | "^.*" | "^/(.*)$" | "^(.*)$" | "^/" | "^(.*)" | "^/(.*)")
                );
                if matches_all {
                    return Some(self.redirect(directive, &to, target.server));
                }
                self.notes.lost(directive, "a redirect of some paths of its block is not supported");
            }
        }
        None
    }

    /// Returns what happens to the requests of a block.
    pub(super) fn action(&mut self, target: &Target<'_, 'c>) -> Action {
        let scope = target.scope;
        if let Some(directive) = scope.own_first("proxy_pass").or(scope.own_first("grpc_pass")) {
            let prefix = match target.location.map(|location| &location.pattern) {
                Some(Pattern::Prefix { text, .. }) => Some((*text, false)),
                Some(Pattern::Exact(text)) => Some((*text, true)),
                Some(Pattern::Regex { .. }) | None => None,
            };
            return self.forward(&Forward { directive, scope, prefix });
        }
        for name in HANDLERS {
            if let Some(directive) = scope.own_first(name) {
                self.notes.lost(directive, "only servers that use HTTP are supported: the route responds with 502");
                return Action::response(502);
            }
        }
        for name in FILES {
            if let Some(directive) = scope.last(name) {
                self.notes.lost(directive, "files are not served: the route responds with 404");
            }
        }
        Action::response(404)
    }
}
