//! Charts as SVG. A drawing is stretched to the width of the page, while its scales are separate texts in normal size.

use std::fmt::{self, Write as _};

use super::text::{short, to_float};

/// The width and height of a drawing.
pub(super) const SIZE: f64 = 1000.0;

/// A logarithmic scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogScale {
    low: f64,
    high: f64,
}

impl LogScale {
    pub(super) fn new(low: f64, high: f64) -> Self {
        Self { low: low.ln(), high: high.ln() }
    }

    /// Returns the position of a value, from 0 to [`SIZE`].
    pub(super) fn at(self, value: f64) -> f64 {
        ((value.ln() - self.low) / (self.high - self.low)).clamp(0.0, 1.0) * SIZE
    }

    /// Returns the powers of ten up to a value, and the value, with their positions.
    pub(super) fn ticks(self, last: u64) -> Vec<(f64, String)> {
        let powers = (0..).map(|power| 10_u64.saturating_pow(power)).take_while(|value| *value <= last / 2);
        powers.chain([last]).map(|value| (self.at(to_float(value)), short(to_float(value)))).collect()
    }
}

/// Returns a path of steps: each point is the start of a step and its height. The last step ends at `end`.
pub(super) fn steps(points: impl IntoIterator<Item = (f64, f64)>, end: f64) -> String {
    let (mut path, mut height) = (String::new(), None);
    for (x, y) in points {
        match height {
            None => _ = write!(path, "M{x:.1} {y:.1}"),
            Some(before) if before == y => continue,
            Some(_) => _ = write!(path, "H{x:.1}V{y:.1}"),
        }
        height = Some(y);
    }
    if height.is_some() {
        _ = write!(path, "H{end:.1}");
    }
    path
}

/// Returns the area below a path of steps, which starts at the left.
pub(super) fn area(steps: &str) -> String {
    match steps.split_once(' ') {
        Some((_, rest)) => format!("M0 {SIZE}V{rest}V{SIZE}Z"),
        None => String::new(),
    }
}

/// A chart: the scales, and a drawing.
#[derive(Debug)]
pub(super) struct Chart<'c> {
    /// The positions from the top, with their texts.
    pub(super) vertical: &'c [(f64, String)],
    /// The positions from the left, with their texts.
    pub(super) horizontal: &'c [(f64, String)],
    pub(super) drawing: &'c str,
}

impl fmt::Display for Chart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<div class=\"chart\" aria-hidden=\"true\">\n<svg class=\"ticks\">")?;
        for (y, text) in self.vertical {
            write!(f, "<text x=\"100%\" y=\"{:.1}%\" dy=\"4\" text-anchor=\"end\">{text}</text>", y / 10.0)?;
        }
        write!(f, "</svg>\n<svg class=\"plot\" viewBox=\"0 0 {SIZE} {SIZE}\" preserveAspectRatio=\"none\">")?;
        for (y, _) in self.vertical {
            write!(f, "<path class=\"grid\" d=\"M0 {y:.1}H{SIZE}\"/>")?;
        }
        write!(f, "{}</svg>\n<svg class=\"axis\">", self.drawing)?;
        for (x, text) in self.horizontal {
            let anchor = match x / SIZE {
                share if share < 0.03 => "start",
                share if share > 0.97 => "end",
                _ => "middle",
            };
            write!(f, "<text x=\"{:.1}%\" y=\"14\" text-anchor=\"{anchor}\">{text}</text>", x / 10.0)?;
        }
        f.write_str("</svg>\n</div>\n")
    }
}

/// Returns the next number with a short text: 1, 2, 2.5, 4, 5, 6 or 8 times a power of ten.
pub(super) fn round_up(value: f64) -> f64 {
    let size = 10_f64.powf(value.max(1.0).log10().floor());
    [1.0, 2.0, 2.5, 4.0, 5.0, 6.0, 8.0, 10.0]
        .map(|step| step * size)
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_join_equal_heights() {
        let path = steps([(0.0, 5.0), (1.0, 5.0), (2.0, 7.0)], 3.0);
        assert_eq!(path, "M0.0 5.0H2.0V7.0H3.0");
        assert_eq!(area(&path), "M0 1000V5.0H2.0V7.0H3.0V1000Z");
        assert_eq!((steps([], 3.0), area("")), (String::new(), String::new()));
    }

    #[test]
    fn scales_have_round_numbers() {
        assert_eq!([0.0, 1.0, 3.0, 21.0, 1_001.0].map(round_up), [1.0, 1.0, 4.0, 25.0, 2_000.0]);
        let ticks = LogScale::new(1.0, 100_000.0).ticks(100_000);
        let texts: Vec<_> = ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["1", "10", "100", "1k", "10k", "100k"]);
    }
}
