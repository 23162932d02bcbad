//! The rate limit service: its addresses and its domains.

mod algorithms;
mod answers;
pub(crate) mod control_plane;
mod domains;
mod limit;
mod tree;

use std::sync::Arc;

use self::algorithms::Algorithms;
use self::control_plane::control_plane;
use self::domains::domains;
use crate::check::gateway::{listen, listen_tls};
use crate::descriptors::DescriptorFiles;
use crate::file::{self, File};
use crate::problem::{Checked, Location, Problems};
use crate::sources::referenced_files::ReferencedFiles;
use crate::values::control_plane::SentDomains;
use crate::{ControlPlane, ListenAddress, Service, ServiceListener};
use tidegate_rules::settings::store::BucketNames;

/// The addresses of the service, with their locations.
#[derive(Default)]
pub(super) struct Addresses {
    grpc: Option<(ServiceListener, Location)>,
    http: Option<(ListenAddress, Location)>,
}

impl Addresses {
    /// Returns all addresses, each with its location.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ListenAddress, Location)> {
        let grpc = self.grpc.iter().map(|(listener, location)| (&listener.address, *location));
        grpc.chain(self.http.iter().map(|(address, location)| (address, *location)))
    }
}

/// Converts the addresses of the service.
pub(super) fn addresses(file: &File, files: ReferencedFiles<'_>, problems: &mut Problems) -> Checked<Addresses> {
    let Some(raw) = file.service.optional(problems)? else { return Ok(Addresses::default()) };
    if !raw.grpc.is_present() && !raw.http.is_present() {
        let message = "`service` needs `grpc` or `http`".to_owned();
        return Err(problems.add_missing(file.service.location, "grpc", message, "for example `grpc: 0.0.0.0:8081`"));
    }
    let grpc = grpc(raw, files, problems);
    let http = raw.http.optional(problems).and_then(|http| {
        http.map(|text| Ok((listen::address(text, raw.http.location, problems)?, raw.http.location))).transpose()
    });
    Ok(Addresses { grpc: grpc?, http: http? })
}

fn grpc(
    raw: &file::Service,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<(ServiceListener, Location)>> {
    let Some(entry) = raw.grpc.optional(problems)? else { return Ok(None) };
    let address = entry.address.required(problems);
    let address = address.and_then(|text| listen::address(text, entry.address.location, problems));
    let tls = listen_tls::tls(&entry.tls, files, problems);
    let address = address?;
    listen::reject_tls_of_socket(&entry.tls, &address, problems)?;
    Ok(Some((ServiceListener { address, tls: tls? }, entry.address.location)))
}

/// Converts the service at these addresses. `names` are the names of buckets in the store.
pub(super) fn service(
    file: &File,
    (descriptors, files): (&DescriptorFiles, ReferencedFiles<'_>),
    addresses: Checked<Addresses>,
    names: &BucketNames,
    problems: &mut Problems,
) -> Checked<Option<Service>> {
    let Some(raw) = file.service.optional(problems)? else { return Ok(None) };
    if !raw.descriptors.is_present() && !raw.domains.is_present() {
        let message = "`service` has no domains".to_owned();
        let help = "add `descriptors` with files of envoyproxy/ratelimit or a control plane, or `domains`";
        problems.add_missing(file.service.location, "domains", message, help);
    }
    let control_plane = control_plane(raw, files, problems);
    let files = problems.file_names(descriptors.numbers());
    let algorithms = Algorithms::read(raw, problems);
    let domains = domains((file, raw), descriptors, &algorithms, names, problems);
    let Addresses { grpc, http } = addresses?;
    let (grpc, http) = (grpc.map(|(listener, _)| listener), http.map(|(address, _)| address));
    let (algorithms, own, merges) = (algorithms?, Arc::new(domains?), raw.merge_domains.or_default(problems)?);
    let control_plane = control_plane?.map(|plane| {
        let domains =
            SentDomains { windows: algorithms.windows(), merges, names: names.clone(), own: Arc::clone(&own) };
        ControlPlane { domains, ..plane }
    });
    let is_partial = control_plane.as_ref().is_some_and(|plane| plane.is_required);
    let domains = if is_partial { Arc::new(own.partial()) } else { own };
    Ok(Some(Service { grpc, http, files, control_plane, domains }))
}
