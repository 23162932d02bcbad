//! When each problem was noticed. Sources know only what is wrong now.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::entry::{GatewayProblem, ProblemKind};
use tidegate_limit::clock::Timestamp;

/// The times of the problems of the last list.
#[derive(Debug, Default)]
pub(super) struct Noticed(Mutex<BTreeMap<(ProblemKind, String), Timestamp>>);

impl Noticed {
    /// Dates all problems: new ones at `now`, the others as before. Forgets problems that have ended.
    pub(super) fn date(&self, problems: &mut [GatewayProblem], now: Timestamp) {
        let mut times = self.0.lock();
        let before = std::mem::take(&mut *times);
        for problem in problems {
            let (kind, subject) = problem.key();
            let key = (kind, subject.to_owned());
            let since = before.get(&key).copied().unwrap_or(now);
            times.insert(key, since);
            problem.set_since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn problem_keeps_its_time_until_it_ends() {
        let (noticed, at) = (Noticed::default(), Timestamp::from_millis);
        let since = |message: &str, now| {
            let mut problems = [GatewayProblem::new(ProblemKind::Target, "api/one", message)];
            noticed.date(&mut problems, at(now));
            json!(problems[0])["since"].clone()
        };
        assert_eq!(since("status 500", 1_000), json!(at(1_000).to_rfc3339()));
        assert_eq!(since("status 503", 2_000), json!(at(1_000).to_rfc3339()));
        noticed.date(&mut [], at(3_000));
        assert_eq!(since("status 500", 4_000), json!(at(4_000).to_rfc3339()));
    }
}
