//! The commands that change limits for one client or network: `ban`, `exempt`, `adjust` and `overrides`.

use std::io::{self, Write};
use std::iter;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::api::ApiArgs;
use super::request::{LimitName, path};
use super::table::{columns, rows};
use super::{answered, text};
use tidegate_layer::overrides::Factor;

/// The most skipped limits that a message names.
const MAX_SKIPPED: usize = 10;

/// Arguments of `tidegate ban`.
#[derive(Debug, Args)]
pub(in crate::cli) struct BanArgs {
    #[command(flatten)]
    common: OverrideArgs,
    /// Allow a network larger than /8, or /19 for IPv6
    #[arg(long)]
    force: bool,
    /// End the open WebSockets, tunnels and streams of the client as well
    #[arg(long)]
    disconnect: bool,
}

/// Arguments of `tidegate exempt`, which are common to all overrides.
#[derive(Debug, Args)]
pub(in crate::cli) struct OverrideArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    end: EndArgs,
    /// Why, for other operators and the audit list
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Replace an override with the same action, scope and target
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Arguments of `tidegate adjust`.
#[derive(Debug, Args)]
pub(in crate::cli) struct AdjustArgs {
    #[command(flatten)]
    rate: RateArgs,
    #[command(flatten)]
    common: OverrideArgs,
}

/// The new rate.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct RateArgs {
    /// Multiply the rate by this number, such as 5 or 0.5
    #[arg(long, value_name = "FACTOR")]
    multiply: Option<Factor>,
    /// Replace the rate; needs --limit
    #[arg(long, value_name = "PERMITS", requires = "limit")]
    rate: Option<u32>,
}

/// The limits to change. The default are the limits of all routes.
#[derive(Debug, Args)]
struct ScopeArgs {
    /// Only this limit
    #[arg(long, value_name = "ROUTE/LIMIT")]
    limit: Option<LimitName>,
    /// Only the limits of this route, or of the domain /DOMAIN
    #[arg(long, value_name = "ROUTE", conflicts_with = "limit")]
    route: Option<String>,
}

/// The client or network.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct TargetArgs {
    /// IP address or network, such as 203.0.113.0/24
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// The client of a limit; repeat for each source of the limit's `client`. Needs --limit
    #[arg(long, value_name = "VALUE", requires = "limit")]
    client: Vec<String>,
    /// The hash of a client, from the access log
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
}

/// The end.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct EndArgs {
    /// How long, such as 30m or 1d; at most 30d
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<String>,
    /// Until this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// Arguments of `tidegate overrides`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct OverridesArgs {
    #[command(subcommand)]
    command: Option<OverridesCommand>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Subcommand)]
