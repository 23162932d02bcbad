//! The entities of a configuration, with their references to each other.

use std::collections::HashMap;

use crate::fields::{Fields, Spelling};
use crate::report::{Place, Report};
use crate::sources::Text;
use crate::tree::{Entry, Node};

/// Entries of entities and of the file that have nothing to do with the rule file.
const UNRELATED: [&str; 16] = [
    "_comment",
    "_ignore",
    "_format_version",
    "_transform",
    "_info",
    "_konnect",
    "_workspace",
    "_plugin_configs",
    "id",
    "tags",
    "created_at",
    "updated_at",
    "ws_id",
    "instance_name",
    "custom_id",
    "vaults",
];

/// The entities of all files.
#[derive(Debug, Default)]
pub(super) struct Model<'n> {
    pub(super) services: Vec<Entity<'n>>,
    pub(super) routes: Vec<Route<'n>>,
    pub(super) upstreams: Vec<Entity<'n>>,
    pub(super) consumers: Vec<Consumer<'n>>,
    pub(super) plugins: Vec<Plugin<'n>>,
    /// The name and the value of a shared configuration of plugins (`_plugin_configs`).
    configs: HashMap<&'n str, &'n Node>,
    /// The positions of plugins, by name and scope.
    pub(super) scopes: HashMap<(&'n str, Scope<'n>), usize>,
    /// The positions of entities, by kind and by name or id.
    index: HashMap<(Kind, &'n str), usize>,
}

/// An entity: a map in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entity<'n> {
    pub(super) text: &'n Text,
    pub(super) node: &'n Node,
}

/// A route of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route<'n> {
    pub(super) entity: Entity<'n>,
    /// The position of its service.
    pub(super) service: Option<usize>,
}

/// A client with credentials.
#[derive(Clone, Debug)]
pub(super) struct Consumer<'n> {
    pub(super) entity: Entity<'n>,
    /// The name, or the id.
    pub(super) name: &'n str,
    pub(super) groups: Vec<&'n str>,
    /// The `keyauth_credentials`.
    pub(super) keys: Vec<Entity<'n>>,
}

/// A plugin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plugin<'n> {
    pub(super) entity: Entity<'n>,
    pub(super) name: &'n str,
    pub(super) config: Option<&'n Node>,
    pub(super) scope: Scope<'n>,
}

/// The requests that a plugin applies to. Empty: all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Scope<'n> {
    pub(super) service: Option<usize>,
    pub(super) route: Option<usize>,
    pub(super) consumer: Option<usize>,
    pub(super) group: Option<&'n str>,
}

/// The kind of an entity that others refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Service,
    Route,
    Consumer,
}

// === impl Model ===

impl<'n> Model<'n> {
    /// Collects the entities of all documents.
    pub(super) fn of(files: &'n [(Text, Vec<Node>)], report: &mut Report) -> Self {
        let mut model = Self::default();
        let documents = || files.iter().flat_map(|(text, nodes)| nodes.iter().map(move |node| Entity { text, node }));
        // Services first, since routes and plugins can name services of any file.
        documents().for_each(|document| model.add_services(document));
        documents().for_each(|document| model.add_consumers(document));
        model.add_nested_routes();
        documents().for_each(|document| model.add_routes(document, report));
        documents().for_each(|document| model.add_rest(document, report));
        model.add_nested_plugins();
        model
    }

    fn add_services(&mut self, document: Entity<'n>) {
        let configs = document.node.get("_plugin_configs").map_or(&[][..], Node::entries);
        self.configs.extend(configs.iter().map(|entry| (entry.key.as_str(), &entry.value)));
        for service in document.list("services") {
            self.remember(Kind::Service, service, self.services.len());
            self.services.push(service);
        }
        self.upstreams.extend(document.list("upstreams"));
    }

    fn add_consumers(&mut self, document: Entity<'n>) {
        for entity in document.list("consumers") {
            let name = ["username", "custom_id", "id"].into_iter().find_map(|key| entity.node.get(key)?.text());
            let groups = entity.list("groups").filter_map(|group| reference(group.node)).collect();
            let keys = entity.list("keyauth_credentials").collect();
            self.remember(Kind::Consumer, entity, self.consumers.len());
            self.consumers.push(Consumer { entity, name: name.unwrap_or("consumer"), groups, keys });
        }
    }

    fn add_nested_routes(&mut self) {
        for (position, service) in self.services.clone().into_iter().enumerate() {
            service.list("routes").for_each(|entity| self.add_route(entity, Some(position)));
        }
    }

    fn add_routes(&mut self, document: Entity<'n>, report: &mut Report) {
        for entity in document.list("routes") {
            let service = self.find(Kind::Service, "service", entity, report);
            self.add_route(entity, service);
        }
    }

    fn add_route(&mut self, entity: Entity<'n>, service: Option<usize>) {
        self.remember(Kind::Route, entity, self.routes.len());
        self.routes.push(Route { entity, service });
    }

