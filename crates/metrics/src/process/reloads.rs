//! Metrics of the rule file: reloads, and whether the last one was successful.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};
use tidegate_limit::clock::unix_seconds;

/// The names of [`ReloadOutcome`], in the order of its variants.
pub(super) const OUTCOMES: [&str; 3] = ["applied", "unchanged", "failed"];

/// The metrics of the rule file.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    reloads: Family<ResultLabels, Counter>,
    last_successful: Gauge,
    last_success: Gauge,
    team_files: Family<TeamLabels, Gauge>,
}

/// The outcome of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The rules changed.
    Applied,
    /// The file has the rules that are in use.
    Unchanged,
    /// The file cannot be used. The previous rules stay in use.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TeamLabels {
    team: String,
}

impl Reloads {
    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let reloads = Description {
            name: "config_reloads",
            labels: &[Label::Fixed("result", &OUTCOMES)],
            unit: "reloads",
            meaning: "Reloads of the rule file",
            action: "`failed`: the log and `errors` in `/api/v1/config` have each error with its line",
        };
        catalog.add(self.reloads.clone(), reloads);
        let successful = Description {
            name: "config_last_reload_successful",
            labels: &[],
            unit: "0 or 1",
            meaning: "1 if the gateway could use the rule file when it read the file last",
            action: "0: correct the file; the previous rules stay in use",
        };
        catalog.add(self.last_successful.clone(), successful);
        let success = Description {
            name: "config_last_reload_success_timestamp_seconds",
            labels: &[],
            unit: "seconds since 1970",
            meaning: "Time at which the gateway could use the rule file last",
            action: "differs between gateways after a rollout: one of them has not reloaded",
        };
        catalog.add(self.last_success.clone(), success);
        let team_files = Description {
            name: "config_team_file_valid",
            labels: &[Label::Open("team")],
            unit: "0 or 1",
            meaning: "1 if the file of the team is in use. 0 if it is invalid, so that its last valid version is in use, or no version",
            action: "0: `errors` in `/api/v1/config` have each error with its line; other teams are not affected",
        };
        catalog.add(self.team_files.clone(), team_files);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Records that the rules of the start are in use.
    pub fn config_loaded(&self) {
        // The series exist from the start, so that the first failure is an increase.
        for result in OUTCOMES {
            drop(self.config.reloads.get_or_create(&ResultLabels { result }));
        }
        self.config.last_successful.set(1);
        self.config.last_success.set(i64::try_from(unix_seconds()).unwrap_or(i64::MAX));
    }

    /// Records for each team whether its file is in use. Teams that are no longer named end.
    pub fn set_team_files<'t>(&self, teams: impl Iterator<Item = (&'t str, bool)>) {
        self.config.team_files.clear();
        for (team, is_valid) in teams {
            self.config.team_files.get_or_create(&TeamLabels { team: team.to_owned() }).set(i64::from(is_valid));
        }
    }

    /// Counts a reload.
    pub fn reloaded(&self, outcome: ReloadOutcome) {
        self.config.reloads.get_or_create(&ResultLabels { result: OUTCOMES[outcome as usize] }).inc();
        match outcome {
            ReloadOutcome::Applied | ReloadOutcome::Unchanged => self.config_loaded(),
            ReloadOutcome::Failed => _ = self.config.last_successful.set(0),
        }
    }
}
