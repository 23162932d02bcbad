//! The resources of manifests.

use std::sync::Arc;

use crate::report::Place;
use crate::tree::{Entry, Node};

/// A resource of Kubernetes.
#[derive(Clone, Debug)]
pub(super) struct Resource<'t> {
    file: Arc<str>,
    pub(super) node: &'t Node,
}

/// An Ingress.
#[derive(Clone, Debug)]
pub(super) struct Ingress<'t> {
    pub(super) resource: Resource<'t>,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The rules with their paths.
    pub(super) rules: Vec<Rule<'t>>,
}

/// The paths of a host.
#[derive(Clone, Debug)]
pub(super) struct Rule<'t> {
    /// Empty for all hosts.
    pub(super) host: String,
    pub(super) line: u32,
    pub(super) paths: Vec<PathRule<'t>>,
}

/// A path with its backend.
#[derive(Clone, Debug)]
pub(super) struct PathRule<'t> {
    pub(super) path: String,
    pub(super) kind: PathKind,
    pub(super) line: u32,
    pub(super) backend: Option<&'t Node>,
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    Exact,
    /// Whole segments.
    Prefix,
    /// As a `location` of nginx.
    Specific,
}

/// Returns the resources of documents, those within a `List` included.
pub(super) fn resources(documents: &[(Arc<str>, Node)]) -> Vec<Resource<'_>> {
    let mut resources = Vec::new();
    for (file, node) in documents {
        let items = node.get("items").map(Node::items).unwrap_or_default();
        let is_list = node.get("kind").and_then(Node::text).is_some_and(|kind| kind.ends_with("List"));
        let nodes: Vec<&Node> = if is_list { items.iter().collect() } else { vec![node] };
        resources.extend(nodes.into_iter().map(|node| Resource { file: Arc::clone(file), node }));
    }
    resources
}

// === impl Resource ===

impl<'t> Resource<'t> {
    /// Returns the place of a line.
    pub(super) fn place(&self, line: u32) -> Place {
        Place { file: Arc::clone(&self.file), line }
    }

    /// Returns the text at a path of keys.
    pub(super) fn text(&self, path: &[&str]) -> Option<&'t str> {
        self.node.at(path).and_then(Node::text)
    }

    /// Returns the entries of a map at a path of keys.
    pub(super) fn entries(&self, path: &[&str]) -> &'t [Entry] {
        self.node.at(path).map(Node::entries).unwrap_or_default()
    }
}

// === impl Ingress ===

impl<'t> Ingress<'t> {
    pub(super) fn read(resource: &Resource<'t>) -> Self {
        let text = |path: &[&str], default: &str| resource.text(path).unwrap_or(default).to_owned();
        let rules = resource.node.at(&["spec", "rules"]).map(Node::items).unwrap_or_default();
        Self {
            namespace: text(&["metadata", "namespace"], "default"),
            name: text(&["metadata", "name"], "ingress"),
            rules: rules.iter().map(Rule::read).collect(),
            resource: resource.clone(),
        }
    }

    /// Returns the class, if the Ingress has one.
    pub(super) fn class(&self) -> Option<&'t str> {
        self.resource
            .text(&["spec", "ingressClassName"])
            .or_else(|| self.resource.text(&["metadata", "annotations", "kubernetes.io/ingress.class"]))
    }

    /// Returns the backend of requests that no rule matches.
    pub(super) fn default_backend(&self) -> Option<&'t Node> {
        let spec = self.resource.node.get("spec")?;
        spec.get("defaultBackend").or_else(|| spec.get("backend"))
    }
}

// === impl Rule ===

impl<'t> Rule<'t> {
    fn read(node: &'t Node) -> Self {
        let paths = node.at(&["http", "paths"]).map(Node::items).unwrap_or_default();
        Self {
            host: node.get("host").and_then(Node::text).unwrap_or_default().to_ascii_lowercase(),
            line: node.line,
            paths: paths.iter().map(PathRule::read).collect(),
        }
    }
}

// === impl PathRule ===

impl<'t> PathRule<'t> {
    fn read(node: &'t Node) -> Self {
        let kind = match node.get("pathType").and_then(Node::text) {
            Some("Exact") => PathKind::Exact,
            Some("Prefix") => PathKind::Prefix,
            _ => PathKind::Specific,
        };
        let path = node.get("path").and_then(Node::text).filter(|path| !path.is_empty()).unwrap_or("/");
        Self { path: path.to_owned(), kind, line: node.line, backend: node.get("backend") }
    }
}
