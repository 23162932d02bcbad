//! Measures the parsers of access logs on one core: `cargo bench --bench replay`.
//!
//! Each log has 1,000,000 lines of different clients and paths. The result is the best of five rounds.

use std::error::Error;

use tidegate::internals::clock::Stopwatch;
use tidegate::internals::parse_log;

const LINES: usize = 1_000_000;
const ROUNDS: usize = 5;

/// Writes the line with this number.
type Line = fn(usize) -> String;

/// The formats: the row, the name of the format, and its lines.
const FORMATS: [(&str, &str, Line); 5] = [
    ("combined", "combined", combined),
    ("nginx JSON", "nginx-json", nginx),
    ("haproxy", "haproxy", haproxy),
    ("tidegate text", "tidegate", text),
    ("tidegate JSON", "tidegate", json),
];

#[expect(clippy::print_stdout, reason = "the benchmark prints its result")]
fn main() -> Result<(), Box<dyn Error>> {
    for (row, format, line) in FORMATS {
        let log: String = (0..LINES).map(|number| line(number) + "\n").collect();
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let stopwatch = Stopwatch::start();
            let parsed = parse_log(format, log.as_bytes())?;
            best = best.min(stopwatch.elapsed().as_secs_f64());
            assert_eq!(parsed, LINES, "{row}");
        }
        let (rate, megabytes) = (LINES as f64 / best, log.len() as f64 / best / 1e6);
        println!("parse {row}: {rate:.0} lines/s, {megabytes:.0} MB/s");
    }
    Ok(())
}

fn client(number: usize) -> String {
    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

fn time(number: usize) -> String {
    format!("{:02}:{:02}:{:02}", number / 100_000 % 24, number / 6_000 % 60, number / 100 % 60)
}

fn path(number: usize) -> String {
    format!("/api/v1/things/{}?page={}", number % 7_919, number % 10)
}

fn combined(number: usize) -> String {
    format!(
        r#"{} - - [26/Nov/2026:{} +0100] "GET {} HTTP/1.1" 200 {} "https://www.example.com/start" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36""#,
        client(number),
        time(number),
        path(number),
        number % 5_000,
    )
}

fn nginx(number: usize) -> String {
    format!(
        r#"{{"time_iso8601":"2026-11-26T{}+01:00","remote_addr":"{}","request":"GET {} HTTP/1.1","status":200,"host":"example.com","request_time":0.003,"http_user_agent":"Mozilla/5.0 (X11; Linux x86_64)"}}"#,
        time(number),
        client(number),
        path(number),
    )
}

fn haproxy(number: usize) -> String {
    format!(
        r#"{}:33317 [26/Nov/2026:{}.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET {} HTTP/1.1""#,
        client(number),
        time(number),
        path(number),
    )
}

fn text(number: usize) -> String {
    format!(
        r#"2026-11-26T{}.000000Z  INFO GET {} status=200 route="api" limits="allowed" upstream="orders" target="http://10.0.1.5:9000" attempts=1 at=1795673435123 client={} peer=10.0.0.7 bytes=512 bytes_in=0 wait_ms=0.021 head_ms=3.127 ms=3.201 protocol="HTTP/1.1" host="api.example""#,
        time(number),
        path(number),
        client(number),
    )
}

fn json(number: usize) -> String {
    format!(
        r#"{{"timestamp":"2026-11-26T{}.000000Z","level":"INFO","message":"GET /orders","status":200,"route":"api","limits":"allowed","at":1795673435123,"client":"{}","peer":"10.0.0.7","bytes":256,"bytes_in":0,"wait_ms":0.021,"head_ms":0.127,"ms":0.201,"protocol":"HTTP/1.1","method":"GET","path":"{}","host":"api.example","user_agent":"curl/8.5.0"}}"#,
        time(number),
        client(number),
        path(number),
    )
}
