//! The prices of models.

use std::collections::BTreeMap;

use crate::usage::Usage;
use crate::weights::Weights;

/// The prices of models: permits for each token, by the name of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    exact: BTreeMap<Box<str>, Weights>,
    /// The longest prefix comes first.
    prefixes: Vec<(Box<str>, Weights)>,
    default: Option<Weights>,
}

impl Prices {
    /// The longest name of a model, in bytes. Longer names in requests have no price.
    pub const MAX_NAME: usize = crate::json::MAX_KEY;

    /// Creates prices with this price of all models that are not named.
    pub fn new(default: Option<Weights>) -> Self {
        Self { default, ..Self::default() }
    }

    /// Adds the price of a model, or with `*` at the end the price of all models whose names start so.
    #[must_use]
    pub fn with(mut self, name: &str, price: Weights) -> Self {
        match name.strip_suffix('*') {
            None => _ = self.exact.insert(name.into(), price),
            Some(prefix) => {
                let position = self.prefixes.partition_point(|(other, _)| other.len() >= prefix.len());
                self.prefixes.insert(position, (prefix.into(), price));
            }
        }
        self
    }

    /// Returns the price of a model: by its name, by the longest start of its name, or the default. Returns `None` if the model has
    /// no price.
    pub fn find(&self, model: Option<&str>) -> Option<&Weights> {
        let named = model.and_then(|model| {
            let prefix = || self.prefixes.iter().find(|(prefix, _)| model.starts_with(&**prefix));
            self.exact.get(model).or_else(|| prefix().map(|(_, price)| price))
        });
        named.or(self.default.as_ref())
    }

    /// Returns the least that any model costs for this usage. Returns `None` without prices.
    pub fn least(&self, usage: &Usage) -> Option<u64> {
        let all = self.exact.values().chain(self.prefixes.iter().map(|(_, price)| price)).chain(&self.default);
        all.map(|price| price.cost(usage)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(output: f64) -> Weights {
        Weights::new(1.0, 1.0, 1.0, output).expect("valid")
    }

    #[test]
    fn longest_name_of_a_model_has_its_price() {
        let prices =
            Prices::new(None).with("gpt-4*", price(4.0)).with("gpt-4o-mini", price(1.0)).with("gpt-4o*", price(2.0));
        for (model, expected) in [
            ("gpt-4-turbo", Some(4.0)),
            ("gpt-4o", Some(2.0)),
            ("gpt-4o-mini", Some(1.0)),
            ("gpt-4o-mini-2024", Some(2.0)),
            ("GPT-4o", None),
            ("", None),
        ] {
            assert_eq!(prices.find(Some(model)).copied(), expected.map(price), "{model}");
        }
        assert_eq!(prices.find(None), None);
        assert_eq!(prices.least(&Usage { output: 10, ..Usage::default() }), Some(10));
    }

    #[test]
    fn default_is_the_price_of_all_other_models() {
        let prices = Prices::new(Some(price(9.0))).with("a", price(1.0));
        assert_eq!(prices.find(None).copied(), Some(price(9.0)));
        assert_eq!(prices.find(Some("c")).copied(), Some(price(9.0)));
        assert_eq!(prices.find(Some("a")).copied(), Some(price(1.0)));
    }
}
