//! Checks `metrics`.

use std::time::Duration;

use crate::check::Checked;
use crate::file::File;
use crate::problem::Problems;

/// Each series of a histogram has one more bucket than this, so that a page of metrics stays small.
const MAX_BUCKETS: usize = 30;

/// Returns the upper bounds of histograms of durations; empty for the default.
pub(crate) fn buckets(file: &File, problems: &mut Problems) -> Checked<Vec<Duration>> {
    let Some(metrics) = file.metrics.optional(problems)? else { return Ok(Vec::new()) };
    let mut bounds: Vec<Duration> = Vec::new();
    for raw in metrics.buckets.items() {
        let bound = raw.required(problems)?.duration();
        if bounds.last().is_some_and(|last| *last >= bound) {
            let (message, help) = ("`buckets` must be in ascending order", "sort the bounds, and write each once");
            return Err(raw.report(message, help, problems));
        }
        bounds.push(bound);
    }
    if bounds.len() > MAX_BUCKETS {
        let message = format!("`buckets` has {} bounds, and may have {MAX_BUCKETS}", bounds.len());
        return Err(metrics.buckets.report(message, "leave some out: Prometheus interpolates between them", problems));
    }
    Ok(bounds)
}
