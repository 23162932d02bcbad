//! `tidegate top`: the clients that are rejected most, or those with the most requests.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use super::request::{LimitName, path, query};
use super::table::columns;
use super::{ApiArgs, answered};

/// Arguments of `tidegate top`.
#[derive(Debug, Args)]
pub(in crate::cli) struct TopArgs {
    /// Only this limit, as its route and its name
    #[arg(value_name = "ROUTE/LIMIT")]
    limit: Option<LimitName>,
    /// The current minute and this many minutes before
    #[arg(long, value_name = "N", default_value = "15", value_parser = ["1", "5", "15"])]
    minutes: String,
    /// Rejections by all gateways that share the store
    #[arg(long)]
    all: bool,
    /// The clients with the most requests, rejected or not, on this gateway
    #[arg(long, conflicts_with_all = ["limit", "all"])]
    talkers: bool,
    /// The amount that sorts the talkers
    #[arg(long, value_name = "AMOUNT", default_value = "requests", value_parser = ["requests", "bytes", "permits"], requires = "talkers")]
    by: String,
    #[command(flatten)]
    api: ApiArgs,
}

/// Writes the clients. Returns the exit code.
pub(in crate::cli) fn top(args: &TopArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    if args.talkers {
        return talkers(args, out, errors);
    }
    let target = args.limit.as_ref().map_or_else(|| path(&["rejected"]), |limit| limit.path(&["rejected"]));
    let mut parameters = vec![("minutes", args.minutes.clone())];
    parameters.extend(args.all.then(|| ("all", "1".to_owned())));
    answered(args.api.send("GET", &(target + &query(&parameters))), errors, |clients| {
        if args.api.json {
            writeln!(out, "{clients:#}")?;
            return Ok(0);
        }
        let heads = ["CLIENT", "COUNT", "ERROR", "LIMIT", "LINE", "SINCE", "LAST"];
        let clients = clients.as_array().map(Vec::as_slice).unwrap_or_default();
        if clients.is_empty() {
            writeln!(out, "no client was rejected in the last {} minutes", args.minutes)?;
            return Ok(0);
        }
        out.write_all(columns(heads, clients.iter().map(row)).as_bytes())?;
        Ok(0)
    })
}

/// Writes the clients with the most requests, bytes or permits. Returns the exit code.
fn talkers(args: &TopArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let parameters = [("minutes", args.minutes.clone()), ("by", args.by.clone())];
    answered(args.api.send("GET", &(path(&["talkers"]) + &query(&parameters))), errors, |list| {
        if args.api.json {
            writeln!(out, "{list:#}")?;
            return Ok(0);
        }
        let clients = list["clients"].as_array().map(Vec::as_slice).unwrap_or_default();
        if list["enabled"] == false {
            writeln!(out, "the gateway does not count the requests of clients: set `talkers: true` in `admin`")?;
        } else if clients.is_empty() {
            writeln!(out, "no client sent a request in the last {} minutes", args.minutes)?;
        } else {
            let heads = ["CLIENT", "REQUESTS", "BYTES", "PERMITS"];
            out.write_all(columns(heads, clients.iter().map(talker_row)).as_bytes())?;
        }
        Ok(0)
    })
}

fn talker_row(client: &Value) -> [String; 4] {
    // The error makes a count too high, never too low.
    let amount = |key: &str| {
        let error = &client[format!("{key}_error")];
        if *error == 0 { client[key].to_string() } else { format!("{} (-{error})", client[key]) }
    };
    let name = client["client"].as_str().unwrap_or("-").to_owned();
    [name, amount("requests"), amount("bytes"), amount("permits")]
}

/// Returns the route with the limit, or with the cause in parentheses.
fn rejected_by(client: &Value) -> String {
    let text = |key: &str| client[key].as_str().unwrap_or("-");
    match client["limit"].as_str() {
        Some(limit) => format!("{}/{limit}", text("route")),
        None => format!("{} ({})", text("route"), text("cause")),
    }
}

fn row(client: &Value) -> [String; 7] {
    let text = |key: &str| client[key].as_str().unwrap_or("-").to_owned();
    let location = &client["location"];
    let name = match (client["value"].as_str(), client["client"].as_str()) {
        (Some(value), Some(hash)) => format!("{value} ({hash})"),
        (_, hash) => hash.unwrap_or("-").to_owned(),
    };
    // The error makes the count too high, never too low.
    let error = if client["error"] == 0 { "exact".to_owned() } else { format!("-{}", client["error"]) };
    [
        name,
        client["count"].to_string(),
        error,
        rejected_by(client),
        location["file"].as_str().map_or_else(|| "-".to_owned(), |file| format!("{file}:{}", location["line"])),
        text("since"),
        text("last"),
    ]
}
