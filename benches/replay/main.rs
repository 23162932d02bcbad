//! Measures replays of access logs: `cargo bench --bench replay`.
//!
//! * `parse`: the parser of each format, on one core.
//! * `decide`: the decisions and statistics of five limits about parsed requests, on one core.
//! * `replay`: the program with five limits, and goaccess with the same file, in turns. Lines per second of CPU time on
//!   one core, and of wall time with all cores.
//!
//! Each log has 1,000,000 lines. The result is the best of five rounds, or the median of the rounds of both programs.

mod lines;
mod programs;

use std::error::Error;

use tidegate::internals::{decide_log, parse_log, parse_requests};
use tidegate_limit::clock::Stopwatch;

const LINES: usize = 1_000_000;
const ROUNDS: usize = 5;

/// The numbers of clients in a log.
const CLIENTS: [usize; 2] = [10_000, 1_000_000];

/// The five limits.
const RULES: &str = "
routes:
  - name: all
    match: { path: /** }
    limits:
      - { name: total, mode: OVERALL, rate: 1000, interval: 1s }
      - { name: token-bucket, mode: PER_CLIENT, client: ip, rate: 5, interval: 1m }
      - { name: gcra, mode: PER_CLIENT, client: ip, rate: 20, interval: 1h, algorithm: gcra, burst: 20 }
      - { name: sliding, mode: PER_CLIENT, client: ip, rate: 10, interval: 10m, algorithm: sliding_window, segments: 6 }
      - { name: fixed, mode: PER_CLIENT, client: ip, rate: 100, interval: 1h, algorithm: fixed_window, shadow: true }
";

/// Writes the line with this number.
type Line = fn(usize) -> String;

/// The formats: the row, the name of the format, and its lines.
const FORMATS: [(&str, &str, Line); 5] = [
    ("combined", "combined", lines::combined),
    ("nginx JSON", "nginx-json", lines::nginx),
    ("haproxy", "haproxy", lines::haproxy),
    ("tidegate text", "tidegate", lines::text),
    ("tidegate JSON", "tidegate", lines::json),
];

#[expect(clippy::print_stdout, reason = "the benchmark prints its result")]
fn main() -> Result<(), Box<dyn Error>> {
    for (row, format, line) in FORMATS {
        let log: String = (0..LINES).map(|number| line(number) + "\n").collect();
        let (seconds, parsed) = best(|| parse_log(format, log.as_bytes()))?;
        assert_eq!(parsed, LINES, "{row}");
        let (rate, megabytes) = (LINES as f64 / seconds, log.len() as f64 / seconds / 1e6);
        println!("parse {row}: {rate:.0} lines/s, {megabytes:.0} MB/s");
    }
    for clients in CLIENTS {
        let log = parse_requests("combined", log_of(clients).into_bytes())?;
        assert_eq!(log.len(), LINES);
        let (seconds, _) = best(|| decide_log(RULES, &log))?;
        println!("decide combined, five limits, {clients} clients: {:.0} lines/s", LINES as f64 / seconds);
    }
    for clients in CLIENTS {
        println!("{}", programs::compare(&log_of(clients), RULES, LINES, clients)?);
    }
    Ok(())
}

/// Returns the seconds of the fastest round, and the result of the last one.
fn best<T>(mut measured: impl FnMut() -> Result<T, String>) -> Result<(f64, T), String> {
    let mut round = || {
        let stopwatch = Stopwatch::start();
        let result = measured()?;
        Ok::<_, String>((stopwatch.elapsed().as_secs_f64(), result))
    };
    let mut best = round()?;
    for _ in 1..ROUNDS {
        let (seconds, result) = round()?;
        best = (best.0.min(seconds), result);
    }
    Ok(best)
}

/// Returns a log in the Combined format with this number of clients, in no order.
fn log_of(clients: usize) -> String {
    (0..LINES).map(|number| lines::combined_of(number, number.wrapping_mul(7_368_787) % clients) + "\n").collect()
}
