//! Resources of Kubernetes: `IngressRoute` and `Middleware`.

use super::nodes::{entry, map, text};
use crate::tree::{Entry, Node, Tree};

/// Returns the documents of a resource. Other kinds have none.
pub(super) fn convert(resource: &Node) -> Vec<Node> {
    let Some(spec) = resource.get("spec") else { return Vec::new() };
    let name = resource.at(&["metadata", "name"]).and_then(Node::text).unwrap_or("unnamed");
    let namespace = resource.at(&["metadata", "namespace"]).and_then(Node::text).unwrap_or("default");
    let http = match resource.get("kind").and_then(Node::text) {
        Some("Middleware") => {
            let item = entry(qualified(namespace, name), spec.clone());
            vec![entry("middlewares", map(spec.line, vec![item]))]
        }
        Some("IngressRoute") => routes(spec, namespace, name),
        _ => return Vec::new(),
    };
    vec![map(resource.line, vec![entry("http", map(spec.line, http))])]
}

/// Returns the name of a resource with its namespace.
fn qualified(namespace: &str, name: &str) -> String {
    format!("{namespace}-{name}")
}

/// Returns the routers and the services of an `IngressRoute`.
fn routes(spec: &Node, namespace: &str, name: &str) -> Vec<Entry> {
    let (mut routers, mut services) = (Vec::new(), Vec::new());
    for (number, route) in (1..).zip(spec.get("routes").map_or(&[][..], Node::items)) {
        let key = format!("{namespace}-{name}-{number}");
        let mut router = Vec::new();
        for found in route.entries() {
            match found.key.as_str() {
                "match" => router.push(Entry { key: "rule".to_owned(), ..found.clone() }),
                "kind" => {}
                "middlewares" => router.push(Entry { value: names(&found.value, namespace), ..found.clone() }),
                "services" => services.push(entry(key.as_str(), balancer(&found.value, namespace))),
                _ => router.push(found.clone()),
            }
        }
        router.push(entry("service", text(route.line, key.as_str())));
        router
            .extend(spec.entries().iter().filter(|entry| matches!(entry.key.as_str(), "entryPoints" | "tls")).cloned());
        routers.push(entry(key, map(route.line, router)));
    }
    vec![entry("routers", map(spec.line, routers)), entry("services", map(spec.line, services))]
}

/// Returns the names of middlewares, with their namespaces.
fn names(list: &Node, namespace: &str) -> Node {
    let name = |item: &Node| {
        let own = item.get("namespace").and_then(Node::text).unwrap_or(namespace);
        Some(text(item.line, qualified(own, item.get("name")?.text()?)))
    };
    Node { line: list.line, value: Tree::List(list.items().iter().filter_map(name).collect()) }
}

/// Returns a load balancer with the servers of Kubernetes services.
fn balancer(list: &Node, namespace: &str) -> Node {
    let server = |item: &Node| {
        let of = |key: &str| item.get(key).and_then(Node::text);
        let (name, own) = (of("name")?, of("namespace").unwrap_or(namespace));
        let (scheme, port) = (of("scheme").unwrap_or("http"), of("port").map(|port| format!(":{port}")));
        // Ports can have names, which the service resolves.
        let port = port.filter(|port| port[1..].bytes().all(|byte| byte.is_ascii_digit()));
        let url = format!("{scheme}://{name}.{own}.svc{}", port.unwrap_or_default());
        let mut entries = vec![entry("url", text(item.line, url))];
        entries.extend(item.get("weight").map(|weight| entry("weight", weight.clone())));
        Some(map(item.line, entries))
    };
    let servers = Node { line: list.line, value: Tree::List(list.items().iter().filter_map(server).collect()) };
    map(list.line, vec![entry("loadBalancer", map(list.line, vec![entry("servers", servers)]))])
}
