//! The rule file as one map.

use super::value::{Map, Value};
use super::writer::{one_line, write};
use super::{Draft, Listen};
use crate::report::Place;

/// The address of a gateway whose source names none.
const DEFAULT_LISTEN: &str = "0.0.0.0:8080";

impl Draft {
    /// Returns the text of the rule file. `title` is the comment in its first line.
    pub(crate) fn text(&self, title: &str) -> String {
        format!("# {}\n{}", one_line(title), write(&self.map()))
    }

    fn map(&self) -> Map {
        let mut map = Map::default();
        self.set_listen(&mut map);
        map.extend(self.more.clone());
        map.set_some("store", self.store.clone());
        map.set_some("clients", self.clients.map());
        map.set_some("identities", (!self.identities.is_empty()).then(|| self.identities.clone()));
        set_named(&mut map, "upstreams", self.upstreams.iter().map(|upstream| (&upstream.name, upstream.map())));
        set_named(&mut map, "tiers", self.tiers.iter().map(|tier| (&tier.name, tier.map())));
        set_named(&mut map, "limits", self.limits.iter().map(|limit| (&limit.name, limit.map())));
        map.set_some("service", (!self.service.is_empty()).then(|| self.service.clone()));
        if !self.routes.is_empty() {
            map.set("routes", self.routes.iter().map(|route| route.map().into()).collect::<Vec<_>>());
        } else if self.service.is_empty() {
            map.set("routes", vec![no_route()]);
        }
        map
    }

    fn set_listen(&self, map: &mut Map) {
        match self.listen.as_slice() {
            [] if self.routes.is_empty() && !self.service.is_empty() => {}
            [] => map.set("listen", DEFAULT_LISTEN),
            [only] if only.more.is_empty() && only.place.is_none() => map.set("listen", only.address.as_str()),
            all => map.set("listen", all.iter().map(|listen| listen.map().into()).collect::<Vec<_>>()),
        }
    }
}

impl Listen {
    fn map(&self) -> Map {
        let mut map = Map::of([("address", self.address.as_str().into())]);
        map.comment = self.place.as_ref().map(Place::to_string);
        map.extend(self.more.clone());
        map
    }
}

impl super::Clients {
    fn map(&self) -> Option<Map> {
        let mut map = Map::default();
        if !self.trusted_proxies.is_empty() {
            let networks = self.trusted_proxies.iter().map(|network| Value::Text(network.to_string()));
            map.set("trusted_proxies", networks.collect::<Vec<_>>());
        }
        map.set_some("ipv6_prefix", self.ipv6_prefix.map(u32::from));
        (!map.is_empty()).then_some(map)
    }
}

/// Returns a route for a source without routes, because a rule file has at least one.
fn no_route() -> Value {
    let mut route = Map::of([("name", "none".into()), ("match", Map::of([("path", "/**".into())]).into())]);
    route.set("respond", Map::of([("status", Value::Number(404))]));
    route.comment = Some("the source has no routes".to_owned());
    route.into()
}

/// Sets a key to a map from names to maps.
fn set_named<'n>(map: &mut Map, key: &str, items: impl Iterator<Item = (&'n String, Map)>) {
    let entries: Vec<_> = items.map(|(name, item)| (name.clone(), Value::Map(item))).collect();
    if !entries.is_empty() {
        map.set(key, Map { entries, comment: None });
    }
}
