//! `allow` and `deny`: routes that respond with 403.

use ipnet::IpNet;

use super::Target;
use crate::draft::Match;
use crate::nginx::Conversion;
use crate::nginx::action::Action;
use crate::nginx::client::network;
use crate::nginx::syntax::Directive;

/// The most rules of a block.
const MAX_RULES: usize = 1_000;

/// The clients that a block rejects.
#[derive(Debug, PartialEq, Eq)]
enum Denied {
    All,
    /// All clients but these.
    AllBut(Vec<IpNet>),
    Only(Vec<IpNet>),
}

impl<'c> Conversion<'c, '_> {
    /// Adds the route that rejects clients of a block. Its limits apply as well, because nginx counts these requests. Returns
    /// `true` if the block rejects all clients.
    pub(super) fn access_routes(&mut self, target: &Target<'_, 'c>, directive: &Directive, matches: &Match) -> bool {
        let rules = access(target);
        if rules.is_empty() {
            return false;
        }
        let has_other_rules = target.scope.last("satisfy").and_then(|satisfy| satisfy.arg(0)) == Some("any");
        let denied = if has_other_rules || rules.len() > MAX_RULES { None } else { denied(&rules) };
        let Some(denied) = denied else {
            rules.iter().for_each(|rule| {
                self.notes.lost(rule, "only lists that end with `deny all`, or that only deny, are supported");
            });
            return false;
        };
        rules.iter().for_each(|rule| self.notes.same(rule, "a route that responds with 403"));
        let is_all = denied == Denied::All;
        let mut matches = matches.clone();
        match denied {
            Denied::All => {}
            Denied::Only(clients) => matches.clients = clients,
            Denied::AllBut(clients) => matches.not.push(Match { clients, ..Match::default() }),
        }
        self.push(target, directive, matches, Action::response(403));
        is_all
    }
}

/// Returns the `allow` and `deny` of the innermost block that has any, in their order.
fn access<'c>(target: &Target<'_, 'c>) -> Vec<&'c Directive> {
    let mut scope = Some(&**target.scope);
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

/// Returns the clients that rules reject. The first rule that matches counts. Returns `None` if one condition cannot
/// describe them.
fn denied(rules: &[&Directive]) -> Option<Denied> {
    let kind = |rule: &&Directive| (rule.name() == "deny", rule.arg(0) == Some("all"));
    let until_all = rules.iter().position(|rule| rule.arg(0) == Some("all")).map_or(rules.len(), |index| index + 1);
    let rules = &rules[..until_all];
    let (last, before) = rules.split_last()?;
    let networks =
        |rules: &[&Directive]| rules.iter().map(|rule| rule.arg(0).and_then(network)).collect::<Option<Vec<_>>>();
    match kind(last) {
        (true, true) if before.is_empty() => Some(Denied::All),
        (true, true) if before.iter().all(|rule| !kind(rule).0) => networks(before).map(Denied::AllBut),
        (false, true) if !before.is_empty() && before.iter().all(|rule| kind(rule).0) => {
            networks(before).map(Denied::Only)
        }
        (_, false) if rules.iter().all(|rule| kind(rule).0) => networks(rules).map(Denied::Only),
        _ => None,
    }
}
