//! Reads configurations of nginx.
//!
//! `syntax` parses files, `scope` finds the directives that a block has or inherits, and `values` evaluates variables.
//! `servers` and `locations` write the routes, with `limits`, `upstreams`, `headers` and `redirect`. Each directive gets one
//! finding in `notes`.

mod action;
pub(crate) mod client;
mod conditions;
mod headers;
pub(crate) mod limits;
mod locations;
mod notes;
pub(crate) mod paths;
pub(crate) mod reach;
pub(crate) mod redirect;
mod scope;
mod servers;
mod settings;
mod syntax;
pub(crate) mod upstreams;
pub(crate) mod values;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use self::limits::Zones;
use self::notes::Notes;
use self::reach::Reach;
use self::scope::Scope;
use self::syntax::{Directive, parse};
use self::upstreams::Upstreams;
use self::values::variables::Variables;
use crate::draft::Draft;
use crate::error::ConvertError;
use crate::report::Report;
use crate::sources::Input;

/// The words with which lines of a configuration start.
const WORDS: [&str; 8] =
    ["http", "server", "location", "upstream", "proxy_pass", "limit_req_zone", "limit_req", "server_name"];

/// Files that nginx installs and that have no settings of the rule file.
const INSTALLED: [&str; 8] =
    ["mime.types", "fastcgi_params", "fastcgi.conf", "uwsgi_params", "scgi_params", "koi-utf", "koi-win", "win-utf"];

/// Directives that a block may have several times and that inner blocks inherit.
const INHERITED: [&str; 8] = [
    "add_header",
    "grpc_set_header",
    "limit_conn",
    "limit_req",
    "proxy_hide_header",
    "proxy_set_header",
    "ssl_certificate",
    "ssl_certificate_key",
];

/// The most directives of one of these names in a block.
const MAX_REPEATED: usize = 200;

/// A conversion of the directives of `http`.
struct Conversion<'c, 'd> {
    draft: &'d mut Draft,
    notes: Notes,
    variables: Variables,
    zones: Zones<'c>,
    upstreams: Upstreams<'c>,
    reach: Reach,
    replicas: NonZeroU32,
    /// The folder at which relative paths of files start.
    folder: Option<PathBuf>,
}

/// Returns `true` if a file has this format: a line starts with a common directive and ends like one.
pub(crate) fn recognizes(_name: &str, text: &str) -> bool {
    let is_directive = |line: &str| {
        let line = line.trim();
        let word = line.split([' ', '\t', '{']).next().unwrap_or_default();
        WORDS.contains(&word) && line.len() > word.len() && !line[word.len()..].trim_start().starts_with([':', '='])
    };
    text.contains('{') && text.contains(';') && text.lines().any(is_directive)
}

/// Converts the files.
///
/// # Errors
/// Fails if a file cannot be read or parsed.
pub(crate) fn convert(input: &mut Input<'_>, draft: &mut Draft, report: &mut Report) -> Result<(), ConvertError> {
    let (mut directives, mut missing) = (Vec::new(), Vec::new());
    for path in input.paths {
        let parsed = parse(input, path)?;
        directives.extend(parsed.directives);
        missing.extend(parsed.missing);
    }
    check_repeated(&directives)?;
    let http = contents(&directives);
    let http = http.as_deref().unwrap_or(&directives);
    let scope = Scope::new(None, http);
    let mut conversion = Conversion {
        draft,
        notes: Notes::default(),
        variables: Variables::read(http),
        zones: Zones::read(&scope),
        upstreams: Upstreams::read(&scope),
        reach: Reach::default(),
        replicas: input.options.replicas,
        folder: input.options.folder.clone(),
    };
    conversion.note_missing(&missing);
    conversion.clients(&scope);
    conversion.field_names(&scope);
    conversion.servers(&scope)?;
    conversion.note_counting();
    conversion.note_variables(http);
    let Conversion { mut notes, .. } = conversion;
    notes.add_others(&directives, "");
    notes.finish(report);
    Ok(())
}

/// Checks that no block repeats an inherited directive too often: each location gets all of them.
///
/// # Errors
/// Fails at the first directive that exceeds the bound.
fn check_repeated(directives: &[Directive]) -> Result<(), ConvertError> {
    let mut numbers = [0_usize; INHERITED.len()];
    for directive in directives {
        if let Some(index) = INHERITED.iter().position(|name| *name == directive.name()) {
            numbers[index] += 1;
            if numbers[index] > MAX_REPEATED {
                let message = format!("a block has more than {MAX_REPEATED} `{}`", directive.name());
                return Err(ConvertError::syntax(&directive.place, message));
            }
        }
        check_repeated(directive.inner())?;
    }
    Ok(())
}

/// Returns the directives of all `http` blocks, followed by those outside of blocks: files of `conf.d` have no `http`.
/// Returns `None` without an `http` block.
fn contents(directives: &[Directive]) -> Option<Vec<Directive>> {
    let is_http = |directive: &&Directive| directive.name() == "http";
    directives.iter().find(is_http)?;
    let inner = directives.iter().filter(is_http).flat_map(|http| http.inner().iter().cloned());
    let outer = directives.iter().filter(|directive| matches!(directive.name(), "server" | "upstream" | "map" | "geo"));
    Some(inner.chain(outer.cloned()).collect())
}

// === impl Conversion ===

impl Conversion<'_, '_> {
    /// Notes the files of `include` that do not exist.
    fn note_missing(&mut self, missing: &[Directive]) {
        for include in missing {
            let name = include.arg(0).map(Path::new).and_then(Path::file_name).unwrap_or_default();
            if !INSTALLED.iter().any(|installed| name == *installed) {
                self.notes.lost(include, "the file does not exist");
            }
        }
    }

    /// Notes the definitions of variables. Those that a limit uses have a finding with it.
    fn note_variables(&mut self, http: &[Directive]) {
        for directive in http.iter().filter(|directive| matches!(directive.name(), "map" | "geo" | "split_clients")) {
            let variable = directive.args.last().map(|word| word.text.clone()).unwrap_or_default();
            match self.variables.values(&variable, &HashMap::new()) {
                Ok(_) => self.notes.same(directive, "conditions, wherever a supported setting uses the variable"),
                Err(reason) => self.notes.lost(directive, reason),
            }
        }
    }

    /// Returns the path of a file for the rule file.
    fn file(&self, path: &str) -> String {
        match &self.folder {
            Some(folder) if Path::new(path).is_relative() => folder.join(path).display().to_string(),
            _ => path.to_owned(),
        }
    }
}
