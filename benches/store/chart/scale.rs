//! A logarithmic axis.

/// Maps numbers to vertical positions.
pub struct Scale {
    least: f64,
    most: f64,
    /// The vertical positions of both.
    bottom: f64,
    top: f64,
}

/// Smaller numbers than the largest divided by this are drawn at the bottom.
const MAX_RATIO: f64 = 10_000.0;

impl Scale {
    /// Creates a scale for these numbers between two vertical positions.
    pub fn new(numbers: impl Iterator<Item = f64>, bottom: f64, top: f64) -> Self {
        let numbers: Vec<f64> = numbers.filter(|number| number.is_finite() && *number > 0.0).collect();
        let most = numbers.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let least = numbers.iter().copied().fold(most, f64::min).max(most / MAX_RATIO);
        // The scale ends at ticks and covers at least a factor of ten, so that a nearly constant line looks constant.
        let least = tick_below(least);
        let most = tick_above(most).max(10.0 * least);
        Self { least, most, bottom, top }
    }

    /// Returns the vertical position of a number.
    pub fn at(&self, number: f64) -> f64 {
        let share = (number.clamp(self.least, self.most) / self.least).ln() / (self.most / self.least).ln();
        self.bottom + (self.top - self.bottom) * share
    }

    /// Returns the ticks: round numbers, and only powers of ten on a long scale.
    pub fn ticks(&self) -> Vec<f64> {
        let many = (self.most / self.least).log10() > 2.0;
        let wanted = |tick: &f64| !many || tick.log10().fract().abs() < 1e-9;
        std::iter::successors(Some(self.least), |tick| Some(tick_above(tick * 1.01)))
            .take_while(|tick| *tick <= self.most * 1.01)
            .filter(wanted)
            .collect()
    }
}

/// Returns the largest of 1, 2, 5, 10, ... that is at most `number`.
fn tick_below(number: f64) -> f64 {
    let power = 10_f64.powf((number * 1.000_001).log10().floor());
    [5.0, 2.0].into_iter().map(|times| times * power).find(|tick| *tick <= number).unwrap_or(power)
}

/// Returns the smallest of 1, 2, 5, 10, ... that is at least `number`.
fn tick_above(number: f64) -> f64 {
    let power = 10_f64.powf((number * 0.999_999).log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|times| times * power)
        .find(|tick| *tick >= number * 0.999_999)
        .unwrap_or(10.0 * power)
}
