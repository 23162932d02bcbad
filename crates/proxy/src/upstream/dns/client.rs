//! A DNS client with the configuration of the system: the hosts file, the search list and the queries.
//!
//! The search list is applied here, and not by the resolver library: the library reports only the error of the last
//! name or record type that it tried. If a server failed for an earlier one, the name would seem not to exist, and
//! the gateway would drop addresses that are in use.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{join, join_all};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup as DnsLookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Hosts, MAX_TTL, TokioResolver, system_conf};
use tokio::time::Instant;

use super::state::{Answer, Family, Host, LookupError, Missing};

const HOSTS_FILE: &str = "/etc/hosts";
const RESOLVER_FILE: &str = "/etc/resolv.conf";

/// How long a query waits for a reply of any server. After that, the resolver repeats the query, and prefers servers
/// that have not timed out. The default of the system, 5 s, would leave no time for that within [`LIMIT`].
const MAX_QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest duration of a lookup with all its queries.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// The maximum number of SRV records that are used.
const MAX_SERVICES: usize = 64;

/// A DNS client, and the configuration of the system.
pub(super) struct Client {
    pub(super) sources: Sources,
    pub(super) resolver: Result<TokioResolver, String>,
    hosts: Hosts,
    search: Vec<Name>,
    /// Names with at least this many dots are looked up as they are, before the search list applies.
    min_dots: usize,
}

/// The sources of a configuration.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sources {
    servers: Arc<[SocketAddr]>,
    hosts_file: Option<(SystemTime, u64)>,
    resolver_file: Option<(SystemTime, u64)>,
}

type Found<T> = Result<(T, Duration), LookupError>;

/// The addresses of a host, and the family whose query failed.
type HostAddresses = (Vec<IpAddr>, Option<Family>);

// === impl Sources ===

impl Sources {
    pub(super) fn new(servers: Arc<[SocketAddr]>) -> Self {
        let version = |path| fs::metadata(path).and_then(|file| Ok((file.modified()?, file.len()))).ok();
        Self { servers, hosts_file: version(HOSTS_FILE), resolver_file: version(RESOLVER_FILE) }
    }
}

// === impl Client ===

impl Client {
    /// Creates a client. Without a readable configuration of the system, only the hosts file and the servers of the
    /// rule file are used.
    pub(super) fn new(sources: Sources) -> Self {
        let system = system_conf::read_system_conf();
        let (system, mut options) = system.unwrap_or_else(|error| {
            if sources.servers.is_empty() {
                tracing::warn!(%error, "cannot read the DNS servers of {RESOLVER_FILE}");
            }
            (ResolverConfig::from_parts(None, Vec::new(), Vec::new()), ResolverOpts::default())
        });
        let (_, search, servers) = system.into_parts();
        let servers = match &*sources.servers {
            [] => servers,
            own => own.iter().map(|address| name_server(*address)).collect(),
        };
        options.timeout = options.timeout.min(MAX_QUERY_TIMEOUT);
        options.use_hosts_file = ResolveHosts::Never;
        let min_dots = options.ndots;
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let resolver = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let resolver = resolver.with_options(options).build().map_err(|error| error.to_string());
        let hosts = Hosts::from_system().unwrap_or_default();
        Self { sources, resolver, hosts, search, min_dots }
    }

    /// Looks up the addresses of a host.
    pub(super) async fn addresses(&self, host: &Name) -> Found<HostAddresses> {
        let in_file = |kind| self.hosts.lookup_static_host(&Query::query(host.clone(), kind));
        let in_file = [in_file(RecordType::AAAA), in_file(RecordType::A)];
        let listed: Vec<_> = in_file.iter().flatten().flat_map(DnsLookup::answers).collect();
        if !listed.is_empty() {
            let addresses = listed.iter().filter_map(|record| record.data.ip_addr()).collect();
            return Ok(((addresses, None), Duration::from_secs(MAX_TTL.into())));
        }
        self.search(host, |name| async move {
            let (ipv4, ipv6) = join(self.records(&name, RecordType::A), self.records(&name, RecordType::AAAA)).await;
            let ((records, failed), ttl) = merged(ipv4, ipv6)?;
            Ok(((records.iter().filter_map(RData::ip_addr).collect(), failed), ttl))
        })
        .await
    }

