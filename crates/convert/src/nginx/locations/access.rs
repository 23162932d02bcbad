//! `allow` and `deny`: routes that respond with 403.

use super::Target;
use super::guards::{access, satisfies_any};
use crate::draft::Match;
use crate::nginx::Conversion;
use crate::nginx::action::Action;
use crate::nginx::client::network;
use crate::nginx::syntax::Directive;

/// The most rules of a block.
const MAX_RULES: usize = 1_000;

/// The most groups of clients that a block rejects: each one excludes the clients that rules before it allow.
const MAX_GROUPS: usize = 20;

impl<'c> Conversion<'c, '_> {
    /// Adds the routes that reject clients of a block. Its limits apply as well, because nginx counts these requests.
    /// Returns `true` if the block rejects all clients.
    pub(super) fn access_routes(&mut self, target: &Target<'_, 'c>, directive: &Directive, matches: &Match) -> bool {
        let rules = access(target.scope);
        let denied = if rules.len() > MAX_RULES { None } else { denied(&rules) };
        let Some(denied) = denied.filter(|denied| denied.len() <= MAX_GROUPS) else {
            rules.iter().for_each(|rule| {
                self.notes.lost(rule, "a rule is not an address, or there are too many: the routes respond with 403");
            });
            return false;
        };
        let is_optional = satisfies_any(target.scope) && !rules.is_empty();
        if let Some(satisfy) = target.scope.last("satisfy").filter(|_| is_optional) {
            self.notes.stricter(satisfy, "the list of addresses counts, since authentication is lost");
        }
        for rule in rules {
            match is_optional {
                true => self.notes.stricter(rule, "other clients are rejected, since authentication is lost"),
                false => self.notes.same(rule, "a route that responds with 403"),
            }
        }
        let mut is_all = false;
        for group in denied {
            is_all |= group == Match::default();
            let mut matches = matches.clone();
            matches.clients = group.clients;
            matches.not.extend(group.not);
            self.push(target, directive, matches, Action::response(403));
        }
        is_all
    }
}

/// Returns the clients that rules reject, in groups: the clients of each `deny` without those that a rule before it allows.
/// The first rule that matches counts. Returns `None` if a rule has no address.
fn denied(rules: &[&Directive]) -> Option<Vec<Match>> {
    let (mut allowed, mut groups) = (Vec::new(), Vec::<Match>::new());
    for rule in rules {
        let network = match rule.arg(0)? {
            "all" => None,
            // The gateway has no such clients.
            "unix:" => continue,
            text => Some(network(text)?),
        };
        match (rule.name() == "deny", network) {
            (false, None) => break,
            (false, Some(network)) => allowed.push(network),
            (true, network) => {
                let except = Match { clients: allowed.clone(), ..Match::default() };
                let not: Vec<_> = (!allowed.is_empty()).then_some(except).into_iter().collect();
                match groups.last_mut().zip(network) {
                    Some((last, network)) if last.not == not => last.clients.push(network),
                    _ => groups.push(Match { clients: network.into_iter().collect(), not, ..Match::default() }),
                }
                if network.is_none() {
                    break;
                }
            }
        }
    }
    Some(groups)
}
