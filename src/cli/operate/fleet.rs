//! `tidegate fleet`: the gateways that share the store. `--all` of other commands sends a command to all of them.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use super::api::ApiArgs;
use super::request::path;
use super::table::columns;
use super::{answered, text};

/// The characters of a hash that are shown.
const SHOWN_HASH: usize = 12;

/// Arguments of `tidegate fleet`.
#[derive(Debug, Args)]
pub(in crate::cli) struct FleetArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// Lists the gateways that share the store. Returns the exit code: 1 if their versions or rule files differ.
pub(in crate::cli) fn fleet(args: &FleetArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    answered(args.api.send("GET", &path(&["fleet"])), errors, |fleet| {
        let differs = fleet["differences"].as_array().is_some_and(|found| !found.is_empty());
        if args.api.json {
            writeln!(out, "{fleet:#}")?;
            return Ok(u8::from(differs));
        }
        let heads = ["GATEWAY", "VERSION", "RULES", "APPLIED", "STATE", "PROBLEMS", "SEEN", "DIFFERS"];
        let gateways = fleet["gateways"].as_array().map(Vec::as_slice).unwrap_or_default();
        out.write_all(columns(heads, gateways.iter().map(row)).as_bytes())?;
        if fleet["shared"] == false {
            writeln!(out, "\nthe store is in the memory of this gateway: no other gateway shares it")?;
        }
        Ok(u8::from(differs))
    })
}

/// Sends a command to all gateways, and writes what each did. Returns the exit code: 1 if a gateway did not execute it.
pub(in crate::cli) fn send_to_all(
    api: &ApiArgs,
    command: &Value,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<u8> {
    answered(api.send_body("POST", &path(&["fleet", "commands"]), command), errors, |result| {
        let gateways = result["gateways"].as_array().map(Vec::as_slice).unwrap_or_default();
        let code = u8::from(gateways.iter().any(|gateway| gateway["outcome"] != "done"));
        if api.json {
            writeln!(out, "{result:#}")?;
            return Ok(code);
        }
        let row = |gateway: &Value| [name(gateway), outcome(gateway), text(&gateway["detail"])];
        out.write_all(columns(["GATEWAY", "RESULT", "DETAIL"], gateways.iter().map(row)).as_bytes())?;
        Ok(code)
    })
}

fn row(gateway: &Value) -> [String; 8] {
    let unknown = || "unknown".to_owned();
    let known = |key: &str| gateway[key].as_str().map_or_else(unknown, str::to_owned);
    let hash = match gateway["hash"].as_str() {
        Some(hash) => hash.chars().take(SHOWN_HASH).collect(),
        None if gateway["version"].is_string() => "no file".to_owned(),
        None => unknown(),
    };
    let seen = gateway["seen_ms"].as_u64().unwrap_or_default();
    let differs: Vec<String> = gateway["differs"].as_array().into_iter().flatten().map(text).collect();
    [
        name(gateway),
        known("version"),
        hash,
        known("applied_at"),
        state(gateway).to_owned(),
        gateway["problems"].as_u64().map_or_else(unknown, |problems| problems.to_string()),
        format!("{}.{} s ago", seen / 1_000, seen % 1_000 / 100),
        if differs.is_empty() { "-".to_owned() } else { differs.join(", ") },
    ]
}

fn state(gateway: &Value) -> &'static str {
    match (&gateway["ready"], &gateway["draining"]) {
        (_, Value::Bool(true)) => "draining",
        (Value::Bool(true), _) => "ready",
        (Value::Bool(false), _) => "not ready",
        _ => "unknown",
    }
}

/// Returns the name of a gateway, or the start of its id.
fn name(gateway: &Value) -> String {
    let id = || gateway["id"].as_str().unwrap_or("unknown").chars().take(8).collect();
    let name = gateway["name"].as_str().map_or_else(id, str::to_owned);
    if gateway["self"] == true { name + " (this)" } else { name }
}

fn outcome(gateway: &Value) -> String {
    text(&gateway["outcome"]).replace('_', " ")
}
