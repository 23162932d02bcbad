//! Problems of the rule file and of the files of teams.

use std::collections::BTreeMap;

use super::entry::{GatewayProblem, ProblemKind};
use crate::admin::status::{ConfigProblem, ConfigStatus};
use tidegate_config::{Team, TeamVersion};

/// Adds the errors of the last reload, one problem for each file, and the invalid files of teams.
pub(super) fn find(status: &ConfigStatus, teams: &[Team], found: &mut Vec<GatewayProblem>) {
    status.read_errors(|errors| {
        let mut by_file = BTreeMap::<&str, (&ConfigProblem, usize)>::new();
        for error in errors.iter().filter(|error| error.team.is_none()) {
            by_file.entry(&error.file).or_insert((error, 0)).1 += 1;
        }
        for (file, (first, count)) in by_file {
            let errors = summary(first.line, &first.message, count);
            let message = format!("was rejected, the previous rules stay in use: {errors}");
            found.push(GatewayProblem::new(ProblemKind::RuleFile, file, message));
        }
    });
    found.extend(teams.iter().filter(|team| team.is_invalid()).map(team_problem));
}

fn team_problem(team: &Team) -> GatewayProblem {
    let in_use = match team.version {
        TeamVersion::Current | TeamVersion::LastValid => "the last valid version stays in use",
        TeamVersion::None => "no version is in use",
    };
    let first = team.problems.first();
    let errors = first.map(|first| summary(first.line(), first.message(), team.problems.len())).unwrap_or_default();
    GatewayProblem::new(ProblemKind::TeamFile, &*team.name, format!("{} is invalid, {in_use}: {errors}", team.file))
}

/// Returns the first error, with its line and the number of other errors.
fn summary(line: Option<usize>, message: &str, count: usize) -> String {
    let at = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    match count {
        0 | 1 => format!("{at}{message}"),
        count => format!("{at}{message} ({count} errors)"),
    }
}
