//! Protections that are lost: authentication, lists of addresses, and conditions that reject requests. The route of their
//! block is closed, because it would admit requests that nginx rejects.

use super::Target;
use crate::draft::Match;
use crate::nginx::Conversion;
use crate::nginx::action::Action;
use crate::nginx::scope::Scope;
use crate::nginx::settings::{AUTHENTICATION, is_authentication};
use crate::nginx::syntax::Directive;

/// Returns the `allow` and `deny` of the innermost block that has any, in their order.
pub(super) fn access<'c>(scope: &Scope<'c>) -> Vec<&'c Directive> {
    let mut scope = Some(scope);
    while let Some(current) = scope {
        let is_rule = |directive: &&Directive| matches!(directive.name(), "allow" | "deny");
        let rules: Vec<_> = current.directives.iter().filter(is_rule).collect();
        if !rules.is_empty() {
            return rules;
        }
        scope = current.outer.as_deref();
    }
    Vec::new()
}

/// Returns `true` if a list of addresses or an authentication suffices. Without the authentication, the list remains.
pub(super) fn satisfies_any(scope: &Scope<'_>) -> bool {
    scope.last("satisfy").and_then(|satisfy| satisfy.arg(0)) == Some("any")
}

impl<'c> Conversion<'c, '_> {
    /// Returns the first protection of a block that is lost. The directives of the block have been read before.
    pub(super) fn lost_guard(&self, target: &Target<'_, 'c>) -> Option<String> {
        let (scope, server) = (&**target.scope, &*target.server.scope);
        let rules = access(scope);
        let is_optional = satisfies_any(scope) && !rules.is_empty();
        let names = AUTHENTICATION.iter().filter(|_| !is_optional);
        let authentication = names.filter_map(|name| scope.last(name)).find(|directive| is_authentication(directive));
        let certificates = server.last("ssl_verify_client").filter(|verify| verify.arg(0) == Some("on"));
        let conditions = scope.own("if").iter().chain(server.own("if")).copied().filter(|directive| rejects(directive));
        let mut others = rules.into_iter().chain(certificates).chain(conditions);
        let lost = authentication.or_else(|| others.find(|directive| self.notes.is_lost(directive)))?;
        Some(format!("`{}` ({})", lost.name(), lost.place))
    }

    /// Adds the route that rejects the methods which `limit_except` does not list.
    pub(super) fn limit_except(&mut self, target: &Target<'_, 'c>, matches: &Match) {
        let Some(directive) = target.scope.own_first("limit_except") else { return };
        let mut methods: Vec<String> = directive.texts().filter_map(crate::matching::method).collect();
        if methods.iter().any(|method| method == "GET") {
            methods.push("HEAD".to_owned());
        }
        let mut matches = matches.clone();
        matches.not.push(Match { methods, ..Match::default() });
        self.push(target, directive, matches, Action::response(403));
        let is_denied = |inner: &Directive| inner.name() == "deny" && inner.arg(0) == Some("all");
        match directive.inner() {
            [only] if is_denied(only) => {
                self.notes.same(only, "a route that responds with 403");
                self.notes.same(directive, "a route that responds with 403");
            }
            inner => {
                for rule in inner.iter().filter(|rule| matches!(rule.name(), "allow" | "deny")) {
                    self.notes.stricter(rule, "the other methods are rejected");
                }
                self.notes.stricter(directive, "all requests with other methods are rejected with 403");
            }
        }
    }
}

/// Returns `true` for a condition whose requests are rejected.
fn rejects(condition: &Directive) -> bool {
    condition.inner().iter().any(|inner| match inner.name() {
        "return" => inner.arg(0).is_some_and(|status| status.starts_with('4')),
        name => matches!(name, "deny" | "auth_basic" | "auth_request"),
    })
}
