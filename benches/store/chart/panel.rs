//! Draws one figure at rising concurrency, with a line for each scenario.

use super::super::page::thousands;
use super::scale::Scale;

/// One figure of the chart.
pub struct Panel<'p> {
    pub title: &'p str,
    /// The lines of the scenarios.
    pub lines: Vec<Line>,
    /// Horizontal lines with the values of Redisson's script, each with the class of the line to compare it with.
    pub levels: Vec<(usize, f64)>,
}

/// A class that sets the colour, and the value at each number of tasks.
pub struct Line {
    pub class: usize,
    pub points: Vec<(u32, f64)>,
}

/// The size of a panel with its margins.
pub const WIDTH: f64 = 422.0;
pub const HEIGHT: f64 = 214.0;

/// The margins around the lines.
const LEFT: f64 = 78.0;
const RIGHT: f64 = 10.0;
const ABOVE: f64 = 30.0;
const BELOW: f64 = 34.0;

impl Panel<'_> {
    /// Draws the panel with its upper left corner at `x` and `y`.
    pub fn draw(&self, x: f64, y: f64) -> String {
        let numbers = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
        let numbers = numbers.chain(self.levels.iter().map(|level| level.1));
        let scale = Scale::new(numbers, y + HEIGHT - BELOW, y + ABOVE);
        let mut svg = format!("<text class=\"head\" x=\"{}\" y=\"{}\">{}</text>\n", x + 14.0, y + 18.0, self.title);
        svg += &self.axes(&scale, x, y);
        for (class, number) in &self.levels {
            let (from, to, at) = (x + LEFT, x + WIDTH - RIGHT, scale.at(*number));
            svg += &format!("<path class=\"peer c{class}\" d=\"M{from} {at:.1}H{to}\"/>\n");
        }
        svg + &self.lines.iter().map(|line| self.line(line, &scale, x)).collect::<String>()
    }

    fn axes(&self, scale: &Scale, x: f64, y: f64) -> String {
        let (left, right, bottom) = (x + LEFT, x + WIDTH - RIGHT, y + HEIGHT - BELOW);
        let mut svg = String::new();
        for tick in scale.ticks() {
            let at = scale.at(tick);
            svg += &format!("<path class=\"rule\" d=\"M{left} {at:.1}H{right}\"/>");
            svg += &format!("<text class=\"row\" x=\"{}\" y=\"{:.1}\">{}</text>\n", left - 6.0, at + 4.0, label(tick));
        }
        for (tasks, _) in self.lines.iter().flat_map(|line| &line.points).take_while(first_line()) {
            // There is space for every other label.
            if tasks.ilog2().is_multiple_of(2) {
                let (at, under) = (self.x_of(*tasks, x), bottom + 18.0);
                svg += &format!("<text class=\"tick\" x=\"{at:.1}\" y=\"{under}\">{tasks}</text>\n");
            }
        }
        svg
    }

    fn line(&self, line: &Line, scale: &Scale, x: f64) -> String {
        let (class, mut path, mut dots) = (line.class, String::new(), String::new());
        for (tasks, number) in line.points.iter().filter(|point| point.1.is_finite()) {
            let (across, at) = (self.x_of(*tasks, x), scale.at(*number));
            path += &format!("{}{across:.1} {at:.1}", if path.is_empty() { "M" } else { "L" });
            dots += &format!("<circle class=\"dot c{class}\" cx=\"{across:.1}\" cy=\"{at:.1}\" r=\"2.6\"/>");
        }
        format!("<path class=\"line c{class}\" d=\"{path}\"/>{dots}\n")
    }

    /// Returns the horizontal position of a number of tasks, on a logarithmic scale.
    fn x_of(&self, tasks: u32, x: f64) -> f64 {
        let all = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let most = f64::from(all.max().unwrap_or(1)).log2().max(1.0);
        let (from, to) = (x + LEFT + 8.0, x + WIDTH - RIGHT - 8.0);
        from + (to - from) * f64::from(tasks).log2() / most
    }
}

/// Returns a predicate that accepts the points of the first line, which ascend.
fn first_line() -> impl FnMut(&&(u32, f64)) -> bool {
    let mut last = 0;
    move |(tasks, _)| {
        let ascending = *tasks > last;
        last = *tasks;
        ascending
    }
}

fn label(tick: f64) -> String {
    if tick < 1.0 { format!("{tick:.4}").trim_end_matches('0').to_owned() } else { thousands(tick) }
}
