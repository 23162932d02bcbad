//! Reads the routes of Spring Cloud Gateway: `application.yml` and `application.properties`, with the keys of all versions.
//!
//! `properties` finds keys in their different spellings. `parts` reads predicates and filters in both of their forms,
//! `predicates` and `filters` convert them, `limits` converts `RequestRateLimiter`, and `routes` writes the routes.

mod filters;
mod limits;
mod lines;
mod parts;
mod predicates;
mod properties;
mod redis;
mod routes;
#[cfg(test)]
mod tests;

use self::properties::Properties;
use crate::draft::{Draft, Listen};
use crate::error::ConvertError;
use crate::report::Report;
use crate::sources::Input;
use crate::tree::{self, Entry, Node};

/// The keys under which versions have the settings of the gateway, the newest first.
const PREFIXES: [&str; 4] = [
    "spring.cloud.gateway.server.webflux",
    "spring.cloud.gateway.server.webmvc",
    "spring.cloud.gateway.mvc",
    "spring.cloud.gateway",
];

/// Returns `true` if a file has this format.
pub(crate) fn recognizes(_name: &str, text: &str) -> bool {
    let has = |word: &str| text.contains(word);
    has("spring.cloud.gateway") || has("RequestRateLimiter") || has("predicates:") || has("spring:") && has("gateway:")
}

/// Converts the files.
///
/// # Errors
/// Fails if a file cannot be read or parsed, or the rule file would be too large.
pub(crate) fn convert(input: &mut Input<'_>, draft: &mut Draft, report: &mut Report) -> Result<(), ConvertError> {
    let mut files = Vec::new();
    for path in input.paths {
        let text = input.read(path)?;
        let documents = match lines::is_properties(&text) {
            true => lines::read(&text)?,
            false => tree::read(&text.name, &text.text)?,
        };
        files.push((text, documents));
    }
    let mut documents: Vec<_> =
        files.iter().flat_map(|(text, nodes)| nodes.iter().map(move |root| Properties { text, root })).collect();
    skip_profiles(&mut documents, report);
    for properties in &documents {
        read_server(properties, draft, report);
        redis::read(properties, draft, report);
    }
    routes::convert(&documents, draft, report)
}

/// Leaves out the documents of profiles, if another document has routes.
fn skip_profiles(documents: &mut Vec<Properties<'_>>, report: &mut Report) {
    let has_routes = |properties: &Properties<'_>| {
        PREFIXES.iter().any(|prefix| properties.find(&format!("{prefix}.routes")).is_some())
    };
    let is_profile = |properties: &Properties<'_>| profile(properties).is_some();
    if !documents.iter().any(|properties| has_routes(properties) && !is_profile(properties)) {
        return;
    }
    documents.retain(|properties| {
        let Some(entry) = profile(properties) else { return true };
        if has_routes(properties) {
            let reason = "left out: convert the document of the profile alone";
            report.lost(
                &properties.place(entry),
                format!("profile {}", entry.value.text().unwrap_or_default()),
                reason,
            );
        }
        false
    });
}

/// Returns the entry that names the profile of a document.
fn profile<'n>(properties: &Properties<'n>) -> Option<&'n Entry> {
    let keys = ["spring.config.activate.on-profile", "spring.profiles"];
    keys.into_iter().find_map(|key| properties.find(key)).filter(|entry| entry.value.text().is_some())
}

/// Reads the port.
fn read_server(properties: &Properties<'_>, draft: &mut Draft, report: &mut Report) {
    if let Some(entry) = properties.find("server.port") {
        let (text, _) = entry.value.text().map(properties::resolved).unwrap_or_default();
        match text.parse::<u16>().ok().filter(|port| *port > 0) {
            Some(port) if draft.listen.is_empty() => {
                let place = Some(properties.place(entry));
                draft.listen.push(Listen { address: format!("0.0.0.0:{port}"), place, ..Listen::default() });
                report.same(&properties.place(entry), properties::setting(entry), "`listen`");
            }
            Some(_) => {}
            None => report.lost(&properties.place(entry), properties::setting(entry), "not a port"),
        }
    }
    let enabled = properties.find("server.ssl.enabled").and_then(|entry| entry.value.flag());
    if let Some(entry) = properties.find("server.ssl").filter(|_| enabled != Some(false)) {
        report.lost(&properties.place(entry), "server.ssl", "write the certificate to `tls` of `listen`");
    }
    for prefix in PREFIXES {
        let locator = properties.find(&format!("{prefix}.discovery.locator.enabled"));
        if let Some(entry) = locator.filter(|entry| entry.value.flag() == Some(true)) {
            let reason = "write a route for each service: there is no discovery";
            report.lost(&properties.place(entry), "discovery.locator.enabled: true", reason);
        }
    }
}

/// A value without entries.
const NOTHING: &Node = &Node { line: 0, value: tree::Tree::List(Vec::new()) };
