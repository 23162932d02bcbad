//! Metrics of the resolution of names.

use std::slice::from_ref;

use prometheus_client::metrics::gauge::Gauge;

use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};
use crate::instruments::by_name::{ByName, Handle};
use crate::instruments::count::Count;

const NAME: Label = Label::Open("name");

/// The names of [`DnsOutcome`], in the order of its variants.
const OUTCOMES: [&str; 3] = ["found", "absent", "failed"];

/// The metrics of all names.
#[derive(Debug, Default)]
pub(crate) struct DnsNames(ByName<DnsSeries, 1>);

/// The metrics of one name.
#[derive(Clone, Debug)]
pub struct DnsNameMetrics(Handle<DnsSeries, 1>);

#[derive(Debug, Default)]
struct DnsSeries {
    resolutions: [Count; OUTCOMES.len()],
    addresses: Gauge,
}

/// The outcome of a resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsOutcome {
    /// The name has addresses.
    Found,
    /// The name does not exist, or has no addresses.
    Absent,
    /// No server answered, or a server reported an error.
    Failed,
}

impl DnsNames {
    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let resolutions = Description {
            name: "dns_resolutions",
            labels: &[NAME, Label::Fixed("outcome", &OUTCOMES)],
            unit: "resolutions",
            meaning: "Resolutions of each upstream name. `absent`: the name has no addresses; `failed`: no DNS server \
                      answered",
            action: "`absent`: check the name; `failed`: check the [DNS servers](upstreams.md#names)",
        };
        catalog.add(self.0.metric(resolutions.labels, |name| &name.resolutions), resolutions);
        let addresses = Description {
            name: "dns_addresses",
            labels: &[NAME],
            unit: "addresses",
            meaning: "Addresses of each upstream name that are in use",
            action: "0: the gateway cannot reach the targets with this name",
        };
        catalog.add(self.0.metric(addresses.labels, |name| from_ref(&name.addresses)), addresses);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Returns the metrics of a name in the rule file. They are exported until the handle and its clones are dropped.
    pub fn dns_name(&self, name: &str) -> DnsNameMetrics {
        DnsNameMetrics(self.dns_names.0.get_or_create([name.into()], DnsSeries::default))
    }
}

impl DnsNameMetrics {
    /// Counts a resolution, after which this number of addresses is in use.
    pub fn resolved(&self, outcome: DnsOutcome, addresses: usize) {
        self.0.resolutions[outcome as usize].inc();
        self.0.addresses.set(i64::try_from(addresses).unwrap_or(i64::MAX));
    }
}
