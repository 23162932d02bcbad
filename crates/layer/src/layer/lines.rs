//! The lines of a request in recordings: created when its route is known, sent when it ends.

use std::time::Duration;

use http::StatusCode;

use super::record::RequestRecord;
use super::report::RequestOutcome;
use crate::recording::Recorder;
use crate::ruleset::RuleSet;
use tidegate_limit::clock::wall_time;
use tidegate_rules::request::facts::Facts;

impl RequestRecord<'_> {
    /// Creates the lines of a request with these facts, if requests are recorded.
    #[inline]
    pub(super) fn record_lines(&mut self, recorder: &Recorder, rules: &RuleSet, facts: &Facts<'_>) {
        if recorder.is_active() {
            let lines = recorder.lines(&rules.recorded, self.route(), facts);
            self.rare.get_or_insert_default().lines = lines;
        }
    }

    /// Adds the verified credentials of the request to its lines. A line is dropped if no other values can replace theirs.
    pub(super) fn identify_lines(&mut self, rules: &RuleSet, facts: &Facts<'_>) {
        if let (Some(rare), Some(identity)) = (&mut self.rare, &facts.identity) {
            rare.lines.retain_mut(|line| line.identify(&rules.recorded, identity));
        }
    }

    /// Omits a request whose credentials are not accepted: only some of its limits count it.
    pub(super) fn omit_lines(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.lines.clear();
        }
    }

    /// Sends the lines of the request. A request that the limits have not decided, or whose client is banned, has taken
    /// no permits, although the rules do not reject it: it is omitted.
    pub(super) fn send_lines(&mut self, status: Option<StatusCode>) {
        let Some(rare) = self.rare.as_mut().filter(|rare| !rare.lines.is_empty()) else { return };
        let lines = std::mem::take(&mut rare.lines);
        let is_limited = self.route().is_some_and(|route| !route.limits.is_empty());
        let is_undecided = self.outcome == RequestOutcome::Undecided || is_limited && !self.is_decided;
        if is_undecided || self.reason == Some("banned") {
            return;
        }
        // A replay lets the request wait again.
        let waited = self.wait.filter(|_| self.found.is_some_and(|found| found.compiled.waits.is_some()));
        let time = match self.at {
            Some(at) => at.as_millis().saturating_sub(millis(waited.unwrap_or_default())),
            None => wall_time().as_millis().saturating_sub(millis(self.stopwatch.elapsed())),
        };
        lines.into_iter().for_each(|line| line.send(time, self.outcome.as_str(), status.map(|status| status.as_u16())));
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
