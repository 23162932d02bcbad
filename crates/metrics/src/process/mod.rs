//! Metrics of the process, which all gateways in it share.

pub(crate) mod control_plane;
pub(crate) mod reloads;
pub(crate) mod usage;

use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::info::Info;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};

/// Panics of the process.
static PANICS: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Dropped lines of the access log of the process.
static ACCESS_LINES_DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

pub(super) fn describe(catalog: &mut Catalog<'_>) {
    let build = Description {
        name: "build",
        labels: &[Label::Open("version"), Label::Fixed("profile", &["release", "debug"])],
        unit: "always 1",
        meaning: "The running version, and the profile that it was compiled with",
        action: "several versions: an upgrade has not reached all gateways",
    };
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    catalog.add(Info::new([("version", env!("CARGO_PKG_VERSION")), ("profile", profile)]), build);
    let panics = Description {
        name: "panics",
        labels: &[],
        unit: "panics",
        meaning: "Caught panics: a request answered with 500, or a connection closed",
        action: "a bug: the log has its place in the code; report it",
    };
    catalog.add(PANICS.clone(), panics);
    let dropped = Description {
        name: "access_log_dropped",
        labels: &[],
        unit: "lines",
        meaning: "Lines of the access log that were dropped because of a slow reader or a failed write",
        action: "check the disk or the reader of the log",
    };
    catalog.add(ACCESS_LINES_DROPPED.clone(), dropped);
}

#[doc(hidden)]
impl Metrics {
    /// Counts a panic that was caught.
    pub fn panicked() {
        PANICS.inc();
    }

    pub fn access_lines_dropped(count: u64) {
        ACCESS_LINES_DROPPED.inc_by(count);
    }
}
