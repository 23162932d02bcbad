//! `tidegate status`.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};

use super::api::ApiArgs;
use super::request::path;
use super::table::rows;
use super::{answered, text, write_config_errors};

/// Arguments of `tidegate status`.
#[derive(Debug, Args)]
pub(in crate::cli) struct StatusArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// Writes whether the gateway is ready, the rule file with its errors, and the state of the store. Returns the exit code: 0
/// if the gateway is ready, 1 if it is not.
pub(in crate::cli) fn status(args: &StatusArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let requests = [("GET", path(&["status"])), ("GET", path(&["config"]))];
    answered(args.api.send_all(&requests), errors, |replies| {
        let [status, config] = &replies[..] else { return Ok(2) };
        let code = u8::from(status["ready"] != true);
        if args.api.json {
            let mut status = status.clone();
            status["config"]["errors"] = config["errors"].clone();
            writeln!(out, "{status:#}")?;
            return Ok(code);
        }
        let (config_state, store) = (&status["config"], &status["store"]);
        let yes_no = |value: &Value| if value == true { "yes" } else { "no" }.to_owned();
        let mut table = vec![
            ("ready", yes_no(&status["ready"])),
            ("version", text(&status["version"])),
            ("started", text(&status["started_at"])),
            ("rules", format!("{} limits, applied {}", config_state["limits"], text(&config_state["applied_at"]))),
            ("hash", text(&config_state["hash"])),
            ("store", text(&store["address"])),
            ("workers", text(&status["workers"])),
            ("connections", text(&status["connections"]["open"])),
        ];
        if status["draining"] == true {
            table.insert(1, ("reason", "draining".to_owned()));
        }
        let store_is = if store["up"] == true { "up" } else { "down" };
        let more = [
            ("state", json!(store_is)),
            ("cause", store["cause"].clone()),
            ("latency", store["latency_ms"].as_f64().map_or(Value::Null, |millis| json!(format!("{millis:.1} ms")))),
            ("breakers", store["open_breakers"].clone()),
            ("gateways", store["gateways"].clone()),
            ("owed", store["owed"].clone()),
        ];
        let is_redis = store["kind"] == "redis";
        table.extend(
            more.into_iter().filter(|(_, value)| is_redis && !value.is_null()).map(|(key, value)| (key, text(&value))),
        );
        out.write_all(rows(&table).as_bytes())?;
        let errors = config["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (of_teams, others): (Vec<_>, Vec<_>) = errors.iter().cloned().partition(|error| error["team"].is_string());
        if !others.is_empty() {
            writeln!(out, "\nthe rule file was rejected, the previous rules stay in use:")?;
            write_config_errors(&json!(others), out)?;
        }
        if !of_teams.is_empty() {
            writeln!(out, "\nfiles of teams are invalid, their last valid versions stay in use:")?;
            write_config_errors(&json!(of_teams), out)?;
        }
        Ok(code)
    })
}
