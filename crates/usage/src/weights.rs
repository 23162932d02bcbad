//! The cost of tokens by kind: permits for each token.

use crate::usage::Usage;

/// The parts of a permit that weights count: a millionth.
const PARTS: u64 = 1_000_000;

/// The largest weight, in permits for a token.
const MAX_WEIGHT: f64 = 1e6;

/// The permits that a token of each kind costs, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    input: u64,
    cached_input: u64,
    cache_write: u64,
    output: u64,
}

/// Each token costs a permit.
impl Default for Weights {
    fn default() -> Self {
        Self { input: PARTS, cached_input: PARTS, cache_write: PARTS, output: PARTS }
    }
}

impl Weights {
    /// Creates weights, in permits for a token: 0 to a million, in steps of a millionth. Returns `None` for other numbers.
    pub fn new(input: f64, cached_input: f64, cache_write: f64, output: f64) -> Option<Self> {
        let [input, cached_input, cache_write, output] = [input, cached_input, cache_write, output].map(parts);
        Some(Self { input: input?, cached_input: cached_input?, cache_write: cache_write?, output: output? })
    }

    /// The cost of a usage, rounded up to whole permits.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let of_kind = |weight: u64, tokens: u64| u128::from(weight) * u128::from(tokens);
        whole(
            of_kind(self.input, usage.input)
                + of_kind(self.cached_input, usage.cached_input)
                + of_kind(self.cache_write, usage.cache_write)
                + of_kind(self.output, usage.output),
        )
    }

    /// The most that a request with at most these tokens of input and of output can cost. The input may be of any kind.
    pub fn bound(&self, input: u64, output: u64) -> u64 {
        let of_input = u128::from(self.input.max(self.cached_input).max(self.cache_write)) * u128::from(input);
        whole(of_input.saturating_add(u128::from(self.output) * u128::from(output)))
    }
}

/// Converts permits to parts.
fn parts(permits: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "in range"
    )]
    (0.0..=MAX_WEIGHT).contains(&permits).then(|| (permits * PARTS as f64).round() as u64)
}

/// Converts parts to permits, rounded up.
fn whole(parts: u128) -> u64 {
    u64::try_from(parts.div_ceil(u128::from(PARTS))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Weights;
    use crate::Usage;

    #[test]
    fn cost_is_rounded_up_once() {
        let weights = Weights::new(1.0, 0.1, 1.25, 4.0).expect("valid");
        let usage = Usage { input: 10, cached_input: 3, cache_write: 1, output: 2 };
        assert_eq!(weights.cost(&usage), 20, "10 + 0.3 + 1.25 + 8");
        assert_eq!(Weights::default().cost(&usage), 16);
        assert_eq!(weights.cost(&Usage::default()), 0);
    }

    #[test]
    fn bound_is_at_least_every_cost() {
        let weights = Weights::new(1.0, 0.1, 1.25, 4.0).expect("valid");
        assert_eq!(weights.bound(100, 100), 125 + 400);
        assert_eq!(weights.bound(100, u64::MAX), u64::MAX);
    }

    #[test]
    fn weights_are_finite_and_not_negative() {
        for invalid in [-0.1, f64::NAN, f64::INFINITY, 1e7] {
            assert_eq!(Weights::new(invalid, 1.0, 1.0, 1.0), None);
        }
    }
}
