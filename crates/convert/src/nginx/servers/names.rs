//! `server_name`: the hosts of servers.

use std::collections::HashSet;

use tidegate_rules::route::HostPattern;

use super::Server;
use crate::nginx::Conversion;
use crate::nginx::scope::Scope;

/// The hosts of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::nginx) struct ServerNames {
    /// The first name as it is written, which `$server_name` contains. Empty without names.
    pub(in crate::nginx) first: String,
    pub(super) exact: Vec<String>,
    /// Names that start with `*.`.
    pub(super) wild: Vec<String>,
}

impl<'c> Conversion<'c, '_> {
    /// Returns the hosts of a server.
    pub(super) fn server_names(&mut self, scope: &Scope<'c>) -> ServerNames {
        let mut names = ServerNames::default();
        for directive in scope.own("server_name") {
            let mut lost = Vec::new();
            for text in directive.texts() {
                if names.first.is_empty() {
                    text.clone_into(&mut names.first);
                }
                if !names.add(text) {
                    lost.push(text);
                }
            }
            match lost.is_empty() {
                true => self.notes.same(directive, "`host`"),
                false => self.notes.lost(directive, format!("hosts have no such pattern: {}", lost.join(" "))),
            }
        }
        names
    }

    /// Removes names that an earlier server on the same sockets has. nginx ignores them as well.
    pub(super) fn drop_taken_names(&mut self, servers: &mut [Server<'c>]) {
        let mut taken: HashSet<(usize, String)> = HashSet::new();
        for server in servers {
            let Server { scope, names, sockets, .. } = server;
            let mut repeated = Vec::new();
            let mut is_free = |name: &String| {
                let is_free = sockets.iter().filter(|socket| taken.insert((**socket, name.clone()))).count() > 0;
                if !is_free {
                    repeated.push(name.clone());
                }
                is_free
            };
            names.exact.retain(&mut is_free);
            names.wild.retain(&mut is_free);
            if let (Some(directive), false) = (scope.own_first("server_name"), repeated.is_empty()) {
                let reason = format!("an earlier server has the name {}: nginx ignores it here", repeated.join(" "));
                self.notes.same(directive, reason);
            }
        }
    }
}

// === impl ServerNames ===

impl ServerNames {
    pub(super) fn len(&self) -> usize {
        self.exact.len() + self.wild.len()
    }

    /// Adds a name. Returns `false` if the rule file has no such pattern.
    fn add(&mut self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        let text = text.strip_suffix('.').unwrap_or(&text);
        let add = |names: &mut Vec<String>, name: String| {
            let is_valid = HostPattern::parse(&name).is_ok();
            if is_valid {
                names.push(name);
            }
            is_valid
        };
        match text.strip_prefix('.') {
            // Requests without a host, and names that no host has.
            _ if text.is_empty() || text.chars().all(|letter| !letter.is_ascii_alphanumeric()) => true,
            Some(host) => add(&mut self.exact, host.to_owned()) && add(&mut self.wild, format!("*.{host}")),
            None if text.starts_with("*.") => add(&mut self.wild, text.to_owned()),
            None => add(&mut self.exact, text.to_owned()),
        }
    }
}
