//! The limits of routes by the names that programs use: `ROUTE/LIMIT`, or `@/LIMIT` for a shared limit.

use std::sync::OnceLock;

use hashbrown::HashMap;

use tidegate_rules::limits::rule::SHARED_ROUTE;
use tidegate_rules::rules::Rules;

/// The positions of all limits of routes. Made at the first use, so that gateways without it need no memory.
#[derive(Debug, Default)]
pub struct LimitNames(OnceLock<HashMap<String, LimitPosition>>);

/// The position of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitPosition {
    /// The position of its route, or of the first route that uses a shared limit.
    pub route: usize,
    /// Its position in the route.
    pub limit: usize,
}

impl LimitNames {
    /// Returns the limit with this name. `rules` are always the same.
    pub fn find(&self, rules: &Rules, name: &str) -> Option<LimitPosition> {
        self.0.get_or_init(|| positions(rules)).get(name).copied()
    }
}

fn positions(rules: &Rules) -> HashMap<String, LimitPosition> {
    let mut positions = HashMap::new();
    for (route_position, route) in rules.routes.iter().enumerate() {
        for (position, limit) in route.limits.iter().enumerate() {
            let owner = if limit.is_shared { SHARED_ROUTE } else { &*route.name };
            let found = LimitPosition { route: route_position, limit: position };
            positions.entry(format!("{owner}/{}", limit.name)).or_insert(found);
        }
    }
    positions
}
