//! Metrics of the control plane that sends domains to the rate limit service.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::reloads::{OUTCOMES, ReloadOutcome};
use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};

/// The metrics of the control plane. Without one, they have no series.
#[derive(Debug, Default)]
pub(crate) struct ControlPlane {
    updates: Family<UpdateLabels, Counter>,
    last_successful: Family<UrlLabels, Gauge>,
    connected: Family<UrlLabels, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpdateLabels {
    control_plane: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UrlLabels {
    control_plane: String,
}

impl ControlPlane {
    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let updates = Description {
            name: "control_plane_updates",
            labels: &[Label::Open("control_plane"), Label::Fixed("result", &OUTCOMES)],
            unit: "configurations",
            meaning: "Configurations that the control plane has sent",
            action: "`failed`: the log has each error with its resource; the previous domains stay in use",
        };
        catalog.add(self.updates.clone(), updates);
        let successful = Description {
            name: "control_plane_last_update_successful",
            labels: &[Label::Open("control_plane")],
            unit: "0 or 1",
            meaning: "1 if the last configuration of the control plane is in use. Absent until the first one",
            action: "0: correct the rules in the control plane; the previous domains stay in use",
        };
        catalog.add(self.last_successful.clone(), successful);
        let connected = Description {
            name: "control_plane_connected",
            labels: &[Label::Open("control_plane")],
            unit: "0 or 1",
            meaning: "1 if the stream to the control plane is open",
            action: "0: the log has the cause; the last domains stay in use, and changes do not arrive",
        };
        catalog.add(self.connected.clone(), connected);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Begins the series of a control plane, and ends all others. `None` without a control plane.
    pub fn set_control_plane(&self, url: Option<&str>) {
        let ControlPlane { updates, last_successful, connected } = &self.control_plane;
        updates.clear();
        last_successful.clear();
        connected.clear();
        if let Some(url) = url {
            // The series exist from the start, so that the first failure is an increase.
            for result in OUTCOMES {
                drop(updates.get_or_create(&UpdateLabels { control_plane: url.to_owned(), result }));
            }
            self.control_plane_connected(url, false);
        }
    }

    /// Records whether the stream to the control plane is open.
    pub fn control_plane_connected(&self, url: &str, is_connected: bool) {
        let labels = UrlLabels { control_plane: url.to_owned() };
        self.control_plane.connected.get_or_create(&labels).set(i64::from(is_connected));
    }

    /// Counts a configuration of the control plane.
    pub fn control_plane_updated(&self, url: &str, outcome: ReloadOutcome) {
        let labels = UpdateLabels { control_plane: url.to_owned(), result: OUTCOMES[outcome as usize] };
        self.control_plane.updates.get_or_create(&labels).inc();
        let labels = UrlLabels { control_plane: url.to_owned() };
        let is_successful = outcome != ReloadOutcome::Failed;
        self.control_plane.last_successful.get_or_create(&labels).set(i64::from(is_successful));
    }
}
