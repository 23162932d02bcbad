//! The results as Markdown, which is also readable on a terminal.

use std::fmt::{self, Write};

use super::measured::{COMPARISON_TASKS, Measured, Row, Subject};
use super::scenario::{CLIENTS, INTERVAL};
use super::slice::{Slice, Spread};

/// The section of the page.
pub struct Page<'p> {
    pub measured: &'p Measured,
    /// The machine and the version of Redis.
    pub machine: &'p str,
    /// The number of slices of each figure, and the length of a slice in milliseconds.
    pub rounds: usize,
    pub millis: u64,
    /// Whether to include a table for each curve. The document has a picture of them instead.
    pub has_curves: bool,
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measured, machine, rounds, millis, has_curves } = self;
        writeln!(
            f,
            "Two processes send decisions to one Redis, without HTTP. In each process, the given number of tasks runs\n\
             on one thread, and every task requests one permit at a time. The processes and Redis share the\n\
             machine's processors."
        )?;
        writeln!(
            f,
            "Each figure is the median of {rounds} slices of {millis} ms, measured in alternation. {machine}.\n"
        )?;
        goals(f, measured)?;
        writeln!(
            f,
            "\nThe limits have an interval of {} s and grant everything. PER_CLIENT uses {CLIENTS} clients at random.",
            INTERVAL / 1_000
        )?;
        let pairs = measured.comparisons.iter().map(|comparison| comparison.redisson.len()).min().unwrap_or(0);
        writeln!(
            f,
            "Redisson's script is called by `redis-benchmark` (50 connections, pipelines of 16), Tidegate by\n\
             {COMPARISON_TASKS} tasks in each process, in alternating slices. The ratio is the median of at least \
             {pairs}\npairs of slices.\n"
        )?;
        windows(f, measured)?;
        for subject in measured.curves.iter().filter(|_| *has_curves) {
            writeln!(f, "\n**{}**\n", subject.scenario.name)?;
            table(f, "tasks", subject.rows.iter().map(|row| (row.tasks.to_string(), row)))?;
        }
        let tasks = measured.algorithms.first().and_then(|subject| subject.rows.first()).map_or(0, |row| row.tasks);
        writeln!(f, "\n**Each algorithm as an OVERALL limit, and limits below the demand; {tasks} tasks**\n")?;
        let others = measured.algorithms.iter().chain(&measured.bounded);
        table(f, "limits", others.flat_map(|one| one.rows.iter().map(|row| (one.scenario.name.to_owned(), row))))?;
        writeln!(f, "\n* CPU: microseconds of CPU time per decision, of Redis and of the client processes")?;
        writeln!(f, "* per call: decisions per script call")?;
        writeln!(f, "* curve `OVERALL, rejected`: every request calls Redis; the negative cache is not used")?;
        write!(f, "* `cargo bench --bench acquire` measures the cost of a decision at other rates.")
    }
}

fn goals(f: &mut fmt::Formatter<'_>, measured: &Measured) -> fmt::Result {
    writeln!(
        f,
        "| decisions/s | Tidegate | Redisson's script | ratio | goal | Redis CPU: Tidegate | Redisson's script |"
    )?;
    writeln!(f, "|---|--:|--:|--:|--:|--:|--:|")?;
    for comparison in &measured.comparisons {
        let rates = |slices: &[Slice]| Spread::new(slices.iter().map(|slice| slice.rate)).map(range);
        let costs =
            |slices: &[Slice]| Spread::new(slices.iter().map(|slice| slice.redis)).map(|one| figure(one.median));
        let (tidegate, redisson) = (comparison.tidegate(), &comparison.redisson);
        let ratio = |ratios: Spread| [ratios.median, ratios.least, ratios.most].map(|ratio| format!("{ratio:.2}"));
        let cells = rates(tidegate)
            .zip(rates(redisson))
            .zip(costs(tidegate).zip(costs(redisson)))
            .zip(comparison.ratios().map(ratio));
        let Some((((rate, peers_rate), (cost, peers_cost)), [median, least, most])) = cells else { continue };
        let (name, goal) = (comparison.subject.scenario.name, comparison.goal);
        let ratio = format!("{median} ({least} - {most})");
        writeln!(f, "| {name} | {rate} | {peers_rate} | {ratio} | >= {goal} | {cost} | {peers_cost} |")?;
    }
    Ok(())
}

