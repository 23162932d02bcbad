//! Metrics of the resolution of names.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use super::family::Family;
use super::series_users::{SeriesUser, SeriesUsers};

const NAME: Label = Label::Open("name");

/// The names of [`DnsOutcome`], in the order of its variants.
const OUTCOMES: [&str; 3] = ["found", "absent", "failed"];

/// The metrics of all names.
#[derive(Debug, Default)]
pub(super) struct DnsNames {
    users: SeriesUsers,
    resolutions: Family<OutcomeLabels, Counter>,
    addresses: Family<NameLabels, Gauge>,
}

/// The metrics of one name.
#[derive(Clone, Debug)]
pub(crate) struct DnsNameMetrics {
    resolutions: [Counter; OUTCOMES.len()],
    addresses: Gauge,
    _user: Arc<SeriesUser>,
}

/// The outcome of a resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DnsOutcome {
    /// The name has addresses.
    Found,
    /// The name does not exist, or has no addresses.
    Absent,
    /// No server answered, or a server reported an error.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    name: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabels {
    name: String,
}

impl DnsNames {
    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let resolutions = Description {
            name: "dns_resolutions",
            labels: &[NAME, Label::Fixed("outcome", &OUTCOMES)],
            unit: "resolutions",
            meaning: "Resolutions of each upstream name. `absent`: the name has no addresses; `failed`: no DNS server \
                      answered",
            action: "`absent`: check the name; `failed`: check the [DNS servers](upstreams.md#names)",
        };
        catalog.add(self.resolutions.clone(), resolutions);
        let addresses = Description {
            name: "dns_addresses",
            labels: &[NAME],
            unit: "addresses",
            meaning: "Addresses of each upstream name that are in use",
            action: "0: the gateway cannot reach the targets with this name",
        };
        catalog.add(self.addresses.clone(), addresses);
    }
}

impl Metrics {
    /// Returns the metrics of a name in the rule file. They are exported until the handle and its clones are dropped.
    pub(crate) fn dns_name(&self, name: &str) -> DnsNameMetrics {
        let (all, labels) = (&self.dns_names, NameLabels { name: name.to_owned() });
        let outcomes = OUTCOMES.map(|outcome| OutcomeLabels { name: name.to_owned(), outcome });
        let (resolutions, addresses) = (all.resolutions.clone(), all.addresses.clone());
        let removed = (outcomes.clone(), labels.clone());
        let remove = move || {
            removed.0.iter().for_each(|labels| resolutions.remove(labels));
            addresses.remove(&removed.1);
        };
        let _user = all.users.add((name.to_owned(), None), remove);
        let resolutions = outcomes.map(|labels| all.resolutions.get_or_create(&labels));
        DnsNameMetrics { resolutions, addresses: all.addresses.get_or_create(&labels), _user }
    }
}

impl DnsNameMetrics {
    /// Counts a resolution, after which this number of addresses is in use.
    pub(crate) fn resolved(&self, outcome: DnsOutcome, addresses: usize) {
        self.resolutions[outcome as usize].inc();
        self.addresses.set(i64::try_from(addresses).unwrap_or(i64::MAX));
    }
}
