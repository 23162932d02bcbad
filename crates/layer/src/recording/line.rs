//! The line of a request, in the format that `tidegate replay` reads.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use http::header::COOKIE;
use serde::Serialize;

use super::inputs::Inputs;
use super::key::Key;
use tidegate_rules::client::ClientSource;
use tidegate_rules::request::facts::Facts;

/// The members that are known when the request arrives.
#[derive(Debug, Serialize)]
struct Line<'l> {
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    method: Cow<'l, str>,
    path: &'l str,
    #[serde(skip_serializing_if = "str::is_empty")]
    host: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'l str>,
    headers: BTreeMap<&'l str, Vec<String>>,
}

impl Inputs {
    /// Returns the members of the line as a JSON object. Returns `None` if no other value
    /// can replace one of the request.
    pub(super) fn line(
        &self,
        facts: &Facts<'_>,
        client: Option<IpAddr>,
        route: Option<&str>,
        key: &Key,
    ) -> Option<String> {
        let (mut headers, mut query) = (BTreeMap::new(), Vec::new());
        for input in &self.values {
            let parts = input.mask(facts, key)?;
            match &input.source {
                _ if parts.is_empty() => {}
                ClientSource::Header(name) => {
                    headers.insert(name.as_str(), parts.iter().map(|line| kept(line)).collect());
                }
                ClientSource::Cookie(_) => {
                    headers.entry(COOKIE.as_str()).or_insert_with(Vec::new).push(parts.join("; "));
                }
                _ => query.extend(parts),
            }
        }
        // One line, as browsers send it.
        if let Some(cookies) = headers.get_mut(COOKIE.as_str()) {
            *cookies = vec![cookies.join("; ")];
        }
        // Parameters of segments, such as session ids, select no route and identify no client.
        let mut path = facts.path.matched().to_owned();
        if !query.is_empty() {
            path.push('?');
            path.push_str(&query.join("&"));
        }
        let client = client.map(|client| self.networks.mask(client, key));
        let method = facts.method.as_str();
        // Without a letter at the start, a replay takes the line for garbage.
        let is_usual = method.starts_with(|first: char| first.is_ascii_alphabetic());
        let method = if is_usual { Cow::Borrowed(method) } else { Cow::Owned(format!("X{method}")) };
        let line = Line { client, method, path: &path, host: &facts.host, route, headers };
        serde_json::to_string(&line).ok()
    }
}

/// Returns a value that a replay does not take for a missing one.
fn kept(value: &str) -> String {
    if matches!(value, "" | "-" | "REDACTED") { format!(" {value}") } else { value.to_owned() }
}
