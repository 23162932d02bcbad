//! Reads the configuration of Traefik: YAML and TOML files, labels in files of Docker Compose, and resources of Kubernetes.
//!
//! `documents` brings all of them into one form, and `model` collects their items. `routers` writes the routes, with the
//! conditions of their `rule`s, the `effects` of their `middlewares` and the upstreams of their `services`.

mod conditions;
mod documents;
mod effects;
mod entry_points;
mod headers;
mod labels;
mod limits;
mod manifests;
mod middlewares;
mod model;
mod nodes;
mod routers;
mod rule;
mod services;
#[cfg(test)]
mod tests;
mod toml;

use self::entry_points::EntryPoints;
use self::model::Model;
use crate::draft::Draft;
use crate::error::ConvertError;
use crate::report::Report;
use crate::sources::Input;

/// Returns `true` if a file has this format.
pub(crate) fn recognizes(_name: &str, text: &str) -> bool {
    let has = |word: &str| text.contains(word);
    has("[http.routers")
        || has("[http.middlewares")
        || has("traefik.http.")
        || has("kind: IngressRoute")
        || has("traefik.io/v1")
        || has("traefik.containo.us/v1")
        || (has("http:") && (has("routers:") || has("middlewares:")))
        || (has("[entryPoints") && has("address"))
        || (has("entryPoints:") && has("address:"))
}

/// Converts the files.
///
/// # Errors
/// Fails if a file cannot be read or parsed, or the rule file would be too large.
pub(crate) fn convert(input: &mut Input<'_>, draft: &mut Draft, report: &mut Report) -> Result<(), ConvertError> {
    let replicas = input.options.replicas;
    let documents = documents::read(input)?;
    let model = Model::of(&documents, report);
    let points = EntryPoints::of(&model, draft, report);
    routers::convert(&model, &points, replicas, draft, report)
}
