//! The keys of an entry of `include`, and the defaults and the team of each included file.

use std::rc::Rc;
use std::sync::Arc;

use super::defaults::{DEFAULTS, Inherited, inherit_into_route};
use super::keys::Kind::{self, Flag, Map, Name, OneOrMany, Text, Word};
use super::limits::Route;
use super::located::Located;
use super::shape::shape;
use crate::problem::{Location, Problems};
use crate::values::team::{Team, UpstreamUse};
use crate::yaml::node::Node;

/// The most values of `defaults` that all routes inherit together.
const MAX_INHERITED: usize = 1_000_000;

shape! {
    /// The file of a team. The names of its routes and upstreams start with the name of the team: `login` of the team `shop` is
    /// `shop.login` in metrics, logs and commands. So teams need not agree on names. If the file has errors, the gateway keeps its
    /// last valid version and applies all other changes ([operations.md](operations.md#reload)); a layer changes nothing. A
    /// plain path in `include` belongs to no team.
    INCLUDE: Include = "an entry of `include`" {
        /// The path of the file. A `*` in the file name matches any characters: then each file belongs to its own team.
        path: String = Text, Required("path: teams/shop.yaml");
        /// The name of the team, without `.`. By default, the name of the file without its extension. Not with a `*` in
        /// `path`.
        name: String = Name, Optional;
        /// The only hosts that the routes may match, as in `match`. A route without `host` matches all of them. Teams with
        /// equal hosts are an error, and so is `*.example.com` before `a.example.com`: the first route would match.
        hosts: Vec<Located<String>> = OneOrMany(&Text), Optional;
        /// The upstreams that the routes may use.
        upstreams: UpstreamUse = Word(UpstreamUse::WORDS), Default("any");
        /// Whether each route needs at least one limit without `shadow`.
        require_limits: bool = Flag, Default("false");
        /// Values of the file's routes that neither the routes nor the file set.
        defaults: Box<Route> = Map(&DEFAULTS), Optional;
    }
}

/// The kind of the entries.
pub(crate) static INCLUDE_KIND: Kind = Kind::Short("path", &INCLUDE);

/// The defaults and the team of each file.
#[derive(Default)]
pub(crate) struct RouteSources {
    /// By the number of the file.
    files: Vec<RouteSource>,
    /// The teams, in the order of their files.
    pub(crate) teams: Vec<Arc<Team>>,
}

/// The defaults and the team of a file.
#[derive(Clone, Default)]
pub(crate) struct RouteSource {
    /// All `defaults` that apply.
    pub(crate) defaults: Option<Rc<Node>>,
    pub(crate) team: Option<Arc<Team>>,
}

impl RouteSources {
    /// Sets the defaults and the team of the file with this number.
    pub(crate) fn set(&mut self, file: u16, source: RouteSource) {
        let index = usize::from(file);
        if self.files.len() <= index {
            self.files.resize_with(index + 1, RouteSource::default);
        }
        self.files[index] = source;
    }

    /// Returns the team of the file with this number.
    pub(crate) fn team(&self, file: u16) -> Option<&Arc<Team>> {
        self.files.get(usize::from(file))?.team.as_ref()
    }

    /// Returns the `defaults` of all files.
    pub(crate) fn defaults(&self) -> impl Iterator<Item = &Node> {
        self.files.iter().filter_map(|source| source.defaults.as_deref())
    }

    /// Returns `true` if `defaults` of a file have limits.
    pub(crate) fn have_default_limits(&self) -> bool {
        let mut all = self.files.iter().filter_map(|source| source.defaults.as_ref());
        all.any(|defaults| defaults.get("limits").is_some())
    }

    /// Adds the defaults that a route inherits. Returns the inherited values.
    pub(crate) fn inherit(&self, route: &mut Node) -> Vec<Inherited> {
        let source = self.files.get(usize::from(route.location.file));
        let defaults = source.and_then(|source| source.defaults.as_ref());
        defaults.map_or_else(Vec::new, |defaults| inherit_into_route(defaults, route))
    }

    /// Reports defaults that these routes inherit too often. Then no route inherits a value.
    pub(crate) fn bound(&mut self, routes: &[Node], problems: &mut Problems) {
        let sizes: Vec<_> = self.files.iter().map(RouteSource::inherited).collect();
        let size = |route: &Node| sizes.get(usize::from(route.location.file)).copied().flatten();
        let mut inherited = 0;
        for (values, location) in routes.iter().filter_map(size) {
            inherited += values;
            if inherited > MAX_INHERITED {
                let message = format!("all routes together inherit more than {MAX_INHERITED} values of `defaults`");
                problems.add(location, message, "define long limits once, under the top-level `limits`");
                self.files.iter_mut().for_each(|source| source.defaults = None);
                return;
            }
        }
    }
}

impl RouteSource {
    /// Returns the number of values that a route can inherit, and their location.
    fn inherited(&self) -> Option<(usize, Location)> {
        self.defaults.as_ref().map(|defaults| (defaults.measure().values, defaults.location))
    }
}
