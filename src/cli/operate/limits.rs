//! `tidegate limits`: all limits of a gateway, with their rates.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use super::api::ApiArgs;
use super::request::path;
use super::table::columns;
use super::{answered, text};
use tidegate_config::Millis;

/// Arguments of `tidegate limits`.
#[derive(Debug, Args)]
pub(in crate::cli) struct LimitsArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// Writes all limits: a line for each limit, and for each tier of a limit with tiers. Returns the exit code.
pub(in crate::cli) fn limits(args: &LimitsArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    answered(args.api.send("GET", &path(&["limits"])), errors, |limits| {
        if args.api.json {
            writeln!(out, "{limits:#}")?;
            return Ok(0);
        }
        let heads = ["ROUTE", "LIMIT", "MODE", "CLIENT", "RATE", "INTERVAL", "ALGORITHM", "SHADOW", "BUCKETS", "TIER"];
        let limits = limits.as_array().map(Vec::as_slice).unwrap_or_default();
        out.write_all(columns(heads, limits.iter().flat_map(lines)).as_bytes())?;
        Ok(0)
    })
}

/// Returns the lines of a limit.
fn lines(limit: &Value) -> Vec<[String; 10]> {
    let rates = &limit["rates"];
    let tiers = rates["tiers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tier = |tier: &Value| {
        let default = if tier["tier"] == rates["default"] { " (default)" } else { "" };
        line(limit, tier, format!("{}{default}", text(&tier["tier"])))
    };
    match (tiers, rates["max"].as_u64()) {
        ([], None) => vec![line(limit, limit, "-".to_owned())],
        ([], Some(max)) => vec![line(limit, limit, format!("up to {max} by {}", text(&rates["by"])))],
        (tiers, _) => tiers.iter().map(tier).collect(),
    }
}

/// Returns a line with a rate of the limit, which `rate` contains.
fn line(limit: &Value, rate: &Value, tier: String) -> [String; 10] {
    let named = |key: &str| text(&limit[key]);
    [
        named("route"),
        named("limit"),
        named("mode"),
        named("client"),
        text(&rate["rate"]),
        interval(rate),
        named("algorithm"),
        if limit["shadow"] == true { "yes" } else { "no" }.to_owned(),
        text(&limit["buckets"]["held"]),
        tier,
    ]
}

/// Returns the interval of a rate as a duration.
pub(super) fn interval(rate: &Value) -> String {
    rate["interval_ms"].as_u64().map_or_else(|| "-".to_owned(), Millis::show)
}
