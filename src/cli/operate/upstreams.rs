//! `tidegate upstreams` and `tidegate drain`.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};

use super::api::ApiArgs;
use super::fleet::send_to_all;
use super::request::path;
use super::table::{columns, rows};
use super::{answered, text};

/// Arguments of `tidegate upstreams`.
#[derive(Debug, Args)]
pub(in crate::cli) struct UpstreamsArgs {
    #[command(flatten)]
    api: ApiArgs,
}

/// Arguments of `tidegate drain`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DrainArgs {
    /// The name of the upstream
    #[arg(value_name = "UPSTREAM")]
    upstream: String,
    /// The target: as in the rule file, without http:// or https://, or a resolved address of its host name
    #[arg(value_name = "TARGET")]
    target: String,
    /// How long, such as 10m or 1d; at most 30d
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", conflicts_with = "undo")]
    duration: String,
    /// Why, for the audit list
    #[arg(long, value_name = "TEXT", conflicts_with = "undo")]
    reason: Option<String>,
    /// Drain even the last usable target of the upstream
    #[arg(long, conflicts_with = "undo")]
    force: bool,
    /// End the drain
    #[arg(long)]
    undo: bool,
    /// Drain the target on all gateways that share the store; needs a token of each
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Lists the targets of all upstreams. Returns the exit code.
pub(in crate::cli) fn upstreams(args: &UpstreamsArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    answered(args.api.send("GET", &path(&["upstreams"])), errors, |upstreams| {
        if args.api.json {
            writeln!(out, "{upstreams:#}")?;
            return Ok(0);
        }
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let all = list(upstreams);
        let table = all
            .iter()
            .flat_map(|one| list(&one["targets"]).into_iter().map(move |target| row(one, &target)).collect::<Vec<_>>());
        let heads = ["UPSTREAM", "TARGET", "STATE", "WEIGHT", "IN FLIGHT", "OK", "FAILED", "CHECKS", "DETAIL"];
        out.write_all(columns(heads, table).as_bytes())?;
        Ok(0)
    })
}

/// Drains a target, or ends its drain. Returns the exit code.
pub(in crate::cli) fn drain(args: &DrainArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    if args.all {
        return send_to_all(&args.api, &command(args), out, errors);
    }
    let path = path(&["upstreams", &args.upstream, "targets", &args.target, "drain"]);
    let answer = if args.undo {
        args.api.send("DELETE", &path)
    } else {
        let body = json!({ "for": args.duration, "reason": args.reason, "force": args.force });
        args.api.send_body("POST", &path, &body)
    };
    answered(answer, errors, |drained| {
        if args.api.json {
            writeln!(out, "{drained:#}")?;
            return Ok(0);
        }
        let targets: Vec<String> = drained["targets"].as_array().into_iter().flatten().map(text).collect();
        let until =
            drained["until"].as_str().map_or_else(|| "not draining".to_owned(), |until| format!("until {until}"));
        let table = [
            ("targets", targets.join(", ")),
            ("drain", until),
            ("in flight", text(&drained["in_flight"])),
            ("scope", "this gateway process only".to_owned()),
        ];
        out.write_all(rows(&table).as_bytes())?;
        Ok(0)
    })
}

/// Returns the command for all gateways.
fn command(args: &DrainArgs) -> Value {
    let DrainArgs { upstream, target, duration, reason, force, undo, .. } = args;
    if *undo {
        return json!({ "action": "end_drain", "upstream": upstream, "target": target });
    }
    let action = "drain";
    json!({ "action": action, "upstream": upstream, "target": target, "for": duration, "reason": reason, "force": force })
}

fn row(upstream: &Value, target: &Value) -> [String; 9] {
    let attempts = target["attempts"].as_object().cloned().unwrap_or_default();
    let failed = attempts.iter().filter(|(outcome, _)| *outcome != "ok" && *outcome != "canceled");
    let failed: u64 = failed.filter_map(|(_, count)| count.as_u64()).sum();
    let ok = attempts.get("ok").and_then(Value::as_u64).unwrap_or_default();
    let address = match target["resolved"].as_str() {
        Some(resolved) => format!("{} {resolved}", text(&target["address"])),
        None => text(&target["address"]),
    };
    let checks = &target["checks"];
    let checked = match checks["run"].as_u64() {
        Some(run) => format!("{run}, {} failed", text(&checks["failed"])),
        None => "-".to_owned(),
    };
    [
        text(&upstream["name"]),
        address,
        text(&target["state"]),
        text(&target["weight"]),
        text(&target["in_flight"]),
        ok.to_string(),
        failed.to_string(),
        checked,
        if upstream["panic"] == true && target["state"] == "failed" {
            format!("used (panic); {}", detail(target))
        } else {
            detail(target)
        },
    ]
}

/// Returns why a target is not usable, or its last error.
fn detail(target: &Value) -> String {
    if let Some(until) = target["draining_until"].as_str() {
        return format!("until {until}");
    }
    if let Some(until) = target["ejected_until"].as_str() {
        return format!("until {until}: {}", text(&target["ejected_because"]));
    }
    match &target["checks"] {
        checks if checks["last_passed"] == false => format!("check: {}", text(&checks["last_result"])),
        _ => text(&target["failing"]["last_error"]),
    }
}
