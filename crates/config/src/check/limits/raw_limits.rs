//! The limits as the rule file contains them.

use crate::file::located::{Located, ValueOrMap};
use crate::file::{self, File};

/// Returns the names of the shared limits that a route uses.
pub(super) fn shared_names(route: &file::Route) -> impl Iterator<Item = &str> {
    route.limits.items().iter().filter_map(|item| match item.get()? {
        ValueOrMap::Value(name) => Some(name.as_str()),
        ValueOrMap::Map(_) => None,
    })
}

/// Returns the limits that only this route has.
pub(crate) fn own_limits(route: &file::Route) -> impl Iterator<Item = &file::Limit> {
    route.limits.items().iter().filter_map(|item| match item.get()? {
        ValueOrMap::Value(_) => None,
        ValueOrMap::Map(limit) => Some(&**limit),
    })
}

/// Returns the values of a request that a limit takes its rate from.
pub(crate) fn rate_sources(limit: &file::Limit) -> impl Iterator<Item = &Located<String>> {
    let rate = match limit.rate.get() {
        Some(ValueOrMap::Map(rate)) => Some(&rate.by),
        Some(ValueOrMap::Value(_)) | None => None,
    };
    limit.tier.get().map(|tier| &tier.by).into_iter().chain(rate)
}

pub(crate) fn limits_of<'f>(file: &'f File, route: &'f file::Route) -> impl Iterator<Item = &'f file::Limit> {
    let shared = shared_names(route).filter_map(|name| file.limits.get()?.get(name)?.get());
    own_limits(route).chain(shared)
}
