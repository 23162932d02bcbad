//! The progress bar of commands that read logs.

use std::fmt::Write;
use std::fs::Metadata;
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressState, ProgressStyle};

use tidegate_replay::Progress;

/// A bar with the bytes read, the lines per second and the time left. Dropping it removes the bar.
#[derive(Debug)]
struct LogProgress {
    bar: ProgressBar,
    lines: Arc<AtomicU64>,
}

/// Returns a progress bar for these logs, if standard error is a terminal. The calling thread draws it, because the
/// command holds the lock of standard error.
pub(super) fn for_logs(logs: &[PathBuf]) -> Option<Box<dyn Progress>> {
    if !stderr().is_terminal() {
        return None;
    }
    let size = |log: &PathBuf| log.metadata().ok().filter(Metadata::is_file).map(|file| file.len());
    let total = logs.iter().map(size).sum::<Option<u64>>();
    // The length of a pipe is unknown.
    let template = match total {
        Some(_) => "{bar:30} {bytes} of {total_bytes}, {rate} lines/s, {eta} left",
        None => "{spinner} {bytes}, {rate} lines/s",
    };
    let lines = Arc::<AtomicU64>::default();
    let decided = Arc::clone(&lines);
    #[expect(clippy::cast_precision_loss, reason = "a rate in thousands")]
    let rate = move |state: &ProgressState, out: &mut dyn Write| {
        let lines = decided.load(Ordering::Relaxed) as f64;
        _ = write!(out, "{:.0}k", lines / 1_000.0 / state.elapsed().as_secs_f64().max(0.001));
    };
    let style = ProgressStyle::with_template(template).ok()?.with_key("rate", rate);
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    Some(Box::new(LogProgress { bar: bar.with_style(style).with_finish(ProgressFinish::AndClear), lines }))
}

impl Progress for LogProgress {
    fn update(&self, bytes: u64, lines: u64) {
        // `suggest` reads the logs twice.
        if bytes < self.bar.position() {
            self.bar.reset();
        }
        self.lines.store(lines, Ordering::Relaxed);
        self.bar.set_position(bytes);
    }
}
