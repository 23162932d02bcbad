//! Reads the declarative configuration of Kong, also as decK writes it.
//!
//! `model` collects the entities of all files. `plugins` finds the plugin of each name that applies to a route, `limiters`,
//! `limits` and `advanced` read the limits of plugins, `keys` the consumers, `services` and `groups` the servers, `matches` the
//! conditions of routes, `guards` their protection, and `routes` writes the routes in the order in which Kong tries them.

mod actions;
mod advanced;
mod groups;
mod guards;
mod keys;
mod limiters;
mod limits;
mod matches;
mod model;
mod plan;
mod plugins;
mod redis;
mod routes;
mod services;
#[cfg(test)]
mod tests;

use self::model::Model;
use crate::draft::Draft;
use crate::error::ConvertError;
use crate::report::Report;
use crate::sources::Input;
use crate::tree;

/// Returns `true` if a file has this format.
pub(crate) fn recognizes(_name: &str, text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start_matches(['{', ' ', '\t', '"', '\'']);
        line.starts_with("_format_version")
    }) || text.starts_with("{") && text.contains("\"_format_version\"")
}

/// Converts the files.
///
/// # Errors
/// Fails if a file cannot be read or parsed, or the rule file would be too large.
pub(crate) fn convert(input: &mut Input<'_>, draft: &mut Draft, report: &mut Report) -> Result<(), ConvertError> {
    let mut files = Vec::new();
    for path in input.paths {
        let text = input.read(path)?;
        let documents = tree::read(&text.name, &text.text)?;
        files.push((text, documents));
    }
    let model = Model::of(&files, report);
    let keys = keys::convert(&model, draft, report);
    let upstreams = services::convert(&model, draft, report);
    let mut plans = limiters::Plans::of(&model, input.options.replicas, draft, report);
    routes::convert(&model, &upstreams, &keys, &mut plans, draft, report)?;
    plans.report_clients(report);
    Ok(())
}
