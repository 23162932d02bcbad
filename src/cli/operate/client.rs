//! `tidegate client`: the permits of one client of a limit.

use std::io::{self, Write};

use clap::Args;
use serde_json::Value;

use super::api::ApiArgs;
use super::limits::interval;
use super::request::{LimitName, query};
use super::table::{columns, rows};
use super::{ClientName, answered, text};

/// Arguments of `tidegate client`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ClientArgs {
    /// The limit, as its route and its name; a domain is the route /DOMAIN
    #[arg(value_name = "ROUTE/LIMIT")]
    limit: LimitName,
    #[command(flatten)]
    client: ClientName,
    /// The tier of the client, if the gateway does not know it
    #[arg(long, value_name = "NAME", conflicts_with = "rate")]
    tier: Option<String>,
    /// The rate that the client's requests contain, for a limit whose `rate` has `by`
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    #[command(flatten)]
    api: ApiArgs,
}

/// Writes the state of a client. Returns the exit code: 0 if a request is granted now, 1 if it is not. If the rate is not
/// known, 0 if each rate of the limit grants it.
pub(in crate::cli) fn client(args: &ClientArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let mut parameters = args.client.parameters();
    parameters.extend(args.tier.iter().map(|tier| ("tier", tier.clone())));
    parameters.extend(args.rate.map(|rate| ("rate", rate.to_string())));
    let target = args.limit.path(&["client"]) + &query(&parameters);
    answered(args.api.send("GET", &target), errors, |state| {
        let code = u8::from(state["granted"] != true);
        if args.api.json {
            writeln!(out, "{state:#}")?;
            return Ok(code);
        }
        out.write_all(rows(&client_rows(state)).as_bytes())?;
        if state["rate_from"] == "unknown" {
            write_rates(state, out)?;
        }
        Ok(code)
    })
}

fn client_rows(state: &Value) -> Vec<(&'static str, String)> {
    let named = |key: &str| text(&state[key]);
    let mut table = vec![("client", named("client"))];
    if state["rates"].as_array().is_some_and(|rates| !rates.is_empty()) {
        table.push(("tier", format!("{} ({})", named("tier"), source(state))));
    }
    if state["rate_from"] != "unknown" {
        table.push(("rate", format!("{} per {}", named("rate"), interval(state))));
        table.extend([("remaining", named("remaining")), ("used", named("used"))]);
        let of_budget = ["reserved", "debt"].into_iter().filter(|key| !state[key].is_null());
        table.extend(of_budget.map(|key| (key, named(key))));
        table.push(("next permit", next_permit(state)));
    }
    table.push(("expires", named("expires_at")));
    if let Some(action) = state["override"]["action"].as_str() {
        let entry = &state["override"];
        table.push(("override", format!("{action} until {}, id {}", text(&entry["until"]), text(&entry["id"]))));
    }
    if state["overflow"] == true {
        table.push(("overflow", "shares the overflow bucket of the limit".to_owned()));
    }
    table
}

/// Returns how the rate of the client is known.
fn source(state: &Value) -> &'static str {
    match state["rate_from"].as_str().unwrap_or_default() {
        "parameter" => "as requested",
        "client" => "from the values of the client",
        "api_key" => "from the API keys of the client",
        "override" => "any: the override sets the rate",
        _ => "unknown: only requests of the client show it",
    }
}

/// Returns when the next request for one permit is granted.
fn next_permit(state: &Value) -> String {
    match state["override"]["action"].as_str() {
        Some("ban") => "the client is banned".to_owned(),
        Some("exempt") => "now: the limit does not count the client".to_owned(),
        _ if state["granted"] == true => "now".to_owned(),
        _ => text(&state["next_permit_at"]),
    }
}

/// Writes the figures of the client with each rate of the limit.
fn write_rates(state: &Value, out: &mut impl Write) -> io::Result<()> {
    let rates = state["rates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_tiers = rates.iter().any(|rate| rate["tier"].is_string());
    let row = |rate: &Value| {
        let default = if rate["default"] == true { " (default)" } else { "" };
        let name = rate["tier"].as_str().unwrap_or(if rate["default"] == true { "no number" } else { "the largest" });
        let figures = ["rate", "remaining", "used", "next_permit_at"].map(|key| text(&rate[key]));
        let [per_interval, remaining, used, next] = figures;
        [format!("{name}{default}"), per_interval, interval(rate), remaining, used, next]
    };
    let (head, option) = if has_tiers { ("TIER", "--tier NAME") } else { ("REQUESTS WITH", "--rate N") };
    writeln!(out, "\nthe figures depend on the request; `{option}` selects them:")?;
    let heads = [head, "RATE", "INTERVAL", "REMAINING", "USED", "NEXT PERMIT"];
    out.write_all(columns(heads, rates.iter().map(row)).as_bytes())
}