    /// Looks up the hosts of a service: the targets of the SRV records with the lowest priority.
    pub(super) async fn service(&self, service: &Name) -> Result<Answer, LookupError> {
        let (mut records, ttl) = self.search(service, |name| async move { self.services(&name).await }).await?;
        let priority = records.iter().map(|record| record.priority).min();
        // The target `.` means that the service does not exist (RFC 2782).
        records.retain(|record| Some(record.priority) == priority && !record.target.is_root());
        // Servers rotate their records. Sorting keeps the same records each time if there are too many.
        records.sort_by(|one, other| (&one.target, one.port).cmp(&(&other.target, other.port)));
        records.truncate(MAX_SERVICES);
        let found = join_all(records.iter().map(|record| self.addresses(&record.target))).await;
        let mut answer = Answer { hosts: Vec::new(), ttl, missing: Missing::Nothing };
        let mut error = LookupError::Absent;
        for (record, found) in records.iter().zip(found) {
            match found {
                Ok(((addresses, failed), ttl)) => {
                    answer.hosts.push(Host::new(&addresses, record.port, record.weight.into()));
                    answer.ttl = answer.ttl.min(ttl);
                    if let (Some(family), Missing::Nothing) = (failed, answer.missing) {
                        answer.missing = Missing::Family(family);
                    }
                }
                Err(LookupError::Absent) => {}
                Err(failed) => (answer.missing, error) = (Missing::Host, failed),
            }
        }
        if answer.hosts.is_empty() { Err(error) } else { Ok(answer) }
    }

    async fn services(&self, name: &Name) -> Found<Vec<SRV>> {
        let (records, ttl) = self.records(name, RecordType::SRV).await?;
        let services = records.into_iter().filter_map(|record| match record {
            RData::SRV(service) => Some(service),
            _ => None,
        });
        Ok((services.collect(), ttl))
    }

    /// Looks up a name with each suffix of the search list, until a name has records. Stops at a name whose lookup
    /// fails, because a later name could belong to another service.
    async fn search<T, F: Future<Output = Found<T>>>(&self, name: &Name, look_up: impl Fn(Name) -> F) -> Found<T> {
        for candidate in candidates(name, &self.search, self.min_dots) {
            match look_up(candidate).await {
                Err(LookupError::Absent) => {}
                found_or_failed => return found_or_failed,
            }
        }
        Err(LookupError::Absent)
    }

