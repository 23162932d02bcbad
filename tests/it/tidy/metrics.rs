//! Finds methods of the metrics that nothing calls: their metrics would stay 0.

use std::collections::HashSet;

use super::{Source, code_of, is_test_file};

/// The crate with the methods.
const CRATE: &str = "crates/metrics/";

/// A method for programs that add the metrics of a layer to their own page.
const FOR_PROGRAMS: &str = "append_to";

/// Returns the public functions of the metrics that no other crate calls. Does not find a function whose name another
/// function has.
pub(super) fn find_uncalled(sources: &[Source]) -> Vec<String> {
    let product = |source: &&Source| !is_test_file(&source.path);
    let (metrics, users): (Vec<&Source>, Vec<&Source>) =
        sources.iter().filter(product).partition(|source| source.path.starts_with(CRATE));
    let called: HashSet<&str> = users.iter().flat_map(|user| names_of_calls(product_code(&user.text))).collect();
    let mut uncalled = Vec::new();
    for source in metrics {
        let names = product_code(&source.text).lines().filter_map(name_of_function);
        let names = names.filter(|name| *name != FOR_PROGRAMS && !called.contains(name));
        uncalled.extend(names.map(|name| format!("{}: {name}", source.path)));
    }
    uncalled
}

/// Returns the part of a file before its inline tests.
fn product_code(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Returns the names after a dot or a colon.
fn names_of_calls(code: &str) -> impl Iterator<Item = &str> {
    let ends_name = |letter: char| !letter.is_alphanumeric() && letter != '_';
    code.split(['.', ':']).skip(1).filter_map(move |rest| rest.split(ends_name).next())
}

/// Returns the name if the line declares a public function.
fn name_of_function(line: &str) -> Option<&str> {
    let line = code_of(line).trim_start();
    let declared = line.strip_prefix("pub fn ").or_else(|| line.strip_prefix("pub const fn "))?;
    declared.split(['(', '<']).next()
}
