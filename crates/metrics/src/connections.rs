//! Metrics of client connections, and of the requests that ended early for other reasons than a rate limit.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use crate::instruments::family::Family;
use crate::instruments::gauge::GaugeGuard;
use crate::instruments::sample::{ConnectionSample, Sample};

const PROTOCOLS: [&str; 2] = ["http1", "http2"];

/// The metrics of all client connections.
#[derive(Debug)]
pub(super) struct Connections {
    open: Gauge,
    by_protocol: Family<ProtocolLabels, Gauge>,
    /// The series of HTTP/1 and of HTTP/2.
    protocols: [Gauge; PROTOCOLS.len()],
    refused: Counter,
    accept_failures: Counter,
    rejected: Family<CauseLabels, Counter>,
    certificates: Family<CertificateLabels, Gauge>,
    crls: Family<CrlLabels, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    certificate: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CrlLabels {
    crl: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabels {
    protocol: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

// === impl Connections ===

impl Default for Connections {
    fn default() -> Self {
        let by_protocol = Family::default();
        let protocols = PROTOCOLS.map(|protocol| by_protocol.get_or_create(&ProtocolLabels { protocol }));
        Self {
            open: Gauge::default(),
            by_protocol,
            protocols,
            refused: Counter::default(),
            accept_failures: Counter::default(),
            rejected: Family::default(),
            certificates: Family::default(),
            crls: Family::default(),
        }
    }
}

impl Connections {
    /// Adds the client connections to a sample.
    pub(super) fn sample(&self, sample: &mut Sample) {
        let [http1, http2] = self.protocols.each_ref().map(Gauge::get);
        let (open, refused) = (self.open.get(), self.refused.get());
        let mut rejected = 0;
        self.rejected.for_each(|_, counter| rejected += counter.get());
        sample.connections = ConnectionSample { open, http1, http2, refused, rejected };
    }

    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let open = Description {
            name: "connections",
            labels: &[],
            unit: "connections",
            meaning: "Open client connections",
            action: "near `max_connections`: raise it, or add a gateway",
        };
        catalog.add(self.open.clone(), open);
        let by_protocol = Description {
            name: "connections_by_protocol",
            labels: &[Label::Fixed("protocol", &PROTOCOLS)],
            unit: "connections",
            meaning: "Open client connections that have sent their first bytes, by protocol. An upgraded \
                      connection counts as `http1`",
            action: "`http2` falls to 0: a load balancer or a certificate change disabled ALPN",
        };
        catalog.add(self.by_protocol.clone(), by_protocol);
        let refused = Description {
            name: "connections_refused",
            labels: &[],
            unit: "connections",
            meaning: "Client connections rejected because a connection limit was reached",
            action: "`tidegate_rejected_total` shows which limit: raise it, or list the load balancer in \
                     `trusted_proxies`",
        };
        catalog.add(self.refused.clone(), refused);
        let accept_failures = Description {
            name: "accept_failures",
            labels: &[],
            unit: "failures",
            meaning: "Failures to accept connections, mostly for lack of file descriptors",
            action: "raise `LimitNOFILE`, or lower `max_connections`",
        };
        catalog.add(self.accept_failures.clone(), accept_failures);
        self.describe_rejected(catalog);
        let certificates = Description {
            name: "certificate_expiry_seconds",
            labels: &[Label::Open("certificate")],
            unit: "seconds since 1970",
            meaning: "Expiry time of a certificate file that the gateway presents to clients or upstreams",
            action: "less than a week in the future: renew the file; the gateway reads it again by itself",
        };
        catalog.add(self.certificates.clone(), certificates);
        let crls = Description {
            name: "crl_expiry_seconds",
            labels: &[Label::Open("crl")],
            unit: "seconds since 1970",
            meaning: "Earliest `nextUpdate` of the revocation lists in a file",
            action: "in the past: fetch new lists; the gateway uses the expired ones in the meantime",
        };
        catalog.add(self.crls.clone(), crls);
    }

    /// Describes the counter of rejected requests, which a layer has, too.
    pub(super) fn describe_rejected(&self, catalog: &mut Catalog<'_>) {
        let rejected = Description {
            name: "rejected",
            labels: &[Label::Open("cause")],
            unit: "connections, streams and requests",
            meaning: "Connections, streams and requests that ended early for other reasons than a rate limit. \
                      `cause` is a `reason` of the access log, or the name of a bound",
            action: "the [reasons](operations.md#reasons) and the [bounds](security.md) explain each cause",
        };
        catalog.add(self.rejected.clone(), rejected);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Counts an open client connection.
    pub fn connection_opened(&self) {
        self.connections.open.inc();
    }

    /// Returns the number of open client connections, then of HTTP/1 and of HTTP/2 connections.
    pub fn open_connections(&self) -> (i64, [i64; PROTOCOLS.len()]) {
        (self.connections.open.get(), std::array::from_fn(|number| self.connections.protocols[number].get()))
    }

    /// Counts a client connection whose protocol is known.
    pub fn protocol_connection(&self, is_http2: bool) -> GaugeGuard {
        GaugeGuard::new(&self.connections.protocols[usize::from(is_http2)])
    }

    /// Removes a closed client connection from the number of open ones.
    pub fn connection_closed(&self) {
        self.connections.open.dec();
    }

    /// Counts a connection that was refused because of a connection limit.
    pub fn connection_refused(&self) {
        self.connections.refused.inc();
    }

    /// Counts a failure to accept connections.
    pub fn accept_failed(&self) {
        self.connections.accept_failures.inc();
    }

    /// Counts a connection, stream or request that ended early. Clients cannot influence the set of values of `cause`.
    pub fn rejected(&self, cause: &'static str) {
        self.connections.rejected.get_or_create(&CauseLabels { cause }).inc();
    }

    /// Sets the expiry of a certificate file, in seconds since the Unix epoch.
    pub fn set_certificate_expiry(&self, file: &str, at: i64) {
        let labels = CertificateLabels { certificate: file.to_owned() };
        self.connections.certificates.get_or_create(&labels).set(at);
    }

    /// Sets the expiry of a file of revocation lists, in seconds since the Unix epoch.
    pub fn set_crl_expiry(&self, file: &str, at: i64) {
        self.connections.crls.get_or_create(&CrlLabels { crl: file.to_owned() }).set(at);
    }

    /// Ends the series of a file of revocation lists.
    pub fn remove_crl_expiry(&self, file: &str) {
        self.connections.crls.remove(&CrlLabels { crl: file.to_owned() });
    }

    /// Ends the series of a certificate file.
    pub fn remove_certificate_expiry(&self, file: &str) {
        self.connections.certificates.remove(&CertificateLabels { certificate: file.to_owned() });
    }
}