    /// Queries a server for the records of a name.
    async fn records(&self, name: &Name, kind: RecordType) -> Found<Vec<RData>> {
        let resolver = self.resolver.as_ref().map_err(|error| LookupError::Failed(error.clone()))?;
        let lookup = resolver.lookup(name.clone(), kind).await.map_err(|error| lookup_error(&error))?;
        let ttl = lookup.valid_until().saturating_duration_since(Instant::now().into_std());
        let records: Vec<_> = lookup.answers().iter().filter(|record| record.record_type() == kind).collect();
        match records.is_empty() {
            true => Err(LookupError::Absent),
            false => Ok((records.into_iter().map(|record| record.data.clone()).collect(), ttl)),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("sources", &self.sources).finish_non_exhaustive()
    }
}

// === impl Host ===

impl Host {
    pub(super) fn new(addresses: &[IpAddr], port: u16, weight: u32) -> Self {
        let addresses = addresses.iter().map(|ip| SocketAddr::new(*ip, port));
        let (ipv4, ipv6) = addresses.partition(SocketAddr::is_ipv4);
        Self { ipv4, ipv6, weight }
    }
}

pub(super) fn parse(name: &str) -> Result<Name, LookupError> {
    Name::from_ascii(name).map_err(|error| LookupError::Failed(error.to_string()))
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let with_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(with_port).to_vec();
    NameServerConfig::new(address.ip(), true, connections)
}

/// Returns the complete names to look up, in their order (resolv.conf(5), `search` and `ndots`).
fn candidates(name: &Name, search: &[Name], min_dots: usize) -> Vec<Name> {
    let mut complete = name.clone();
    complete.set_fqdn(true);
    if name.is_fqdn() || name.is_localhost() {
        return vec![complete];
    }
    let with_suffix = search.iter().filter_map(|suffix| {
        let mut candidate = name.clone().append_domain(suffix).ok()?;
        candidate.set_fqdn(true);
        Some(candidate)
    });
    match usize::from(name.num_labels()) > min_dots {
        true => std::iter::once(complete).chain(with_suffix).collect(),
        false => with_suffix.chain([complete.clone()]).collect(),
    }
}

/// Merges the records of both families. Returns the family that failed, if the other family has records.
fn merged(ipv4: Found<Vec<RData>>, ipv6: Found<Vec<RData>>) -> Found<(Vec<RData>, Option<Family>)> {
    let failed = |error, family| (error != LookupError::Absent).then_some(family);
    match (ipv4, ipv6) {
        (Ok((mut records, ttl)), Ok((others, other_ttl))) => {
            records.extend(others);
            Ok(((records, None), ttl.min(other_ttl)))
        }
        (Ok((records, ttl)), Err(error)) => Ok(((records, failed(error, Family::Ipv6)), ttl)),
        (Err(error), Ok((records, ttl))) => Ok(((records, failed(error, Family::Ipv4)), ttl)),
        (Err(LookupError::Absent), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

fn lookup_error(error: &NetError) -> LookupError {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none))
            if matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError) =>
        {
            LookupError::Absent
        }
        error => LookupError::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::rr::rdata::A;

    use super::*;

    #[test]
    fn search_list_follows_the_number_of_dots() {
        let search = ["ns.svc.cluster.local.", "corp."].map(|suffix| Name::from_ascii(suffix).unwrap());
        let names = |name: &str, min_dots| {
            let candidates = candidates(&parse(name).unwrap(), &search, min_dots);
            candidates.iter().map(Name::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names("api", 1), ["api.ns.svc.cluster.local.", "api.corp.", "api."]);
        assert_eq!(
            names("api.internal", 1),
            ["api.internal.", "api.internal.ns.svc.cluster.local.", "api.internal.corp."]
        );
        assert_eq!(names("api.internal", 5)[2], "api.internal.");
        assert_eq!(names("api.internal.", 5), ["api.internal."]);
        assert_eq!(names("localhost", 1), ["localhost."]);
        assert_eq!(names("_http._tcp.api", 1)[0], "_http._tcp.api.");
    }

    #[test]
    fn failed_family_is_an_error_only_without_records() {
        let (records, ttl) = (vec![RData::A(A::new(10, 0, 0, 1))], Duration::from_secs(9));
        let found = || Ok((records.clone(), ttl));
        let missing = |family| Ok(((records.clone(), family), ttl));
        let failure = LookupError::Failed("SERVFAIL".into());
        let (absent, failed) = (|| Err(LookupError::Absent), || Err(failure.clone()));
        assert_eq!(merged(found(), failed()), missing(Some(Family::Ipv6)));
        assert_eq!(merged(failed(), found()), missing(Some(Family::Ipv4)));
        assert_eq!(merged(absent(), found()), missing(None));
        assert_eq!(merged(absent(), failed()), Err(failure.clone()));
        assert_eq!(merged(failed(), absent()), Err(failure.clone()));
        assert_eq!(merged(absent(), absent()), Err(LookupError::Absent));
    }
}
