//! Executes the commands for all gateways that this gateway reads from the store, and reports the results.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::command::{FleetAction, FleetCommand};
use crate::admin::drain::{NewDrain, TargetPath};
use crate::admin::problem::Problem;
use crate::admin::{Active, Admin};
use tidegate_store::Store;

/// The time between readings.
const READ_EVERY: Duration = Duration::from_millis(500);

/// The longest detail of a report, in characters.
const MAX_DETAIL: usize = 256;

/// The report of a gateway about a command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) outcome: Outcome,
    #[serde(default)]
    pub(super) detail: Option<String>,
}

/// The result of a command at a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// It executed the command.
    Done,
    /// It did not accept the signature or the time of the command.
    Refused,
    /// It tried, and failed.
    Failed,
}

impl Admin {
    /// Reads and executes commands until the gateway ends. The first reading precedes the first announcement, so that a
    /// listed gateway knows which commands are new.
    pub(crate) async fn run_fleet(self) {
        self.follow_commands().await;
        tokio::spawn(self.clone().run_announcements());
        loop {
            sleep(READ_EVERY).await;
            self.follow_commands().await;
        }
    }

    /// Executes the commands that are new.
    async fn follow_commands(&self) {
        let active = self.active.load_full();
        let Some(list) = active.store.commands_key() else { return };
        let Ok(Some(read)) = active.store.commands().await else { return };
        let new = self.fleet.inbox.lock().read(active.store.address(), read.now, read.texts);
        if new.is_empty() {
            return;
        }
        let tokens = active.authorizer.read_tokens().await;
        let mut refused = 0;
        for text in new {
            let Some((signature, signed, command)) = FleetCommand::parse(&text, &list) else {
                refused += 1;
                continue;
            };
            let signer = tokens.as_ref().map_err(Problem::detail).and_then(|tokens| {
                tokens.signer_of(signed, &signature).ok_or("no token of the token file has signed the command")
            });
            let report = match signer.and_then(|name| Ok((name, self.fleet.inbox.lock().take(&command)?))) {
                Ok((_, false)) => continue,
                Ok((name, true)) => self.execute(&active, name.to_owned(), command.action).await,
                Err(detail) => {
                    refused += 1;
                    Report { outcome: Outcome::Refused, detail: Some(detail.to_owned()) }
                }
            };
            report_to(&active.store, &command.id, &report).await;
        }
        // One line for all: anything that writes to the store can add commands.
        if refused > 0 {
            tracing::warn!(refused, "commands for all gateways were refused");
        }
    }

    /// Executes a command. Its changes are in the audit list, with the name of this gateway.
    async fn execute(&self, active: &Active, operator: String, action: FleetAction) -> Report {
        let place = Some(self.gateway_name());
        let result = match action {
            FleetAction::Reload => self.reload_rules((operator, place), false, |_| true).await.map(|_| ()),
            FleetAction::Drain { upstream, target, duration, reason, force } => {
                let (path, drain) = (TargetPath { upstream, target }, NewDrain { duration, reason, force });
                self.drain_target(active, (operator, place), path, drain).await.map(|_| ())
            }
            FleetAction::EndDrain { upstream, target } => {
                self.end_drain(active, (operator, place), TargetPath { upstream, target }).await.map(|_| ())
            }
        };
        match result {
            Ok(()) => Report { outcome: Outcome::Done, detail: None },
            Err(problem) => {
                let detail = problem.detail().chars().take(MAX_DETAIL).collect();
                Report { outcome: Outcome::Failed, detail: Some(detail) }
            }
        }
    }
}

/// Reports a result. Without a reply of the store, the operator sees that this gateway did not answer.
async fn report_to(store: &Store, command_id: &str, report: &Report) {
    let text = serde_json::to_string(report).unwrap_or_default();
    _ = store.report_command(command_id, &text).await;
}
