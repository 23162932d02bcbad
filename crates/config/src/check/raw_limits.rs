//! The limits as the rule file contains them.

use crate::file::located::ValueOrMap;
use crate::file::{self, File};

/// Returns the names of the shared limits that a route uses.
pub(super) fn shared_names(route: &file::Route) -> impl Iterator<Item = &str> {
    route.limits.items().iter().filter_map(|item| match item.get()? {
        ValueOrMap::Value(name) => Some(name.as_str()),
        ValueOrMap::Map(_) => None,
    })
}

/// Returns the limits that only this route has.
pub(super) fn own_limits(route: &file::Route) -> impl Iterator<Item = &file::Limit> {
    route.limits.items().iter().filter_map(|item| match item.get()? {
        ValueOrMap::Value(_) => None,
        ValueOrMap::Map(limit) => Some(&**limit),
    })
}

pub(super) fn limits_of<'f>(file: &'f File, route: &'f file::Route) -> impl Iterator<Item = &'f file::Limit> {
    let shared = shared_names(route).filter_map(|name| file.limits.get()?.get(name)?.get());
    own_limits(route).chain(shared)
}
