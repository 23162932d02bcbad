//! The durations of all counted requests, as JSON.

use std::time::Duration;

use super::connection::Connection;

pub(super) struct Times(Vec<Duration>);

impl Times {
    pub(super) fn new(connections: impl IntoIterator<Item = Connection>) -> Self {
        let mut all: Vec<_> = connections.into_iter().flat_map(Connection::into_times).collect();
        all.sort_unstable();
        Self(all)
    }

    /// Returns the number of requests and the quantiles of their durations.
    pub(super) fn to_json(&self) -> String {
        let [p50, p99, most] = [500, 990, 1_000].map(|thousandths| self.quantile(thousandths));
        format!("{{\"count\":{},\"p50\":{p50},\"p99\":{p99},\"max\":{most}}}", self.0.len())
    }

    /// Returns a quantile in microseconds, with one decimal.
    fn quantile(&self, thousandths: usize) -> String {
        let index = (self.0.len() * thousandths).div_ceil(1_000).saturating_sub(1);
        let nanos = self.0.get(index).copied().unwrap_or_default().as_nanos();
        format!("{}.{}", nanos / 1_000, nanos / 100 % 10)
    }
}
