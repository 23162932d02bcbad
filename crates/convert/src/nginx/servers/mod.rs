//! Servers: their listeners, and the routes of each server.

mod listen;
mod names;
mod sockets;
mod tls;

use std::rc::Rc;

use self::names::ServerNames;
use self::sockets::Sockets;
use super::Conversion;
use super::scope::Scope;
use super::syntax::Directive;
use crate::draft::Match;
use crate::draft::value::Value;
use crate::error::ConvertError;

/// The most routes of a conversion.
pub(super) const MAX_ROUTES: usize = 5_000;

/// The most names of all servers.
const MAX_NAMES: usize = 2_000;

/// A server.
#[derive(Debug)]
pub(super) struct Server<'c> {
    pub(super) directive: &'c Directive,
    pub(super) scope: Rc<Scope<'c>>,
    pub(super) names: ServerNames,
    /// The positions of its sockets.
    pub(super) sockets: Vec<usize>,
    /// Whether all of its sockets serve TLS, or none of them does.
    pub(super) is_tls: bool,
}

/// The requests of a server that a group of routes has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unit {
    server: usize,
    /// Empty for all hosts.
    hosts: Vec<String>,
    /// The positions of the sockets. Empty for all sockets.
    sockets: Vec<usize>,
}

// === impl Conversion ===

impl<'c> Conversion<'c, '_> {
    /// Writes the listeners and the routes of all servers.
    pub(super) fn servers(&mut self, http: &Rc<Scope<'c>>) -> Result<(), ConvertError> {
        let mut sockets = Sockets::default();
        let mut servers = Vec::new();
        for directive in http.own("server") {
            let scope = Scope::new(Some(http), directive.inner());
            let index = servers.len();
            let own = self.listen(&scope, index, &mut sockets);
            let names = self.server_names(&scope);
            let is_tls = own.iter().all(|socket| sockets.all[*socket].is_tls) && !own.is_empty();
            servers.push(Server { directive, scope, names, sockets: own, is_tls });
            self.notes.same(directive, "");
        }
        let names = servers.iter().map(|server: &Server<'_>| server.names.len()).sum::<usize>();
        if servers.len() > MAX_ROUTES || names > MAX_NAMES {
            let message =
                format!("there are more than {MAX_ROUTES} servers, or more than {MAX_NAMES} names of servers");
            return Err(ConvertError::Bound(message));
        }
        self.drop_taken_names(&mut servers);
        let units = units(&servers, &sockets);
        sockets.need_names = units.iter().any(|unit| !unit.sockets.is_empty());
        self.write_listeners(http, &servers, &mut sockets);
        for unit in units {
            let server = &servers[unit.server];
            let mut base = Match { hosts: unit.hosts, ..Match::default() };
            if !unit.sockets.is_empty() {
                let names = unit.sockets.iter().filter_map(|socket| sockets.all[*socket].name.as_deref());
                base.more.set_list("listener", names.map(Value::from));
            }
            self.server_routes(server, &base, servers.len() > 1)?;
            if self.draft.routes.len() > MAX_ROUTES {
                return Err(ConvertError::Bound(format!("the locations need more than {MAX_ROUTES} routes")));
            }
        }
        Ok(())
    }
}

/// Returns the groups of routes in their order: servers by name, then by wildcards from the longest to the shortest, then
/// the default servers.
fn units(servers: &[Server<'_>], sockets: &Sockets<'_>) -> Vec<Unit> {
    let (mut exact, mut wild, mut default) = (Vec::new(), Vec::new(), Vec::new());
    for (index, server) in servers.iter().enumerate() {
        let is_default = |socket: &&usize| sockets.all[**socket].default == Some(index);
        let defaults: Vec<usize> = server.sockets.iter().filter(is_default).copied().collect();
        let needs_names = defaults.len() < server.sockets.len() || hides(servers, index);
        let unit = |hosts: &[String], own: &[usize]| {
            let sockets = if own.len() == sockets.all.len() { Vec::new() } else { own.to_vec() };
            Unit { server: index, hosts: hosts.to_vec(), sockets }
        };
        if needs_names && !server.names.exact.is_empty() {
            exact.push(unit(&server.names.exact, &server.sockets));
        }
        if needs_names && !server.names.wild.is_empty() {
            let mut names = server.names.wild.clone();
            names.sort_by_key(|name| std::cmp::Reverse(name.len()));
            wild.push((names[0].len(), unit(&names, &server.sockets)));
        }
        if !defaults.is_empty() {
            default.push(unit(&[], &defaults));
        }
    }
    wild.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    let wild = wild.into_iter().map(|(_, unit)| unit);
    joined(exact.into_iter().chain(wild).chain(default).collect())
}

/// Joins successive groups of a server with the same sockets.
fn joined(units: Vec<Unit>) -> Vec<Unit> {
    let mut joined: Vec<Unit> = Vec::new();
    for unit in units {
        match joined.last_mut() {
            Some(last) if last.server == unit.server && last.sockets == unit.sockets && !unit.hosts.is_empty() => {
                last.hosts.extend(unit.hosts);
            }
            _ => joined.push(unit),
        }
    }
    joined
}

/// Returns `true` if a wildcard of another server matches a name of this server, so that the name must come first.
fn hides(servers: &[Server<'_>], index: usize) -> bool {
    let own = &servers[index];
    let below = |name: &String, wild: &String| {
        let name = name.strip_prefix('*').unwrap_or(name);
        name.len() > wild.len() - 1 && name.ends_with(&wild[1..])
    };
    let others = servers.iter().enumerate().filter(|(other, _)| *other != index);
    others
        .flat_map(|(_, other)| &other.names.wild)
        .any(|wild| own.names.exact.iter().chain(&own.names.wild).any(|name| below(name, wild)))
}
