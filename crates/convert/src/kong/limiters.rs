//! All plugins that limit requests.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::model::Model;
use super::plan::{Auth, Plan};
use super::{advanced, limits};
use crate::draft::{Draft, Limit};
use crate::report::{Report, Verdict};

/// The names of the plugins that limit requests.
pub(super) const LIMITERS: [&str; 2] = [limits::NAME, advanced::NAME];

/// The limiting plugins, by their positions.
#[derive(Debug)]
pub(super) struct Plans(BTreeMap<usize, Plan>);

// === impl Plans ===

impl Plans {
    /// Reads all limiting plugins, and reports their settings.
    pub(super) fn of(model: &Model<'_>, replicas: NonZeroU32, draft: &mut Draft, report: &mut Report) -> Self {
        let mut plans = BTreeMap::new();
        for (position, plugin) in model.plugins.iter().enumerate() {
            let plan = match plugin.name {
                limits::NAME => limits::read(plugin, replicas, draft, report),
                advanced::NAME => advanced::read(plugin, replicas, draft, report),
                _ => None,
            };
            plans.extend(plan.map(|plan| (position, plan)));
        }
        Self(plans)
    }

    pub(super) fn get(&self, plugin: usize) -> Option<&Plan> {
        self.0.get(&plugin)
    }

    /// Returns the limits of a plugin for routes that identify consumers in this way.
    pub(super) fn limits(&mut self, plugin: usize, auth: Auth) -> Vec<Limit> {
        let Some(plan) = self.0.get_mut(&plugin) else { return Vec::new() };
        let difference = plan.by.difference(auth);
        // A difference in one route counts for all.
        plan.clients = plan.clients.max(difference).or(Some((Verdict::Same, "")));
        plan.limits(auth)
    }

    /// Reports how the limits identify clients. Call it after all routes.
    pub(super) fn report_clients(&self, report: &mut Report) {
        for plan in self.0.values() {
            let (place, setting) = &plan.by_setting;
            let (verdict, reason) = plan.clients.unwrap_or((Verdict::Same, "no route uses the plugin"));
            report.add(place, verdict, setting, reason);
        }
    }
}
