//! `tidegate status`: whether a gateway is ready, and what is wrong with it.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};

use super::api::ApiArgs;
use super::request::path;
use super::table::{columns, rows};
use super::{answered, text, write_config_errors};

/// Arguments of `tidegate status`.
#[derive(Debug, Args)]
pub(in crate::cli) struct StatusArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// Writes whether the gateway is ready, the state of the store, what is wrong, and the errors of the rule file. Returns the
/// exit code: 0 if the gateway is ready and nothing is wrong, 1 otherwise.
pub(in crate::cli) fn status(args: &StatusArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let requests = [("GET", path(&["status"])), ("GET", path(&["config"]))];
    answered(args.api.send_all(&requests), errors, |replies| {
        let [status, config] = &replies[..] else { return Ok(2) };
        let problems = status["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
        let code = u8::from(status["ready"] != true || !problems.is_empty());
        if args.api.json {
            let mut status = status.clone();
            status["config"]["errors"] = config["errors"].clone();
            writeln!(out, "{status:#}")?;
            return Ok(code);
        }
        let mut table = gateway_rows(status);
        table.extend(store_rows(&status["store"]));
        table.push(("problems", problems.len().to_string()));
        out.write_all(rows(&table).as_bytes())?;
        write_problems(problems, out)?;
        write_rule_errors(&config["errors"], out)?;
        Ok(code)
    })
}

fn gateway_rows(status: &Value) -> Vec<(&'static str, String)> {
    let config = &status["config"];
    let ready = if status["ready"] == true { "yes" } else { "no" };
    let mut table = vec![("ready", ready.to_owned())];
    if status["draining"] == true {
        table.push(("reason", "draining".to_owned()));
    }
    table.extend([
        ("version", text(&status["version"])),
        ("started", text(&status["started_at"])),
        ("rules", format!("{} limits, applied {}", config["limits"], text(&config["applied_at"]))),
        ("hash", text(&config["hash"])),
        ("store", text(&status["store"]["address"])),
        ("workers", text(&status["workers"])),
        ("connections", text(&status["connections"]["open"])),
    ]);
    table
}

/// Returns the state of a store in Redis.
fn store_rows(store: &Value) -> impl Iterator<Item = (&'static str, String)> {
    let state = if store["up"] == true { "up" } else { "down" };
    let latency = store["latency_ms"].as_f64().map_or(Value::Null, |millis| json!(format!("{millis:.1} ms")));
    let rows = [
        ("state", json!(state)),
        ("cause", store["cause"].clone()),
        ("latency", latency),
        ("breakers", store["open_breakers"].clone()),
        ("gateways", store["gateways"].clone()),
        ("owed", store["owed"].clone()),
    ];
    let is_redis = store["kind"] == "redis";
    rows.into_iter().filter(move |(_, value)| is_redis && !value.is_null()).map(|(key, value)| (key, text(&value)))
}

/// Writes a table of the problems.
fn write_problems(problems: &[Value], out: &mut impl Write) -> io::Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    let row = |problem: &Value| ["kind", "subject", "since", "message"].map(|key| text(&problem[key]));
    writeln!(out)?;
    out.write_all(columns(["PROBLEM", "SUBJECT", "SINCE", "MESSAGE"], problems.iter().map(row)).as_bytes())
}

/// Writes all errors of the rule file and of the files of teams, with their help.
fn write_rule_errors(errors: &Value, out: &mut impl Write) -> io::Result<()> {
    let errors = errors.as_array().cloned().unwrap_or_default();
    let (of_teams, others): (Vec<_>, Vec<_>) = errors.into_iter().partition(|error| error["team"].is_string());
    if !others.is_empty() {
        writeln!(out, "\nthe rule file was rejected, the previous rules stay in use:")?;
        write_config_errors(&json!(others), out)?;
    }
    if !of_teams.is_empty() {
        writeln!(out, "\nfiles of teams are invalid, their last valid versions stay in use:")?;
        write_config_errors(&json!(of_teams), out)?;
    }
    Ok(())
}
