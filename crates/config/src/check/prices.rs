//! The prices of models: a file that `prices` of a limit names.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::Checked;
use crate::file::prices::{PRICES_KIND, Price, PriceFile};
use crate::problem::{Location, Problems, quote};
use crate::sources::SourceFiles;
use crate::yaml::key_value::KeyValue;
use crate::yaml::placeholders::Placeholders;
use crate::yaml::{self, Usage};
use tidegate_usage::{Prices, Weights};

/// The files of prices, by the names in the rule file.
#[derive(Debug, Default)]
pub(crate) struct PriceFiles(BTreeMap<String, Checked<Arc<Prices>>>);

impl PriceFiles {
    /// Adds the file with this name.
    pub(crate) fn insert(&mut self, name: &str, prices: Checked<Prices>) {
        self.0.insert(name.to_owned(), prices.map(Arc::new));
    }

    /// Returns the prices in the file with this name, whose errors have been reported.
    pub(super) fn get(&self, name: &str, at: Location, problems: &mut Problems) -> Checked<Arc<Prices>> {
        self.0.get(name).map_or_else(|| Err(problems.reported(at)), Clone::clone)
    }
}

/// Reads the text of the file with this number.
pub(crate) fn read_prices_file(
    text: &str,
    number: u16,
    usage: &mut Usage,
    sources: &mut SourceFiles,
    problems: &mut Problems,
) -> Checked<Prices> {
    let root = yaml::read(text, number, usage, &mut Placeholders::literal(sources), problems)?;
    let file = KeyValue { node: &root, key: "prices" }.read::<PriceFile>(&PRICES_KIND, problems)?;
    let default = file.default.optional(problems)?.map(|raw| price(raw, problems));
    let mut checked = default.map_or(Ok(Prices::default()), |price| price.map(|price| Prices::new(Some(price))));
    for (name, located) in file.models.required(problems)? {
        let price = located.required(problems).and_then(|raw| price(raw, problems));
        let named = check_name(name, located.key_location(), problems).and(price);
        checked = checked.and_then(|prices| named.map(|price| prices.with(name, price)));
    }
    checked
}

/// Reports a name that no model can have.
fn check_name(name: &str, at: Location, problems: &mut Problems) -> Checked<()> {
    if name.is_empty() || name.len() > Prices::MAX_NAME {
        let message = format!("the name of a model has 1 to {} bytes", Prices::MAX_NAME);
        return Err(problems.add(at, message, "write the start of the name, with `*` at its end"));
    }
    match name.find('*') {
        Some(position) if position + 1 < name.len() => {
            let message = format!("{} has a `*` before its end", quote(name));
            Err(problems.add(at, message, "write `*` only at the end, for the start of names"))
        }
        _ => Ok(()),
    }
}

/// Converts a price of a million tokens. A permit is a millionth of the currency.
fn price(raw: &Price, problems: &mut Problems) -> Checked<Weights> {
    let input = raw.input.required(problems).copied();
    let output = raw.output.required(problems).copied();
    let [cached_input, cache_write] =
        [&raw.cached_input, &raw.cache_write].map(|price| price.optional(problems).map(Option::<&f64>::copied));
    let (input, output) = (input?, output?);
    let weights = Weights::new(input, cached_input?.unwrap_or(input), cache_write?.unwrap_or(input), output);
    weights.ok_or_else(|| problems.reported(raw.input.location))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use tidegate_usage::Usage as Tokens;

    /// Reads a file. Returns the lines of its errors, with their messages.
    fn read(text: &str) -> Result<Prices, Vec<(Option<usize>, String)>> {
        let (mut sources, mut problems, mut usage) = (SourceFiles::default(), Problems::default(), Usage::default());
        problems.add_file(std::path::Path::new("prices.yaml"));
        let prices = read_prices_file(text, 0, &mut usage, &mut sources, &mut problems);
        let line = |problem: &Problem| (problem.line(), problem.message().to_owned());
        prices.map_err(|_| problems.iter().map(line).collect())
    }

    #[test]
    fn price_of_the_input_is_the_default_of_caches() {
        let prices = read("models: { a*: { input: 2, output: 8 }, ab: { input: 1, cached_input: 0.5, output: 4 } }")
            .expect("valid");
        let tokens = Tokens { input: 10, cached_input: 10, cache_write: 10, output: 10 };
        let cost = |model: &str| prices.find(Some(model)).map(|price| price.cost(&tokens));
        assert_eq!([cost("a"), cost("ab"), cost("b")], [Some(140), Some(65), None]);
    }

    #[test]
    fn errors_of_a_file_have_lines() {
        let text =
            "models:\n  a: { input: 2 }\n  b*c: { input: 1, output: -1 }\n  '': { input: 1, output: 1 }\ndefalt: {}\n";
        let errors = read(text).expect_err("errors");
        let lines: Vec<_> = errors.iter().map(|(line, _)| line.unwrap_or_default()).collect();
        assert_eq!(lines, [2, 3, 3, 4, 5], "{errors:?}");
        let long = format!("models: {{ {}: {{ input: 1, output: 1 }} }}", "m".repeat(65));
        assert!(read(&long).is_err() && read("").is_err() && read("[]").is_err());
    }
}
