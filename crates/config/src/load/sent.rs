//! Domains that a control plane sends. They pass the same checks as files with descriptors.

use std::sync::Arc;

use super::built::{Part, Tree};
use crate::check::service::control_plane::sent_domains;
use crate::descriptors::{DomainFile, read_domain};
use crate::problem::{Checked, Reported};
use crate::{Problem, Problems, Service};
use tidegate_rules::limits::rule::LimitLocation;
use tidegate_service::Rule;

/// A service with the domains that its control plane has sent.
#[derive(Clone, Debug)]
pub struct WithSentDomains {
    /// The service.
    pub service: Service,
    /// Valid values that are probably not intended.
    pub warnings: Vec<Problem>,
}

impl Service {
    /// Returns the service with these domains in addition to the domains of the rule file. Replaces domains that its control
    /// plane has sent before. A resource has the keys of a file of envoyproxy/ratelimit.
    ///
    /// # Errors
    /// All errors of all resources. Each names its resource, and its descriptors if they are [`Part`]s.
    pub fn with_sent_domains(&self, resources: &[Part]) -> Result<WithSentDomains, Problems> {
        let Some(plane) = &self.control_plane else {
            return Ok(WithSentDomains { service: self.clone(), warnings: Vec::new() });
        };
        let (mut tree, mut sent, mut is_complete) = (Tree::default(), Vec::with_capacity(resources.len()), true);
        for (position, resource) in resources.iter().enumerate() {
            match read(resource, position + 1, &mut tree) {
                Ok(domain) => sent.push(domain),
                Err(Reported { .. }) => is_complete = false,
            }
        }
        let mut problems = tree.problems;
        match sent_domains(&plane.domains, &sent, &mut problems) {
            Ok(domains) if is_complete && problems.is_empty() => {
                let service = Self { domains: Arc::new(domains), ..self.clone() };
                Ok(WithSentDomains { service, warnings: problems.take_warnings() })
            }
            Ok(_) | Err(Reported { .. }) => Err(problems),
        }
    }
}

fn read(resource: &Part, position: usize, tree: &mut Tree) -> Checked<DomainFile> {
    let root = tree.part(resource, "", position);
    let mut domain = read_domain(&root, "a resource", &mut tree.problems)?;
    locate(&mut domain.rules, &format!("xds:{}", resource.name).into());
    Ok(domain)
}

/// Sets the location of all limits, for operators. A resource has no lines.
fn locate(rules: &mut [Rule], file: &Arc<str>) {
    for Rule { limit, rules, .. } in rules {
        if let Some(limit) = limit {
            limit.location = LimitLocation { file: Arc::clone(file), line: 0 };
        }
        locate(rules, file);
    }
}
