//! The usage of a request: tokens by kind.

/// The tokens of a request, as the API reports them. The kinds are disjoint: the sum is the number of all tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the input that were neither read from a cache nor written to one.
    pub input: u64,
    /// Tokens of the input that were read from a cache.
    pub cached_input: u64,
    /// Tokens of the input that were written to a cache.
    pub cache_write: u64,
    /// Tokens of the output, with hidden ones (reasoning).
    pub output: u64,
}

impl Usage {
    /// The number of all tokens.
    pub fn total(&self) -> u64 {
        [self.cached_input, self.cache_write, self.output]
            .iter()
            .fold(self.input, |sum, part| sum.saturating_add(*part))
    }
}
