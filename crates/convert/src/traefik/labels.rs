//! Labels of containers: `traefik.http.routers.NAME.rule=...` in a file of Docker Compose.

use super::nodes::{entry, map, text};
use crate::fields::Spelling;
use crate::tree::{Entry, Node, Tree};

/// The prefix of the labels that are read.
const PREFIX: &str = "traefik.http.";

/// The most labels of a container.
const MAX_LABELS: usize = 2_000;

/// The most parts of the name of a label.
const MAX_PARTS: usize = 12;

/// Returns a document for each container with labels.
pub(super) fn convert(compose: &Node) -> Vec<Node> {
    let services = compose.get("services").map_or(&[][..], Node::entries);
    services.iter().filter_map(document).collect()
}

fn document(service: &Entry) -> Option<Node> {
    let mut labels = Vec::new();
    for node in [service.value.get("labels"), service.value.at(&["deploy", "labels"])].into_iter().flatten() {
        let pairs =
            node.entries().iter().filter_map(|entry| Some((entry.line, entry.key.as_str(), entry.value.text()?)));
        let lines = node.items().iter().filter_map(|item| {
            let (key, value) = item.text()?.split_once('=')?;
            Some((item.line, key, value))
        });
        labels.extend(pairs.chain(lines));
    }
    let is_off = labels.iter().any(|(_, key, value)| key.eq_ignore_ascii_case("traefik.enable") && *value == "false");
    let mut http = map(service.line, Vec::new());
    for (line, key, value) in labels.iter().filter(|_| !is_off).take(MAX_LABELS) {
        let Some(name) = key.get(..PREFIX.len()).filter(|prefix| prefix.eq_ignore_ascii_case(PREFIX)) else { continue };
        let parts: Vec<_> = key[name.len()..].split('.').collect();
        if parts.len() <= MAX_PARTS && parts.iter().all(|part| !part.is_empty()) {
            insert(&mut http, &parts, text(*line, *value));
        }
    }
    if http.entries().is_empty() {
        return None;
    }
    add_servers(&mut http, service);
    Some(map(service.line, vec![entry("http", http)]))
}

/// Inserts a value at a path of keys.
fn insert(node: &mut Node, parts: &[&str], value: Node) {
    let ([first, rest @ ..], Tree::Map(entries)) = (parts, &mut node.value) else { return };
    let first = first.split_once('[').map_or(*first, |(name, _)| name);
    let line = value.line;
    let position = entries.iter().position(|entry| Spelling::Relaxed.is_equal(&entry.key, first));
    let position = position.unwrap_or_else(|| {
        entries.push(Entry { key: first.to_owned(), line, value: map(line, Vec::new()) });
        entries.len() - 1
    });
    match rest {
        [] => entries[position].value = value,
        rest => insert(&mut entries[position].value, rest, value),
    }
}

/// Gives each service the address of its container, and each router a service.
fn add_servers(http: &mut Node, container: &Entry) {
    let Tree::Map(parts) = &mut http.value else { return };
    if !parts.iter().any(|part| part.key.eq_ignore_ascii_case("services")) {
        let balancer = map(container.line, vec![entry("loadBalancer", map(container.line, Vec::new()))]);
        parts.push(entry("services", map(container.line, vec![entry(container.key.as_str(), balancer)])));
    }
    let mut names = Vec::new();
    for part in parts.iter_mut().filter(|part| part.key.eq_ignore_ascii_case("services")) {
        let Tree::Map(services) = &mut part.value.value else { continue };
        for service in services {
            names.push(service.key.clone());
            add_server(&mut service.value, container);
        }
    }
    let [name] = names.as_slice() else { return };
    for part in parts.iter_mut().filter(|part| part.key.eq_ignore_ascii_case("routers")) {
        let Tree::Map(routers) = &mut part.value.value else { continue };
        for router in routers {
            let Tree::Map(entries) = &mut router.value.value else { continue };
            if !entries.iter().any(|entry| entry.key.eq_ignore_ascii_case("service")) {
                entries.push(entry("service", text(router.line, name.as_str())));
            }
        }
    }
}

/// Replaces `server: { port, scheme }` by the address of the container.
fn add_server(service: &mut Node, container: &Entry) {
    let Tree::Map(kinds) = &mut service.value else { return };
    for kind in kinds.iter_mut().filter(|kind| kind.key.eq_ignore_ascii_case("loadBalancer")) {
        let Tree::Map(settings) = &mut kind.value.value else { continue };
        let server = settings.iter().find(|setting| setting.key.eq_ignore_ascii_case("server"));
        let of_server = |key: &str| server.and_then(|server| server.value.get(key)).and_then(Node::text);
        let (scheme, port) = (of_server("scheme").unwrap_or("http"), of_server("port"));
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        let line = server.map_or(container.line, |server| server.line);
        let url = entry("url", text(line, format!("{scheme}://{}{port}", container.key)));
        settings.retain(|setting| !setting.key.eq_ignore_ascii_case("server"));
        let servers = Node { line, value: Tree::List(vec![map(line, vec![url])]) };
        settings.push(entry("servers", servers));
    }
}
