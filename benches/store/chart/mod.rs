//! Draws the chart: decisions per second, CPU time of Redis, decisions per call, and latency, by concurrency.

mod panel;
mod scale;

use self::panel::{HEIGHT, Line, Panel, WIDTH};
use super::measured::{Comparison, Measured, Row};
use super::redisson::Kind;
use super::slice::{Slice, Spread};

/// The picture has its own background, because a page can be light on a system with a dark theme.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif}.row{text-anchor:end}.tick{text-anchor:middle}.head{font-size:14px;font-weight:600}
.line,.peer{fill:none;stroke-width:2}.peer{stroke-dasharray:5 4;opacity:.8}
.ground{fill:#fff}text{fill:#6e7781}.head,.name{fill:#24292f}.rule{stroke:#d8dee4}
.line,.peer{stroke:currentColor}.dot,.name tspan{fill:currentColor}
.c0{color:#0969da}.c1{color:#1a7f37}.c2{color:#8250df}.c3{color:#bc4c00}
@media(prefers-color-scheme:dark){.ground{fill:#0d1117}text{fill:#9198a1}.head,.name{fill:#e6edf3}.rule{stroke:#30363d}
.c0{color:#58a6ff}.c1{color:#3fb950}.c2{color:#bc8cff}.c3{color:#f0883e}}";

/// The top of the panels.
const TOP: f64 = 66.0;

pub fn draw(measured: &Measured) -> String {
    let redisson_levels = |figure: fn(&Slice) -> f64| redisson(measured, figure);
    let tidegate_lines = |figure: fn(&Row) -> f64| lines(measured, figure);
    let panels = [
        Panel {
            title: "decisions per second",
            lines: tidegate_lines(|row| row.median(|slice| slice.rate)),
            levels: redisson_levels(|slice| slice.rate),
        },
        Panel {
            title: "CPU time of Redis per decision, microseconds",
            lines: tidegate_lines(|row| row.median(|slice| slice.redis)),
            levels: redisson_levels(|slice| slice.redis),
        },
        Panel {
            title: "decisions per script call",
            lines: tidegate_lines(|row| row.median(|slice| slice.batch)),
            levels: Vec::new(),
        },
        Panel {
            title: "median time of a decision, milliseconds",
            lines: tidegate_lines(|row| row.median(|slice| slice.latency.quantile(0.5)) / 1_000.0),
            levels: Vec::new(),
        },
    ];
    let positions = [(0.0, TOP), (WIDTH, TOP), (0.0, TOP + HEIGHT), (WIDTH, TOP + HEIGHT)];
    let panels: String = panels.iter().zip(positions).map(|(panel, (x, y))| panel.draw(x, y)).collect();
    head(measured) + &panels + "</svg>\n"
}

fn head(measured: &Measured) -> String {
    let (width, height) = (2.0 * WIDTH + 16.0, TOP + 2.0 * HEIGHT + 8.0);
    let title = "Decisions of two processes through one Redis, at rising concurrency";
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-labelledby=\"title desc\">\n<title id=\"title\">{title}</title>\n\
         <desc id=\"desc\">Four figures by the number of tasks in each of two processes; the tables have all \
         values.</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n\
         <text class=\"head\" x=\"14\" y=\"24\">{title}</text>\n\
         <text class=\"row\" x=\"{}\" y=\"24\">by the number of tasks in each process</text>\n\
         <text class=\"name\" x=\"14\" y=\"48\">",
        width - 14.0
    );
    for (class, subject) in measured.curves.iter().enumerate() {
        svg += &format!("<tspan class=\"c{class}\">\u{25cf}</tspan> {}\u{2003}", subject.scenario.name);
    }
    svg + "- - Redisson's script under redis-benchmark</text>\n"
}

fn lines(measured: &Measured, figure: fn(&Row) -> f64) -> Vec<Line> {
    let line = |(class, rows): (usize, &Vec<Row>)| {
        let points = rows.iter().map(|row| (row.tasks, figure(row))).collect();
        Line { class, points }
    };
    measured.curves.iter().map(|subject| &subject.rows).enumerate().map(line).collect()
}

fn redisson(measured: &Measured, figure: fn(&Slice) -> f64) -> Vec<(usize, f64)> {
    let level = |comparison: &Comparison| {
        let spread = Spread::new(comparison.redisson.iter().map(figure))?;
        let class = match comparison.peer {
            Kind::Overall => 0,
            Kind::PerClient => 1,
        };
        Some((class, spread.median))
    };
    measured.comparisons.iter().filter_map(level).collect()
}