enum OverridesCommand {
    /// List the overrides in force
    List {
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Remove an override
    Remove {
        /// The id of the override
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        api: ApiArgs,
    },
}

/// Bans a client. Returns the exit code.
pub(in crate::cli) fn ban(args: &BanArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let flags = [("force", args.force), ("disconnect", args.disconnect)].into_iter().filter(|(_, is_set)| *is_set);
    args.common.create("ban", flags.map(|(key, is_set)| (key, json!(is_set))), out, errors)
}

/// Exempts a client from limits. Returns the exit code.
pub(in crate::cli) fn exempt(args: &OverrideArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    args.create("exempt", [], out, errors)
}

/// Changes the rate of limits for a client. Returns the exit code.
pub(in crate::cli) fn adjust(args: &AdjustArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let rate = args.rate.rate.map(|rate| ("rate", json!(rate)));
    let rate = rate.or_else(|| args.rate.multiply.map(|factor| ("multiply", json!(factor))));
    args.common.create("adjust", rate, out, errors)
}

/// Lists overrides, or removes one. Returns the exit code.
pub(in crate::cli) fn overrides(args: &OverridesArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    match &args.command {
        None => list(&args.api, out, errors),
        Some(OverridesCommand::List { api }) => list(api, out, errors),
        Some(OverridesCommand::Remove { id, api }) => {
            let removed = api.send("DELETE", &path(&["overrides", id]));
            answered(removed, errors, |removed| show(removed, api, out))
        }
    }
}

fn list(api: &ApiArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    answered(api.send("GET", &path(&["overrides"])), errors, |overrides| {
        if api.json {
            writeln!(out, "{overrides:#}")?;
            return Ok(0);
        }
        let row = |entry: &Value| {
            let [id, action, until, by, reason] =
                ["id", "action", "until", "by", "reason"].map(|key| text(&entry[key]));
            [id, action, scope(entry), target(entry), rate(entry), until, by, reason]
        };
        let overrides = overrides.as_array().map(Vec::as_slice).unwrap_or_default();
        let heads = ["ID", "ACTION", "SCOPE", "TARGET", "RATE", "UNTIL", "BY", "REASON"];
        out.write_all(columns(heads, overrides.iter().map(row)).as_bytes())?;
        Ok(0)
    })
}

impl OverrideArgs {
    fn create(
        &self,
        action: &str,
        more: impl IntoIterator<Item = (&'static str, Value)>,
        out: &mut impl Write,
        errors: &mut impl Write,
    ) -> io::Result<u8> {
        let limit = self.scope.limit.as_ref().map(ToString::to_string);
        let target = match (&self.target.address, &self.target.hash) {
            (Some(address), _) => json!({ "address": address }),
            (None, Some(hash)) => json!({ "hash": hash }),
            (None, None) => json!({ "client": self.target.client }),
        };
        let end = match &self.end.duration {
            Some(duration) => ("for", json!(duration)),
            None => ("until", json!(self.end.until)),
        };
        let mut body = json!({
            "action": action,
            "scope": limit.or_else(|| self.scope.route.clone()),
            "target": target,
            "reason": self.reason,
            "replace": self.replace,
        });
        iter::once(end).chain(more).for_each(|(key, value)| body[key] = value);
        let created = self.api.send_body("POST", &path(&["overrides"]), &body);
        answered(created, errors, |created| show(created, &self.api, out))
    }
}

/// Writes an override.
fn show(entry: &Value, api: &ApiArgs, out: &mut impl Write) -> io::Result<u8> {
    if api.json {
        writeln!(out, "{entry:#}")?;
        return Ok(0);
    }
    let mut table = vec![("id", text(&entry["id"])), ("action", text(&entry["action"])), ("scope", scope(entry))];
    table.extend([("target", target(entry)), ("rate", rate(entry)), ("until", text(&entry["until"]))]);
    if entry["disconnect"] == true {
        table.push(("disconnect", "ends open WebSockets, tunnels and streams".to_owned()));
    }
    if let Some(skipped) = skipped(entry) {
        table.push(("skipped", skipped));
    }
    if entry["stored"] == "memory" {
        table.push(("stored", "in the memory of this gateway only".to_owned()));
    }
    out.write_all(rows(&table).as_bytes())?;
    Ok(0)
}

/// Returns the limits that an adjustment does not change.
fn skipped(entry: &Value) -> Option<String> {
    let limits: Vec<&str> = entry["skipped"].as_array()?.iter().filter_map(Value::as_str).collect();
    let more = limits.len().saturating_sub(MAX_SKIPPED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown = limits[..limits.len().min(MAX_SKIPPED)].join(", ");
    (!limits.is_empty()).then(|| format!("{shown}{more}: OVERALL, or shared with Redisson"))
}

fn scope(entry: &Value) -> String {
    entry["scope"].as_str().unwrap_or("all routes").to_owned()
}

fn target(entry: &Value) -> String {
    let target = &entry["target"];
    target["address"].as_str().or(target["hash"].as_str()).unwrap_or("-").to_owned()
}

fn rate(entry: &Value) -> String {
    match (&entry["rate"], &entry["multiply"]) {
        (Value::Null, Value::Null) => "-".to_owned(),
        (Value::Null, factor) => format!("x{factor}"),
        (rate, _) => rate.to_string(),
    }
}
