//! Finds the overrides that concern a request: a lookup for each prefix length of the networks, and one for each client.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use ipnet::IpNet;
use smallvec::SmallVec;

use super::{Action, Override, Scope, Target};
use tidegate_limit::clock::Timestamp;

/// An immutable set of overrides.
#[derive(Debug, Default)]
pub struct OverrideIndex {
    networks: Vec<Networks>,
    hashes: HashMap<u128, Vec<Arc<Override>>>,
}

/// The overrides of the networks of one length and address family.
#[derive(Debug)]
struct Networks {
    is_ipv4: bool,
    prefix_len: u8,
    by_network: HashMap<IpNet, Vec<Arc<Override>>>,
}

/// The overrides that are in force and concern a request.
#[derive(Debug, Default)]
pub struct OverrideMatches<'i>(SmallVec<[&'i Override; 4]>);

impl OverrideIndex {
    pub fn new(overrides: impl IntoIterator<Item = Arc<Override>>) -> Self {
        let mut index = Self::default();
        for entry in overrides {
            let with_target = match &entry.target {
                Target::Network(network) => index.networks_like(network).by_network.entry(*network).or_default(),
                Target::Hash(hash) => index.hashes.entry(*hash).or_default(),
            };
            with_target.push(entry);
        }
        index
    }

    /// Returns `true` if there are overrides of single clients.
    pub fn has_hashes(&self) -> bool {
        !self.hashes.is_empty()
    }

    /// Returns `true` if an override changes limits for a single client, instead of banning it.
    pub fn changes_limits_of_clients(&self) -> bool {
        self.hashes.values().flatten().any(|entry| entry.action != Action::Ban)
    }

    /// Adds the overrides of an address to the matches of a request, if their scopes match `in_scope`.
    pub fn find_address<'i>(
        &'i self,
        address: IpAddr,
        in_scope: impl Fn(&Scope) -> bool,
        now: impl Fn() -> Timestamp,
        found: &mut OverrideMatches<'i>,
    ) {
        for networks in self.networks.iter().filter(|networks| networks.is_ipv4 == address.is_ipv4()) {
            let Ok(network) = IpNet::new(address, networks.prefix_len) else { continue };
            found.add(networks.by_network.get(&network.trunc()), &in_scope, &now);
        }
    }

    /// Adds the overrides of the client of a limit, with this hash, to the matches of a request for this route.
    pub fn find_client<'i>(
        &'i self,
        hash: u128,
        route: &str,
        limit: &str,
        now: impl Fn() -> Timestamp,
        found: &mut OverrideMatches<'i>,
    ) {
        found.add(self.hashes.get(&hash), |scope| scope.contains_limit(route, limit), now);
    }

    fn networks_like(&mut self, network: &IpNet) -> &mut Networks {
        let (is_ipv4, prefix_len) = (matches!(network, IpNet::V4(_)), network.prefix_len());
        let is_like = |networks: &Networks| (networks.is_ipv4, networks.prefix_len) == (is_ipv4, prefix_len);
        let position = self.networks.iter().position(is_like).unwrap_or_else(|| {
            self.networks.push(Networks { is_ipv4, prefix_len, by_network: HashMap::new() });
            self.networks.len() - 1
        });
        &mut self.networks[position]
    }
}

impl<'i> OverrideMatches<'i> {
    /// Adds the overrides of a target that are in force. Reads the time only if there are any.
    fn add(
        &mut self,
        with_target: Option<&'i Vec<Arc<Override>>>,
        in_scope: impl Fn(&Scope) -> bool,
        now: impl Fn() -> Timestamp,
    ) {
        let Some(entries) = with_target else { return };
        let now = now();
        self.0.extend(
            entries.iter().map(|entry| &**entry).filter(|entry| entry.is_in_force(now) && in_scope(&entry.scope)),
        );
    }

    /// Returns `true` if no override concerns the request.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ban that ends last, if the client is banned.
    pub fn ban(&self) -> Option<&'i Override> {
        let bans = self.0.iter().copied().filter(|entry| entry.action == Action::Ban);
        bans.max_by_key(|entry| (entry.until, Reverse(&entry.id)))
    }

    /// Returns the ban of this client of a limit that ends last.
    pub fn ban_of(&self, hash: u128, route: &str, limit: &str) -> Option<&'i Override> {
        let bans = self.0.iter().copied().filter(|entry| entry.action == Action::Ban);
        let of_client =
            bans.filter(|entry| entry.target == Target::Hash(hash) && entry.scope.contains_limit(route, limit));
        of_client.max_by_key(|entry| (entry.until, Reverse(&entry.id)))
    }

    /// Returns `true` if a ban also ends open responses.
    pub fn disconnects(&self) -> bool {
        self.0.iter().any(|entry| entry.disconnect)
    }

    /// Returns `true` if `concurrency` of this route does not count the requests: an exemption has all limits, or all
    /// limits of the route, as its scope.
    pub fn exempts_from_slots(&self, of_route: &str) -> bool {
        self.0.iter().any(|entry| {
            let has_route = match &entry.scope {
                Scope::All => true,
                Scope::Route(route) => route == of_route,
                Scope::Limit { .. } => false,
            };
            entry.action == Action::Exempt && has_route
        })
    }

    /// Returns the override that changes a limit: an exemption if there is one, otherwise the adjustment with the most
    /// specific scope, and among these with the most specific target.
    pub fn effect_on(&self, route: &str, limit: &str) -> Option<&'i Override> {
        let changes = self.0.iter().copied().filter(|entry| entry.action != Action::Ban);
        let in_scope = changes.filter(|entry| entry.scope.contains_limit(route, limit));
        in_scope.max_by_key(|entry| {
            let specificity = (scope_rank(&entry.scope), entry.target.specificity());
            (entry.action == Action::Exempt, specificity, Reverse(&entry.id))
        })
    }
}

fn scope_rank(scope: &Scope) -> u8 {
    match scope {
        Scope::All => 0,
        Scope::Route(_) => 1,
        Scope::Limit { .. } => 2,
    }
}