    /// Adds plugins and keys, which refer to other entities.
    fn add_rest(&mut self, document: Entity<'n>, report: &mut Report) {
        for entity in document.list("plugins") {
            let scope = Scope {
                service: self.find(Kind::Service, "service", entity, report),
                route: self.find(Kind::Route, "route", entity, report),
                consumer: self.find(Kind::Consumer, "consumer", entity, report),
                group: entity.node.get("consumer_group").and_then(reference),
            };
            let named = ["service", "route", "consumer"].into_iter().filter(|key| entity.has(key)).count();
            let found = [scope.service, scope.route, scope.consumer].into_iter().flatten().count();
            if named == found {
                self.add_plugin(entity, scope);
            }
        }
        for group in document.list("consumer_groups") {
            let name = group.node.get("name").and_then(Node::text);
            for entity in group.list("plugins") {
                self.add_plugin(entity, Scope { group: name, ..Scope::default() });
            }
            for member in group.list("consumers").filter_map(|member| reference(member.node)) {
                if let (Some(position), Some(name)) = (self.index.get(&(Kind::Consumer, member)), name) {
                    self.consumers[*position].groups.push(name);
                }
            }
        }
        for entity in document.list("keyauth_credentials") {
            if let Some(consumer) = self.find(Kind::Consumer, "consumer", entity, report) {
                self.consumers[consumer].keys.push(entity);
            }
        }
        report_unknown(document, report);
    }

    fn add_nested_plugins(&mut self) {
        let of = |entity: Entity<'n>, scope: Scope<'n>| entity.list("plugins").map(move |plugin| (plugin, scope));
        let mut found = Vec::new();
        for (position, service) in self.services.iter().enumerate() {
            found.extend(of(*service, Scope { service: Some(position), ..Scope::default() }));
        }
        for (position, route) in self.routes.iter().enumerate() {
            found.extend(of(route.entity, Scope { route: Some(position), ..Scope::default() }));
        }
        for (position, consumer) in self.consumers.iter().enumerate() {
            found.extend(of(consumer.entity, Scope { consumer: Some(position), ..Scope::default() }));
        }
        found.into_iter().for_each(|(entity, scope)| self.add_plugin(entity, scope));
    }

    fn add_plugin(&mut self, entity: Entity<'n>, scope: Scope<'n>) {
        let is_enabled = entity.node.get("enabled").and_then(Node::flag).unwrap_or(true);
        let Some(name) = entity.node.get("name").and_then(Node::text).filter(|_| is_enabled) else { return };
        let shared = entity.node.get("_config").and_then(Node::text).and_then(|name| self.configs.get(name).copied());
        let config = entity.node.get("config").filter(|config| !config.is_null()).or(shared);
        self.scopes.entry((name, scope)).or_insert(self.plugins.len());
        self.plugins.push(Plugin { entity, name, config, scope });
    }

    fn remember(&mut self, kind: Kind, entity: Entity<'n>, position: usize) {
        let names = ["name", "username", "id"].into_iter().filter_map(|key| entity.node.get(key)?.text());
        self.index.extend(names.map(|name| ((kind, name), position)));
    }

    /// Returns the position of the entity that this one refers to. Reports a name that no entity has.
    fn find(&self, kind: Kind, key: &str, entity: Entity<'n>, report: &mut Report) -> Option<usize> {
        let name = reference(entity.node.get(key).filter(|node| !node.is_null())?);
        let found = name.and_then(|name| self.index.get(&(kind, name)).copied());
        if found.is_none() {
            let name = name.unwrap_or_default();
            report.lost(&entity.place(), format!("{key}: {name}"), "the files have no entity with this name");
        }
        found
    }
}

/// Returns the name in a reference: a text, or a map with a name.
fn reference(node: &Node) -> Option<&str> {
    node.text().or_else(|| ["name", "username", "id"].into_iter().find_map(|key| node.get(key)?.text()))
}

/// Reports kinds of entities that have no counterpart.
fn report_unknown(document: Entity<'_>, report: &mut Report) {
    const READ: [&str; 7] =
        ["services", "routes", "upstreams", "consumers", "plugins", "consumer_groups", "keyauth_credentials"];
    let mut fields = Fields::of(document.node, Spelling::Exact);
    fields.skip(&READ);
    fields.skip(&UNRELATED);
    for entry in fields.rest().filter(|entry| !entry.value.items().is_empty()) {
        let reason = match entry.key.as_str() {
            "certificates" | "snis" => "write the certificates to files, and name them in `listen`",
            "ca_certificates" => "write them to a file, and name it in `tls` of the upstream",
            _ => "the rule file has no such entities",
        };
        report.lost(&document.text.place(entry.line), &entry.key, reason);
    }
}

// === impl Entity ===

impl<'n> Entity<'n> {
    /// Returns the place of the entity.
    pub(super) fn place(self) -> Place {
        self.text.place(self.node.entries().first().map_or(self.node.line, |entry| entry.line))
    }

    /// Returns the place of an entry.
    pub(super) fn place_of(self, entry: &Entry) -> Place {
        self.text.place(entry.line)
    }

    /// Returns the maps in a list.
    pub(super) fn list(self, key: &str) -> impl Iterator<Item = Self> + use<'n> {
        let items = self.node.get(key).map_or(&[][..], Node::items);
        items.iter().map(move |node| Self { text: self.text, node })
    }

    /// Returns the entries, without those that have nothing to do with the rule file.
    pub(super) fn fields(self) -> Fields<'n> {
        let mut fields = Fields::of(self.node, Spelling::Exact);
        fields.skip(&UNRELATED);
        fields
    }

    fn has(self, key: &str) -> bool {
        self.node.get(key).is_some_and(|node| !node.is_null())
    }
}

// === impl Plugin ===

impl<'n> Plugin<'n> {
    /// Returns the settings of the plugin.
    pub(super) fn settings(&self) -> Fields<'n> {
        const NONE: &Node = &Node { line: 0, value: crate::tree::Tree::List(Vec::new()) };
        Fields::of(self.config.unwrap_or(NONE), Spelling::Exact)
    }

    /// Returns the name of the plugin with a setting, for findings.
    pub(super) fn setting(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }
}
