//! Commands for operators of a running gateway: `status`, `fleet`, `upstreams`, `drain`, `limits`, `client`, `top`, `reset`, and
//! in `overrides` those that change limits for one client. They use its admin API.

mod address;
mod api;
mod client;
mod confirm;
mod fleet;
mod limits;
mod overrides;
mod record;
mod request;
mod sink;
mod status;
pub(super) mod table;
mod top;
mod upstreams;

use std::io::{self, Write};
use std::net::IpAddr;

use clap::Args;
use serde_json::Value;

pub(super) use self::api::{ApiArgs, ApiError};
pub(super) use self::client::{ClientArgs, client};
use self::confirm::is_confirmed;
pub(super) use self::fleet::{FleetArgs, fleet, send_to_all};
pub(super) use self::limits::{LimitsArgs, limits};
pub(super) use self::overrides::{AdjustArgs, BanArgs, OverrideArgs, OverridesArgs, adjust, ban, exempt, overrides};
pub(super) use self::record::{RecordArgs, record};
use self::request::{LimitName, query};
pub(super) use self::status::{StatusArgs, status};
use self::table::printable;
pub(super) use self::top::{TopArgs, top};
pub(super) use self::upstreams::{DrainArgs, UpstreamsArgs, drain, upstreams};

/// Arguments of `tidegate reset`.
#[derive(Debug, Args)]
pub(super) struct ResetArgs {
    /// The limit, as its route and its name; a domain is the route /DOMAIN
    #[arg(value_name = "ROUTE/LIMIT")]
    limit: LimitName,
    #[command(flatten)]
    client: ClientName,
    /// Why, for the audit list
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do not ask before all clients are reset
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// The name of a client.
#[derive(Debug, Args)]
struct ClientName {
    /// The client: a value for each source of the limit's `client`
    #[arg(value_name = "VALUE")]
    values: Vec<String>,
    /// The hash of the client, from the access log
    #[arg(long, value_name = "HASH", conflicts_with_all = ["values", "address"])]
    hash: Option<String>,
    /// The IP address of the client
    #[arg(long, value_name = "IP", conflicts_with = "values")]
    address: Option<IpAddr>,
}

/// Resets a client, or all clients of a limit. Returns the exit code.
pub(super) fn reset(args: &ResetArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let mut parameters = args.client.parameters();
    let question = || format!("reset all clients of {}?", args.limit);
    if parameters.is_empty() && !args.yes && !is_confirmed(&question(), errors)? {
        writeln!(errors, "tidegate: nothing was reset")?;
        return Ok(1);
    }
    let below: &[&str] = if parameters.is_empty() { &[] } else { &["client"] };
    parameters.extend(args.reason.as_ref().map(|reason| ("reason", reason.clone())));
    let target = args.limit.path(below) + &query(&parameters);
    answered(args.api.send("DELETE", &target), errors, |cleared| {
        if args.api.json {
            writeln!(out, "{cleared:#}")?;
            return Ok(0);
        }
        let buckets = cleared["buckets"].as_u64().unwrap_or_default();
        writeln!(out, "{}: cleared {buckets} {}", args.limit, if buckets == 1 { "bucket" } else { "buckets" })?;
        Ok(0)
    })
}

impl ClientName {
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let values = self.values.iter().map(|value| ("value", value.clone()));
        let hash = self.hash.iter().map(|hash| ("hash", hash.clone()));
        values.chain(hash).chain(self.address.map(|address| ("address", address.to_string()))).collect()
    }
}

/// Writes the result, or the error: 1 if the gateway rejects the request, 2 if it does not answer.
fn answered<T>(
    answer: Result<T, ApiError>,
    errors: &mut impl Write,
    show: impl FnOnce(&T) -> io::Result<u8>,
) -> io::Result<u8> {
    match answer {
        Ok(answer) => show(&answer),
        Err(error) => write_error(&error, errors),
    }
}

/// Writes the errors of a rule file.
pub(super) fn write_config_errors(list: &Value, out: &mut impl Write) -> io::Result<()> {
    for error in list.as_array().into_iter().flatten() {
        let text = |key: &str| printable(error[key].as_str().unwrap_or_default());
        let at = match (error["line"].as_u64(), error["column"].as_u64()) {
            (Some(line), Some(column)) => format!(":{line}:{column}"),
            _ => String::new(),
        };
        writeln!(out, "{}{at}: {}", text("file"), text("message"))?;
        if error["help"].is_string() {
            writeln!(out, "  help: {}", text("help"))?;
        }
    }
    Ok(())
}

/// Writes an error. Returns the exit code.
pub(super) fn write_error(error: &ApiError, errors: &mut impl Write) -> io::Result<u8> {
    writeln!(errors, "tidegate: {error}")?;
    Ok(error.exit_code())
}

/// Returns a value as a cell of a table.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
