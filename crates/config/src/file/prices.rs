//! The keys of a file with the prices of models.

use super::keys::Kind;
use super::keys::Kind::{Decimal, Entries, Map};
use super::limits::MAX_WEIGHT;
use super::located::Located;
use super::shape::shape;

shape! {
    /// The prices of models. The file is read with the rule file.
    PRICES: PriceFile = "a file of prices" {
        /// The prices by the names of models. A name with `*` at its end is the start of names; the longest one counts.
        models: Vec<(String, Located<Price>)> = Entries(&Map(&PRICE)), Required("models: { gpt-4o: { input: 2.5, output: 10 } }");
        /// The price of all other models, and of requests that name none. By default, these requests are rejected with 400.
        default: Price = Map(&PRICE), Optional;
    }
}

shape! {
    /// The price of a million tokens, by kind.
    PRICE: Price = "a price" {
        /// Tokens of the input.
        input: f64 = Decimal(MAX_WEIGHT), Required("input: 2.5");
        /// Tokens of the input that were read from a cache. By default, as `input`.
        cached_input: f64 = Decimal(MAX_WEIGHT), Optional;
        /// Tokens of the input that were written to a cache. By default, as `input`.
        cache_write: f64 = Decimal(MAX_WEIGHT), Optional;
        /// Tokens of the output, with hidden ones (reasoning).
        output: f64 = Decimal(MAX_WEIGHT), Required("output: 10");
    }
}

/// The kind of the file.
pub(crate) static PRICES_KIND: Kind = Map(&PRICES);
