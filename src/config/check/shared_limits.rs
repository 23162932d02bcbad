//! The top-level `limits`, which routes use by their names.

use std::collections::{BTreeMap, HashSet};

use super::Checked;
use super::limits::{RouteContext, WrittenLimit, reject_extension, with_candidate};
use super::written_limits::shared_names;
use crate::config::Purpose;
use crate::config::file::File;
use crate::config::located::Located;
use crate::config::problem::{Problems, quote, quote_all};
use crate::config::suggest::nearest;
use crate::rule::{Limit, SHARED_ROUTE};
use crate::rules::When;

/// The shared limits by name, each followed by its candidate.
pub(super) struct SharedLimits<'f>(BTreeMap<&'f str, Checked<Vec<Limit>>>);

impl<'f> SharedLimits<'f> {
    /// Converts the shared limits.
    pub(super) fn new(
        file: &'f File,
        context: RouteContext<'_>,
        when: &mut Vec<When>,
        problems: &mut Problems,
    ) -> Self {
        let RouteContext { purpose, names, .. } = context;
        let used: HashSet<&str> = file.routes.items().iter().filter_map(Located::get).flat_map(shared_names).collect();
        let mut by_name = BTreeMap::new();
        for (name, located) in file.limits.get().into_iter().flatten() {
            let Ok(keys) = located.required(problems) else {
                by_name.insert(name.as_str(), Err(problems.reported(located.location)));
                continue;
            };
            if keys.name.is_present() {
                let message = "the name of a shared limit is its key";
                problems.add(keys.name.key_location(), message, "leave `name` out");
            }
            let group = names.tag(&format!("{SHARED_ROUTE}{name}"));
            let location = located.key_location();
            let written = WrittenLimit { keys, location, name: Ok(name), group: &group, shared: true, file, context };
            let limits = with_candidate(written, std::iter::empty(), when, problems);
            let limits = limits.into_iter().collect::<Checked<Vec<_>>>();
            let limits = match purpose {
                Purpose::Layer => limits,
                Purpose::Gateway => reject_extension(std::iter::once(keys), problems).and(limits),
            };
            if !used.contains(name.as_str()) {
                let message = format!("no route uses the shared limit {}", quote(name));
                problems.warn(location, &message, format!("add {} to the `limits` of a route", quote(name)));
            }
            by_name.insert(name.as_str(), limits);
        }
        Self(by_name)
    }

    /// Returns the limit that an item of a route names, and its candidate.
    pub(super) fn get<T>(&self, name: &str, item: &Located<T>, problems: &mut Problems) -> Checked<Vec<Limit>> {
        if let Some(limits) = self.0.get(name) {
            return limits.clone();
        }
        let names = || self.0.keys().copied();
        let help = match (nearest(name, names()), names().next()) {
            (Some(near), _) => format!("did you mean {}?", quote(near)),
            (None, Some(_)) => format!("the shared limits are {}", quote_all(names().take(10))),
            (None, None) => {
                format!("define it at the top level, as in `limits: {{ {name}: {{ mode: OVERALL, ... }} }}`")
            }
        };
        Err(item.report(format!("there is no shared limit {}", quote(name)), help, problems))
    }
}
