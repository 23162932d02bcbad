//! The top-level `limits`, which routes use by their names.

use std::collections::{BTreeMap, HashSet};

use super::body::reject_bodies;
use super::{RawLimit, reject_extension, with_candidate};
use crate::Purpose;
use crate::check::matching::route_context::RouteContext;
use crate::check::{Checked, all, help_for_unknown};
use crate::file::File;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use tidegate_rules::limits::rule::{Limit, SHARED_ROUTE};
use tidegate_rules::rules::When;

/// The shared limits by name, each followed by its candidate.
pub(crate) struct SharedLimits<'f> {
    by_name: BTreeMap<&'f str, Checked<Vec<Limit>>>,
    /// The names that routes use.
    used: HashSet<&'f str>,
}

impl<'f> SharedLimits<'f> {
    /// Converts the shared limits.
    pub(crate) fn new(context: RouteContext<'f>, when: &mut Vec<When>, problems: &mut Problems) -> Self {
        let RouteContext { file, purpose, names, .. } = context;
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
            let raw = RawLimit { keys, location, name: Ok(name), group: &group, shared: true, context };
            let limits = all(with_candidate(raw, std::iter::empty(), when, problems).into_iter());
            let limits = match purpose {
                Purpose::Command => limits,
                Purpose::Layer => reject_bodies(std::iter::once(keys), problems).and(limits),
                Purpose::Gateway => reject_extension(std::iter::once(keys), problems).and(limits),
            };
            by_name.insert(name.as_str(), limits);
        }
        Self { by_name, used: HashSet::new() }
    }

    /// Warns of each limit that no route has used.
    pub(crate) fn warn_of_unused(&self, file: &File, problems: &mut Problems) {
        let valid = file.limits.get().into_iter().flatten().filter(|(_, limit)| limit.get().is_some());
        for (name, limit) in valid.filter(|(name, _)| !self.used.contains(name.as_str())) {
            let message = format!("no route uses the shared limit {}", quote(name));
            let help = format!("add {} to the `limits` of a route", quote(name));
            problems.warn(limit.key_location(), &message, help);
        }
    }

    /// Returns the limit that an item of a route names, and its candidate.
    pub(crate) fn get<T>(&mut self, name: &str, item: &Located<T>, problems: &mut Problems) -> Checked<Vec<Limit>> {
        if let Some((name, limits)) = self.by_name.get_key_value(name) {
            self.used.insert(name);
            return limits.clone();
        }
        let help = help_for_unknown(name, self.by_name.keys().copied(), "shared limits", || {
            format!("define it at the top level, as in `limits: {{ {name}: {{ mode: OVERALL, ... }} }}`")
        });
        Err(item.report(format!("there is no shared limit {}", quote(name)), help, problems))
    }
}
