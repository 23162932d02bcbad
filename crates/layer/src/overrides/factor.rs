//! The factor by which an override multiplies a rate.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use tidegate_limit::MAX_RATE;

/// A factor from 0.001 to 1,000,000, exact in thousandths, so that all gateways compute the same rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Factor {
    thousandths: u32,
}

/// The error of a number that is not a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`multiply` must be a number from 0.001 to 1000000 with at most three decimals")]
pub struct FactorError;

/// The largest factor, in thousandths.
const MAX_THOUSANDTHS: f64 = 1e9;

impl Factor {
    /// Returns this multiple of a rate, rounded down; at least 1.
    pub fn apply(self, rate: u32) -> u32 {
        let multiple = u64::from(rate) * u64::from(self.thousandths) / 1_000;
        u32::try_from(multiple).unwrap_or(MAX_RATE).clamp(1, MAX_RATE)
    }

    fn as_f64(self) -> f64 {
        f64::from(self.thousandths) / 1_000.0
    }
}

impl TryFrom<f64> for Factor {
    type Error = FactorError;

    fn try_from(factor: f64) -> Result<Self, FactorError> {
        let thousandths = (factor * 1_000.0).round();
        let is_exact = (factor * 1_000.0 - thousandths).abs() < 1e-6 * thousandths.max(1.0);
        if !(1.0..=MAX_THOUSANDTHS).contains(&thousandths) || !is_exact {
            return Err(FactorError);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number in range")]
        let thousandths = thousandths as u32;
        Ok(Self { thousandths })
    }
}

impl FromStr for Factor {
    type Err = FactorError;

    fn from_str(text: &str) -> Result<Self, FactorError> {
        text.parse().map_err(|_| FactorError).and_then(|factor: f64| Self::try_from(factor))
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_f64().fmt(f)
    }
}

impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.thousandths % 1_000 {
            0 => serializer.serialize_u32(self.thousandths / 1_000),
            _ => serializer.serialize_f64(self.as_f64()),
        }
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
