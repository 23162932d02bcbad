//! `tidegate top`: the clients that limits reject most.

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
    /// Rejections of the current minute and this many minutes before
    #[arg(long, value_name = "N", default_value = "15", value_parser = ["1", "5", "15"])]
    minutes: String,
    /// Rejections by all gateways that share the store
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Writes the clients. Returns the exit code.
pub(in crate::cli) fn top(args: &TopArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
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
        format!("{}/{}", text("route"), text("limit")),
        format!("{}:{}", location["file"].as_str().unwrap_or("-"), location["line"]),
        text("since"),
        text("last"),
    ]
}