/// Writes the fullest windows, or those that exceed their rate.
fn windows(f: &mut fmt::Formatter<'_>, measured: &Measured) -> fmt::Result {
    let fullest = |subject: &Subject| {
        let windows = subject.windows.iter();
        let windows =
            windows.map(|window| format!("{} of {}", thousands(window.granted as f64), thousands(window.rate as f64)));
        format!("{} {}", subject.scenario.name, windows.collect::<Vec<_>>().join(" and "))
    };
    let (fullest, exceeded): (Vec<_>, Vec<_>) =
        (measured.bounded.iter().map(fullest).collect(), measured.exceeded_limits().collect());
    match exceeded.is_empty() {
        true => writeln!(
            f,
            "No window of one interval had more grants than the rate. The fullest windows: {}.",
            fullest.join("; ")
        ),
        false => writeln!(f, "LIMIT EXCEEDED: {}.", exceeded.join("; ")),
    }
}

fn table<'r>(f: &mut fmt::Formatter<'_>, first: &str, rows: impl Iterator<Item = (String, &'r Row)>) -> fmt::Result {
    let heads = [first, "decisions/s", "min - max", "Redis CPU", "client CPU", "per call", "p50 ms", "p99 ms"];
    let mut lines = vec![heads.map(str::to_owned)];
    lines.extend(rows.map(|(name, row)| cells(name, row)));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for (number, line) in lines.iter().enumerate() {
        let cell = |(column, cell): (usize, &String)| match column {
            0 => format!("{cell:<width$}", width = widths[column]),
            _ => format!("{cell:>width$}", width = widths[column]),
        };
        writeln!(f, "| {} |", line.iter().enumerate().map(cell).collect::<Vec<_>>().join(" | "))?;
        if number == 0 {
            let rule = |(column, width): (usize, &usize)| {
                if column == 0 { "-".repeat(width + 2) } else { "-".repeat(width + 1) + ":" }
            };
            writeln!(f, "|{}|", widths.iter().enumerate().map(rule).collect::<Vec<_>>().join("|"))?;
        }
    }
    Ok(())
}

fn cells(name: String, row: &Row) -> [String; 8] {
    let rate = row.spread(|slice| slice.rate).unwrap_or(Spread { least: f64::NAN, median: f64::NAN, most: f64::NAN });
    let driver = row.median(|slice| slice.driver.unwrap_or(f64::NAN));
    let latency = |share| row.median(|slice| slice.latency.quantile(share)) / 1_000.0;
    [
        name,
        thousands(rate.median),
        format!("{} - {}", thousands(rate.least), thousands(rate.most)),
        figure(row.median(|slice| slice.redis)),
        figure(driver),
        figure(row.median(|slice| slice.batch)),
        format!("{:.2}", latency(0.5)),
        format!("{:.2}", latency(0.99)),
    ]
}

fn range(spread: Spread) -> String {
    format!("{} ({} - {})", thousands(spread.median), thousands(spread.least), thousands(spread.most))
}

/// Formats a number with one decimal, or with two if it is below 1.
fn figure(number: f64) -> String {
    match number {
        number if !number.is_finite() => "-".to_owned(),
        number if number < 1.0 => format!("{number:.2}"),
        number => format!("{number:.1}"),
    }
}

/// Formats a whole number with thousands separators.
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        // Writing to a string does not fail.
        _ = text.write_char(digit);
    }
    text
}
