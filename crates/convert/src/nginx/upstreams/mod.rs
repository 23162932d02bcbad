//! Upstreams: the servers of `upstream` and `proxy_pass`, with the timeouts of the blocks that use them.

pub(crate) mod forward;
mod group;
pub(crate) mod settings;
mod url;

use std::collections::HashMap;

use super::Conversion;
use super::scope::Scope;
use super::syntax::Directive;
use crate::draft::value::Map;
use crate::draft::{Target, Upstream};
use url::Url;

/// The `upstream` blocks, and the upstreams that the conversion has made.
#[derive(Debug, Default)]
pub(super) struct Upstreams<'c> {
    groups: HashMap<&'c str, &'c Directive>,
    /// The names of upstreams, by their servers and settings.
    made: Vec<(Servers, Map, String)>,
}

/// The scheme and the servers of an upstream: an authority, or the name of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Servers {
    is_tls: bool,
    authority: String,
}

// === impl Upstreams ===

impl<'c> Upstreams<'c> {
    /// Reads the `upstream` blocks of `http`.
    pub(super) fn read(http: &Scope<'c>) -> Self {
        let name = |directive: &&'c Directive| Some((directive.arg(0)?, *directive));
        Self { groups: http.own("upstream").iter().filter_map(name).collect(), made: Vec::new() }
    }
}

// === impl Conversion ===

impl<'c> Conversion<'c, '_> {
    /// Returns the name of the upstream for the servers of a URL with the settings of a block. Returns the reason if it has
    /// no servers.
    fn upstream(&mut self, url: &Url, scope: &Scope<'c>) -> Result<String, String> {
        let group = self.upstreams.groups.get(url.authority.as_str()).copied();
        let (targets, mut more, place) = match group {
            Some(group) => {
                let (targets, more) = self.group(group, url.is_tls)?;
                (targets, more, Some(group.place.clone()))
            }
            None => (vec![Target { url: url.target()?, weight: 1 }], Map::default(), None),
        };
        more.extend(self.upstream_settings(scope, url));
        let servers = Servers { is_tls: url.is_tls, authority: url.authority.clone() };
        let known = self.upstreams.made.iter().find(|(other, settings, _)| *other == servers && *settings == more);
        if let Some((_, _, name)) = known {
            return Ok(name.clone());
        }
        let name = self.draft.upstream_name(url.authority.trim_start_matches("unix:/"));
        self.upstreams.made.push((servers, more.clone(), name.clone()));
        self.draft.upstreams.push(Upstream { name: name.clone(), targets, more, place, ..Upstream::default() });
        Ok(name)
    }
}
