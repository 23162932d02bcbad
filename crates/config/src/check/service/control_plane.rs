//! The control plane that sends domains, and the domains that it has sent.

use std::borrow::Cow;

use super::domains::{merged, of_file};
use crate::ControlPlane;
use crate::check::all;
use crate::check::names::duplicates;
use crate::check::upstreams::{authority, upstream_tls};
use crate::descriptors::DomainFile;
use crate::file;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::{Checked, Location, Problems, quote};
use crate::sources::referenced_files::ReferencedFiles;
use crate::values::control_plane::SentDomains;
use tidegate_rules::settings::upstream::Target;
use tidegate_service::Domains;

/// The default of `node`, as of envoyproxy/ratelimit.
const NODE: &str = "default";

/// Converts the keys of a control plane. Returns `None` without one. The settings of its domains are not known yet.
pub(super) fn control_plane(
    raw: &file::Service,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<ControlPlane>> {
    let Some(ValueOrMap::Map(raw)) = raw.descriptors.optional(problems)? else { return Ok(None) };
    let target = target(&raw.xds, problems);
    let tls = target.clone().and_then(|target| upstream_tls::tls(&raw.tls, &[target], files, problems));
    let node = raw.node.optional(problems).map(|node| node.map_or(NODE, String::as_str).to_owned());
    let is_required = raw.required.optional(problems).map(|required| required.copied().unwrap_or(true));
    let (target, node, is_required, tls) = (target?, node?, is_required?, tls?);
    Ok(Some(ControlPlane { target, node, is_required, tls, domains: SentDomains::default() }))
}

fn target(raw: &Located<String>, problems: &mut Problems) -> Checked<Target> {
    let url = raw.required(problems)?.as_str();
    let fault = match url.split_once("://").map(|(scheme, rest)| (scheme, authority(rest))) {
        Some(("http", Ok(authority))) => return Ok(Target::Http(authority)),
        Some(("https", Ok(authority))) => return Ok(Target::Https(authority)),
        Some(("http" | "https", Err(fault))) => fault,
        _ => "is not the URL of a control plane",
    };
    let help = "a control plane is `http://host:port` or `https://host:port`";
    Err(raw.report(format!("{} {fault}", quote(url)), help, problems))
}

/// Converts the domains that the control plane has sent. Returns them with the domains of the rule file.
pub(crate) fn sent_domains(settings: &SentDomains, sent: &[DomainFile], problems: &mut Problems) -> Checked<Domains> {
    let SentDomains { windows, merges, names, own } = settings;
    let sent = merged(sent, *merges, problems);
    duplicates(sent.iter().map(|domain| (domain.name.as_str(), domain.location)), "domain", problems);
    for domain in sent.iter().filter(|domain| own.get(&domain.name).is_some()) {
        let message = format!("domain {} is already in the rule file", quote(&domain.name));
        problems.add(domain.location, message, "give each domain its own name");
    }
    let convert = |domain: &Cow<'_, DomainFile>| of_file(domain, Ok(windows.of(&domain.name)), names, problems);
    let converted = all(sent.iter().map(convert))?;
    // Duplicates were reported.
    own.with(converted).map_err(|_| problems.reported(Location::START))
}
